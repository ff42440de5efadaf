"""The papers' relaxed steps, M_H^r and M_c^r: optimal in real numbers, then rounded cell by cell.

Rounded children need not add up to their rounded parent, so these steps are for comparison only;
no release can be made with them. The papers solve the relaxations with a generic solver; here the
product's own find the same optima, at any size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgsr_core.postprocessing.protocol import Int, PublicFacts, StepResult
from pgsr_core.postprocessing.steps import counts_from_cumulative

FINENESS = 1024
RESIDUAL = 1e-3


@dataclass(frozen=True)
class RelaxedCounts:
    """M_H^r: (H1)–(H3) over real numbers x ≥ 0, rounded half up.

    Solved in integers, in units of 1/FINENESS of a group: the exact optimum over that grid, which
    is the real optimum but for a few such units.
    """

    name: str = "relaxed-counts"

    def __call__(self, values: Int, facts: PublicFacts) -> StepResult:
        """See Step."""
        from pgsr_core.solvers import cpwl

        fine = cpwl.solve(facts.tree, values * FINENESS, groups=facts.groups * FINENESS).counts
        return StepResult(values=(fine + FINENESS // 2) // FINENESS)


@dataclass(frozen=True)
class RelaxedCumulative:
    """M_c^r: (C1)–(C4) over real numbers with equal weights, rounded half up, then differences.

    The projection is stopped when regions differ from their children by less than RESIDUAL.
    """

    name: str = "relaxed-cumulative"

    def __call__(self, values: Int, facts: PublicFacts) -> StepResult:
        """See Step."""
        from pgsr_core.solvers.projection import project

        projection = project(
            facts.tree,
            values,
            groups=facts.groups,
            groups_by_region=facts.groups_by_region,
            tolerance=RESIDUAL,
        )
        cumulative = np.floor(projection.values + 0.5).astype(np.int64)
        return StepResult(
            values=counts_from_cumulative(cumulative, facts),
            certificate={"residual": projection.residual},
        )
