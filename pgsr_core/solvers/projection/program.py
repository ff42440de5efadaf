"""The whole cumulative program at once: consistent, monotone, bounded, closest in L2.

The published two-step method fits each region apart (C3, C4) and makes the tree consistent
afterwards in counts, which undoes much of the fit. Here constraints (C1)–(C4) of Fioretto
and Van Hentenryck 2019, section 8, are met together, for cumulative counts from the top:

    minimise   Σ_r w_r Σ_k (c^r_k − ñ^r_k)²
    subject to c^r_k = Σ_children c^child_k                   for every internal r and every k
               G_r ≥ c^r_1 ≥ … ≥ c^r_N ≥ 0                    for every leaf, hence everywhere

with G_r public; where it is not, G stands in for G_r and c^root_1 = G.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.isotonic import isotonic_real, read_only
from pgsr_core.solvers.projection.layout import (
    Layout,
    checked_groups,
    checked_table,
    checked_weights,
)
from pgsr_core.solvers.projection.newton import DualNewton

Int = NDArray[np.int64]
Real = NDArray[np.float64]


@dataclass(frozen=True)
class Projection:
    """The projected table and how far it is from consistent.

    Attributes:
        values: regions × sizes. Leaves are monotone and within bounds (exactly); each internal
            row minimises the Lagrangian at the last multipliers.
        residual: the largest |c^r_k − Σ_children c^child_k| over internal regions r and sizes
            k, in groups. With it zero, `values` is the optimum.
        newton_steps: steps taken.
        converged: whether the residual is within the tolerance asked for.
    """

    values: Real
    residual: float
    newton_steps: int
    converged: bool


def project(
    tree: RegionTree,
    noisy: Int,
    *,
    groups: int,
    groups_by_region: Int | None,
    level_weights: Sequence[float] | None = None,
    tolerance: float = 1e-2,
    max_steps: int = 200,
) -> Projection:
    """Project noisy cumulative counts, one column for each k = 1..N, onto the program.

    The result does not depend on the number of threads. Doubles carry about 16 digits: prefix
    sums of a row are formed, so a residual far below 1e-13 × (groups × columns) is out of
    reach, and asking for it ends in ``converged=False``.

    Args:
        tree: the region tree.
        noisy: regions × N measured integers.
        groups: G, the number of groups in all.
        groups_by_region: the public number of groups of each region, or None.
        level_weights: one positive weight for each level, root first; None means equal ones.
        tolerance: the residual at which to stop.
        max_steps: Newton steps after which to give up.

    Raises:
        ProjectionInputError: shapes, weights or totals do not fit the tree.
    """
    checked_table(tree, noisy, np.int64)
    weights = checked_weights(tree, level_weights)
    upper = checked_groups(tree, groups, groups_by_region).astype(np.float64)
    if tree.regions == 1:
        return _lone_root(noisy, upper, pinned=groups_by_region is None)
    root_total = float(groups) if groups_by_region is None else -1.0
    table = read_only(np.ascontiguousarray(noisy, dtype=np.int64))
    newton = DualNewton(Layout.of(tree, weights, root_total=root_total), table, upper)
    while newton.residual > tolerance and newton.steps < max_steps and newton.step():
        pass
    return Projection(
        values=newton.values(),
        residual=newton.residual,
        newton_steps=newton.steps,
        converged=newton.residual <= tolerance,
    )


def _lone_root(noisy: Int, upper: Real, *, pinned: bool) -> Projection:
    """Without children only monotonicity and bounds are left; a pinned c_1 = G is the bound."""
    values = np.empty(noisy.shape)
    free = 1 if pinned else 0
    values[:, :free] = upper[:, None]
    values[:, free:] = isotonic_real(noisy[:, free:].astype(np.float64), upper=upper)
    return Projection(values=values, residual=0.0, newton_steps=0, converged=True)
