"""The step of `global`: shrunk estimates, one projection over the whole tree, exact integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pgsr_core.postprocessing.protocol import Int, PublicFacts, StepResult
from pgsr_core.postprocessing.steps import counts_from_cumulative
from pgsr_core.scales import worth_pooling

if TYPE_CHECKING:
    from pgsr_core.solvers.projection import Projection

# The projection takes integers: estimates go in as multiples of 1/16 group.
PARTS = 16
TOLERANCE = 0.05
# Further from any possible count than this an estimate says nothing more, and would not fit.
FURTHEST = float(2**53)


@dataclass(frozen=True)
class GlobalProjection:
    """All regions and sizes at once: the cumulative program (C1)–(C4), then exact integers.

    Beyond the papers, three stages. Empirical Bayes: a region's row is drawn towards its share of
    its parent's as far as the level's own moments say that its regions are alike (see
    pgsr_core.solvers.shrinkage). Projection: the closest table that is monotone, consistent and,
    where the number of groups of each region is public, faithful in every region. Rounding: exact
    whatever the residual of the projection is; a projection that did not converge is a valid
    release that is less accurate than it could be, and its residual goes on record.
    """

    name: str = "global"

    def __call__(self, values: Int, facts: PublicFacts) -> StepResult:
        """See Step."""
        from pgsr_core.solvers.projection import round_consistently

        tree = facts.tree
        projection = _project(values, facts)
        cumulative = round_consistently(
            tree,
            projection.values / PARTS,
            groups=facts.groups,
            groups_by_region=facts.groups_by_region,
        )
        return StepResult(
            values=counts_from_cumulative(cumulative, facts),
            certificate={
                "residual": projection.residual / PARTS,
                "newton_steps": projection.newton_steps,
                "consistent": bool(np.array_equal(tree.children_sums(cumulative), cumulative)),
                "non_increasing": bool(np.all(cumulative[:, :-1] >= cumulative[:, 1:])),
            },
        )


def _project(values: Int, facts: PublicFacts) -> Projection:
    """Project the estimates, in PARTS of a group."""
    from pgsr_core.solvers.projection import project

    by_region = facts.groups_by_region
    parts = np.clip(np.rint(PARTS * _estimates(values, facts)), -FURTHEST, FURTHEST)
    return project(
        facts.tree,
        parts.astype(np.int64),
        groups=PARTS * facts.groups,
        groups_by_region=None if by_region is None else PARTS * by_region,
        tolerance=PARTS * TOLERANCE,
    )


def _estimates(values: Int, facts: PublicFacts) -> NDArray[np.float64]:
    """What the measurements say of the true cumulative counts; themselves, where nearly exact."""
    from pgsr_core.solvers.shrinkage import shrink

    if not worth_pooling(facts.scales):
        return values.astype(np.float64)
    return shrink(
        facts.tree,
        values,
        groups=facts.groups,
        groups_by_region=facts.groups_by_region,
        scales=[float(scale) for scale in facts.scales],
    )
