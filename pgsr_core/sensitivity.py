"""L1 sensitivity of the measured queries, with the proofs."""

from __future__ import annotations

from enum import StrEnum

from pgsr_core.postprocessing.protocol import Query


class Neighbours(StrEnum):
    """When two data sets count as neighbours."""

    ADD_REMOVE = "add-remove"
    """One record is added or removed."""

    REPLACE = "replace"
    """One record is replaced by another."""


def l1_sensitivity(
    query: Query,
    *,
    neighbours: Neighbours,
    largest_contribution: int,
    largest_size: int,
    units_from_data: bool = False,
) -> int:
    """The largest L1 change of one level's measurements between neighbours.

    Guarantee. Regions of one level are disjoint, so one record touches one region a level and
    moves one unit from size σ to σ' with |σ − σ'| ≤ Z (sizes above N are top-coded to N, and
    σ ↦ min(σ, N) is 1-Lipschitz, so the top-coded sizes differ by at most min(Z, N)).

    - counts: the unit leaves one cell and enters another, or only one of the two where a unit
      appears or vanishes: at most 2 (Fioretto and Van Hentenryck 2019, Lemma 4), and reached as
      soon as there are two cells. With units from the data and N = 1 there is one: 1.
    - cumulative from the top, c_k = #{units of size ≥ k}: 1[σ ≥ k] flips for exactly the
      |σ − σ'| thresholds in between, each by one: at most min(Z, N), reached from σ = 0. A unit
      that appears or vanishes is a unit of size 0 before or after, and no threshold k ≥ 1 counts
      those.

    Replacing a record is one removal and one addition: twice that. The two may be in different
    units and regions, so the factor is needed.

    Units from the data. The bound is over *all* neighbours, those with another number of groups
    G included, so the measurements alone need no proviso. That G is kept and published is what
    confines the claim to neighbours with equal G; between those alone, one record added or
    removed could change the cumulative counts by min(Z, N − 1) only, which is not made use of.

    Not used. Counting from the bottom (the paper's Lemma 6), c_s = #{units of size 1 to s}, does
    not have this bound: a unit of size 1 that loses its only member lowers *every* entry by one,
    so its sensitivity is N. Nor has dropping units above N instead of top-coding them: a unit of
    size N that gains a member leaves all N entries.

    Args:
        query: what is measured.
        neighbours: which change of one record the claim covers.
        largest_contribution: Z, the most that one record adds to its unit.
        largest_size: N, where sizes are top-coded.
        units_from_data: whether sizes start at 1, as units without records are not known of.
    """
    if largest_contribution < 1 or largest_size < 1:
        raise ValueError(
            "largest_contribution and largest_size must be at least 1, got "
            f"{largest_contribution} and {largest_size}"
        )
    if query is Query.COUNTS:
        sizes = range(1 if units_from_data else 0, largest_size + 1)
        one_record = min(2, len(sizes))
    else:
        one_record = min(largest_contribution, largest_size)
    return one_record if neighbours is Neighbours.ADD_REMOVE else 2 * one_record
