"""Kernels for the preconditioner: the Hessian with every averaging replaced by a diagonal.

What is left is, column by column, the Laplacian of the tree of internal regions with a ground
at every region that has leaves, which elimination from the deepest region up solves exactly.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pgsr_core.solvers.projection.dual import BAND, inner
from pgsr_core.solvers.projection.fits import Blocks, add_diagonals
from pgsr_core.solvers.projection.layout import Layout

Real = NDArray[np.float64]
Real32 = NDArray[np.float32]

# An averaging has eigenvalues from its diagonal's size, on rough rows, to one, on smooth rows.
# This much is added to its diagonal as a compromise.
SMOOTH_SHARE = 0.05


@njit(cache=True)
def factorise(
    layout: Layout,
    leaf_blocks: Blocks,
    blocks: Blocks,
    damping: Real,
    links: Real32,
    pivots: Real32,
) -> None:
    """Links between regions and their parents, and the elimination's inverted pivots.

    Single precision: a preconditioner need only be the same, and positive, in every step.
    """
    regions, columns = pivots.shape
    changes, link, pivot = np.empty(columns + 1), np.empty(columns), np.empty(columns)
    pivots[:] = 0.0
    # Invariant: pivots[i] holds what the children of i, which come after it, add to its pivot.
    for i in range(regions - 1, -1, -1):
        if layout.held[i]:
            link[:] = 0.0
            add_diagonals(blocks, i, i + 1, SMOOTH_SHARE, changes, link)
        else:
            link[:] = 1.0
            if i == 0 and layout.root_total >= 0:
                link[0] = 0.0
        pivot[:] = 0.0
        start, stop = layout.pool_leaves[i], layout.pool_leaves[i + 1]
        add_diagonals(leaf_blocks, start, stop, SMOOTH_SHARE, changes, pivot)
        above = layout.above[i]
        for k in range(columns):
            joined = link[k] * layout.stiffness[i]
            damped = damping[i, k // BAND] * layout.steepest[i]
            own = pivot[k] * layout.leaf_stiffness[i] + damped + pivots[i, k]
            links[i, k] = joined
            pivots[i, k] = 1.0 / (own + joined)
            if above >= 0:
                # joined − joined² / (own + joined), without its cancellation.
                pivots[above, k] += joined * own / (own + joined)


@njit(cache=True)
def precondition(layout: Layout, residual: Real, links: Real32, pivots: Real32, out: Real) -> float:
    """Solve the preconditioner's system; returns ⟨residual, solution⟩."""
    regions, columns = residual.shape
    out[:] = residual
    for i in range(regions - 1, 0, -1):
        above = layout.above[i]
        for k in range(columns):
            out[above, k] += links[i, k] * pivots[i, k] * out[i, k]
    for k in range(columns):
        out[0, k] *= pivots[0, k]
    for i in range(1, regions):
        above = layout.above[i]
        for k in range(columns):
            out[i, k] = (out[i, k] + links[i, k] * out[above, k]) * pivots[i, k]
    return float(inner(residual, out))


@njit(cache=True)
def advance(length: float, search: Real, product: Real, step: Real, residual: Real) -> float:
    """step += length · search, residual −= length · product; the residual's largest size."""
    largest = 0.0
    for i in range(search.shape[0]):
        for k in range(search.shape[1]):
            step[i, k] += length * search[i, k]
            residual[i, k] -= length * product[i, k]
            largest = max(largest, abs(residual[i, k]))
    return largest


@njit(cache=True)
def combine(solved: Real, factor: float, search: Real) -> None:
    """search = solved + factor · search."""
    for i in range(search.shape[0]):
        for k in range(search.shape[1]):
            search[i, k] = solved[i, k] + factor * search[i, k]
