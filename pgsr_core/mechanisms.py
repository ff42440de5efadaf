"""The mechanisms: each is a query and the steps that turn its noisy answer into a release.

The sensitivity follows from the query; nothing else distinguishes one mechanism from another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType

from pgsr_core.budget import OwnSplit
from pgsr_core.postprocessing.exact_programs import (
    ConstraintTables,
    ExactCounts,
    ExactCumulative,
    refuse_too_large,
)
from pgsr_core.postprocessing.global_projection import GlobalProjection
from pgsr_core.postprocessing.protocol import Query, Step
from pgsr_core.postprocessing.relaxations import RelaxedCounts, RelaxedCumulative
from pgsr_core.postprocessing.steps import (
    ConsistentCounts,
    ConsistentCountsFromCumulative,
    LocalIsotonicFix,
)
from pgsr_core.solvers.generic.errors import SolverMissing

# In a configuration: the mechanism is chosen from measured results, see pgsr_core.selection.
AUTO = "auto"


@dataclass(frozen=True)
class Mechanism:
    """A way to release group sizes.

    Attributes:
        name: as in a configuration.
        notation: as in the literature.
        query: what is measured.
        steps: post-processing, in order; the last one yields the counts to publish.
        split: how ε is split over the levels unless a configuration says so.
        keeps_region_totals: whether G_r is kept in every region (where it is public), or only
            G at every level.
        requires: the package of a generic solver that it cannot do without, of an optional extra.
        simulated_by: the mechanism whose errors are simulated in its place for typical margins:
            one that finds the same optimum or one near it in no time, for those that take long;
            and a rougher one where its own errors would look too small, since a table that was
            drawn towards what is expected of it is drawn there even better the second time.
    """

    name: str
    notation: str
    query: Query
    steps: tuple[Step, ...]
    split: OwnSplit = "uniform"
    keeps_region_totals: bool = False
    requires: str | None = None
    simulated_by: Mechanism | None = None

    def refuse_if_out_of_reach(self, *, cells: int) -> None:
        """Refuse before anything is spent what the mechanism's solver could not do afterwards.

        Args:
            cells: how many numbers are measured.

        Raises:
            SolverMissing: its solver is not installed.
            TooLargeForSolver: there are more cells than its solver is given.
        """
        if self.requires is None:
            return
        if find_spec(self.requires) is None:
            raise SolverMissing(package=self.requires, reason="it is not installed")
        refuse_too_large(cells)


CUMULATIVE = Mechanism(
    name="cumulative",
    notation="M_c^dp",
    query=Query.CUMULATIVE,
    steps=(LocalIsotonicFix(), ConsistentCountsFromCumulative()),
)
DIRECT = Mechanism(
    name="direct", notation="M_H^dp", query=Query.COUNTS, steps=(ConsistentCounts(),)
)
GLOBAL = Mechanism(
    name="global",
    notation="shrunk global projection",
    query=Query.CUMULATIVE,
    steps=(GlobalProjection(),),
    split="balanced",
    keeps_region_totals=True,
    simulated_by=CUMULATIVE,
)
EXACT_COUNTS = Mechanism(
    name="exact-counts",
    notation="M_H",
    query=Query.COUNTS,
    steps=(ExactCounts(),),
    requires="pyscipopt",
    simulated_by=DIRECT,
)
CONSTRAINT_TABLES = Mechanism(
    name="constraint-tables",
    notation="M_dp^OP",
    query=Query.COUNTS,
    steps=(ConstraintTables(),),
    requires="ortools",
    simulated_by=DIRECT,
)
EXACT_CUMULATIVE = Mechanism(
    name="exact-cumulative",
    notation="M_c",
    query=Query.CUMULATIVE,
    steps=(ExactCumulative(),),
    keeps_region_totals=True,
    requires="pyscipopt",
    simulated_by=CUMULATIVE,
)

MECHANISMS: Mapping[str, Mechanism] = MappingProxyType(
    {
        mechanism.name: mechanism
        for mechanism in (
            CUMULATIVE,
            DIRECT,
            GLOBAL,
            EXACT_COUNTS,
            CONSTRAINT_TABLES,
            EXACT_CUMULATIVE,
        )
    }
)

# Rounded cell by cell, regions do not add up: these can be compared, and publish nothing.
RELAXED_COUNTS = Mechanism(
    name="relaxed-counts", notation="M_H^r", query=Query.COUNTS, steps=(RelaxedCounts(),)
)
RELAXED_CUMULATIVE = Mechanism(
    name="relaxed-cumulative",
    notation="M_c^r",
    query=Query.CUMULATIVE,
    steps=(RelaxedCumulative(),),
)
RELAXED: Mapping[str, Mechanism] = MappingProxyType(
    {mechanism.name: mechanism for mechanism in (RELAXED_COUNTS, RELAXED_CUMULATIVE)}
)


def why_not(name: str) -> str:
    """Say why nothing can be published with a mechanism of a name that is not in MECHANISMS."""
    if name in RELAXED:
        instead = "direct" if RELAXED[name].query is Query.COUNTS else "cumulative or global"
        return (
            f"{name} ({RELAXED[name].notation}) rounds each count by itself, so regions do not add "
            f"up, and nothing can be published with it; take {instead}, which solves the same "
            "problem in integers"
        )
    return f"must be one of {', '.join(sorted(MECHANISMS))}, or {AUTO}"
