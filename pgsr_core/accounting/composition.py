"""What is composed, and the guarantee that all releases of a population give together.

The budget counts the plain sum of ε: it holds whatever the releases are. The figure of this module
is for reading beside it: a smaller ε that holds up to a small δ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pgsr_core.accounting.losses import compose_cells, epsilon_for
from pgsr_core.budget import total
from pgsr_core.description import FROM_DATA
from pgsr_core.noise.protocol import DISTRIBUTION
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.sensitivity import Neighbours, l1_sensitivity

DEFAULT_DELTA = Fraction(1, 10**9)
# Below this the figure would be that of the plain sum, and floating point ends.
SMALLEST_DELTA = Fraction(1, 10**30)
FOUR_CELLS = 4


@dataclass(frozen=True)
class MeasuredQuery:
    """What was measured at every level of a region tree, and with how much noise.

    Attributes:
        largest_contribution: Z, the most that one record adds to its unit.
        largest_size: N, where sizes are top-coded.
        units_from_data: whether sizes start at 1.
        scales: of the noise, root first.
    """

    query: Query
    largest_contribution: int
    largest_size: int
    units_from_data: bool
    scales: tuple[Fraction, ...]

    def largest_change(self, neighbours: Neighbours) -> Mapping[int, int]:
        """The worst change of one level between neighbours: how many cells change by how much.

        Guarantee. L1 sensitivity bounds the sum of the changes; how it is spread over cells
        decides the distribution of the loss. No pair of neighbours is worse than what is returned:

        - Cumulative from the top. One record flips at most min(Z, N) thresholds, each by one.
          A replaced record lowers some c_k by one and raises some by one; where both hit one cell
          they cancel. So min(Z, N) cells, or twice as many, change by one.
        - Counts, add or remove. One unit leaves a cell and enters another: two cells by one.
        - Counts, replace. Two units move, σ → σ − z and τ → τ + z'. Two of the four changes of one
          can add up in one cell of a region (σ = τ, or σ − z = τ + z'), and not both pairs of them:
          then σ ≤ τ + z' = σ − z, and nothing moved. So one cell by two and two by one, or four by
          one, and the first is worse: noise with a = exp(−1/scale) on a cell that changes by two
          has losses +2, 0, −2 (in units of 1/scale) with probabilities 1, a(1−a), a² over 1+a.
          Keep ±2 with probability 1/(1+a) and else report 0: they become 1, 2a, a² over (1+a)²,
          which is what two cells that change by one have. Post-processing is never worse.
          (From the data and with N = 1 there is one size: two units, two cells by one.)

        Fewer cells are never worse, as their noise can be added by anyone.
        """
        sensitivity = l1_sensitivity(
            self.query,
            neighbours=neighbours,
            largest_contribution=self.largest_contribution,
            largest_size=self.largest_size,
            units_from_data=self.units_from_data,
        )
        if self.query is Query.COUNTS and sensitivity == FOUR_CELLS:
            return {2: 1, 1: 2}
        return {1: sensitivity}


@dataclass(frozen=True)
class ChargedRelease:
    """What a release was charged, and what is known of its mechanism.

    Attributes:
        epsilon: the charge; zero for a simulation, which is no release at all.
        neighbours: between which data sets it is ε-differentially private.
        measured: None if the ledger does not say; then nothing but ε is used.
    """

    epsilon: Fraction
    neighbours: Neighbours
    measured: MeasuredQuery | None

    @classmethod
    def from_descriptor(cls, epsilon: Fraction, descriptor: Mapping[str, Any]) -> ChargedRelease:
        """Read what the ledger stores with a charge; what does not explain the charge is left."""
        neighbours = Neighbours(descriptor.get("neighbours", Neighbours.ADD_REMOVE))
        try:
            noise = descriptor["noise"]
            measured = MeasuredQuery(
                Query(descriptor["query"]),
                int(descriptor["largest_contribution"]),
                int(descriptor["largest_size"]),
                descriptor["units"] == FROM_DATA,
                tuple(Fraction(scale) for scale in noise["scales"]),
            )
            explained = total(noise["sensitivity"] / scale for scale in measured.scales)
            known = noise["distribution"] == DISTRIBUTION and explained == epsilon
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            return cls(epsilon, neighbours, None)
        return cls(epsilon, neighbours, measured if known else None)


@dataclass(frozen=True)
class Guarantee:
    """(ε, δ)-differential privacy of several releases together.

    Attributes:
        neighbours: between which data sets.
        plain: the sum of the charges, an ε for δ = 0.
        epsilon: an ε for this δ; never more than the plain sum.
    """

    neighbours: Neighbours
    plain: Fraction
    delta: Fraction
    epsilon: Fraction


def compose(releases: Sequence[ChargedRelease], *, delta: Fraction) -> Guarantee:
    """Compose all levels of all releases.

    Guarantee. Noise is independent over cells, levels and releases. For each level the pair of
    distributions of its worst change (MeasuredQuery.largest_change) dominates that of every pair
    of neighbours; a release of which only ε is known is dominated by randomised response with that
    ε. Products of dominating pairs dominate the composition, also where later data depend on
    earlier results (Zhu, Dong and Wang 2022, on adaptive composition of dominating pairs), and the
    δ of the product follows from the sum of its privacy losses. Noise is symmetric, so the two
    directions of a pair are alike.

    The parameters (ε, split, sizes) of later releases must not have been chosen by looking at
    earlier results: an (ε, δ) figure of parameters so chosen needs a privacy filter (Rogers, Roth,
    Ullman and Vadhan 2016). The plain sum does not need that.

    Neighbours. If every release is for replaced records, so is the result. Otherwise it is for
    records that are added or removed, and a release made for replacement counts with what adding or
    removing changes there, which is less.

    Args:
        releases: of one population; simulations cost nothing.
        delta: at least SMALLEST_DELTA and less than 1.
    """
    if not SMALLEST_DELTA <= delta < 1:
        raise ValueError(f"delta must be in [{float(SMALLEST_DELTA)}, 1), got {delta}")
    charged = [release for release in releases if release.epsilon > 0]
    replaced = charged and all(release.neighbours is Neighbours.REPLACE for release in charged)
    neighbours = Neighbours.REPLACE if replaced else Neighbours.ADD_REMOVE
    plain = total(release.epsilon for release in charged)
    cells: Counter[tuple[Fraction, int]] = Counter()
    for release in charged:
        if release.measured is None:
            cells[release.epsilon, 1] += 1
            continue
        for scale in release.measured.scales:
            for change, number in release.measured.largest_change(neighbours).items():
                cells[1 / scale, change] += number
    if not cells:
        return Guarantee(neighbours, plain, delta, plain)
    found = epsilon_for(compose_cells(cells, delta=delta), delta=delta)
    return Guarantee(neighbours, plain, delta, min(plain, found))
