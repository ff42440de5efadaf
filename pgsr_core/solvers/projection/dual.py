"""Kernels for the dual: its gradient, products with its Hessian, and a tree preconditioner.

With a multiplier row λ_i for each internal region i (p its parent, 1/w its stiffness):

    leaf:      x = isotonic projection of n + λ_p / w onto its bounds
    internal:  x_i = n_i + (λ_p − λ_i) / w_i
    gradient:  F_i = Σ_children x − x_i            (zero where the table is consistent)
    Hessian:   (H d)_i = Σ_leaves J d_i / w + Σ_internal children (d_i − d_c) / w_c
                         − (d_p − d_i) / w_i        (J averages over a leaf's blocks)

H without the pools is the Laplacian of the tree of internal regions, grounded at the root; the
preconditioner keeps it and replaces each pool by a diagonal, which elimination from the leaves
up solves exactly, column by column (the columns meet only in the pools).

Every sum is taken in an order that does not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from pgsr_core.solvers.projection.leaf_fit import add_leaf, pool_leaf

Int = NDArray[np.int64]
Int32 = NDArray[np.int32]
Real = NDArray[np.float64]

# What a pool counts for in the preconditioner, of its number of free leaves.
POOL_SHARE = 0.2


@njit(cache=True, parallel=True)
def fit_pools(
    noisy: Int,
    upper: Real,
    multipliers: Real,
    leaves: Int,
    leaf_stiffness: Real,
    task_pool: Int,
    task_start: Int,
    edges: Int32,
    blocks: Int32,
    sums: Real,
) -> None:
    """Fit every leaf under its parent's multipliers; keep its blocks, sum the fits by task."""
    columns = noisy.shape[1]
    for task in prange(len(task_pool)):
        pool = task_pool[task]
        shift = multipliers[pool] * leaf_stiffness[pool]
        position = np.empty(columns + 1, dtype=np.int64)
        height = np.empty(columns + 1)
        sums[task] = 0.0
        for leaf in range(task_start[task], task_start[task + 1]):
            region = leaves[leaf]
            first, last = pool_leaf(noisy[region], shift, upper[region], position, height)
            add_leaf(upper[region], first, last, position, height, sums[task])
            blocks[leaf] = last - first
            for b in range(first, last + 1):
                edges[leaf, b - first] = position[b]


@njit(cache=True, parallel=True)
def write_leaves(
    noisy: Int,
    upper: Real,
    multipliers: Real,
    leaves: Int,
    leaf_stiffness: Real,
    task_pool: Int,
    task_start: Int,
    values: Real,
) -> None:
    """Write the leaves' fits; a running minimum takes out the last digit's rounding errors."""
    columns = noisy.shape[1]
    for task in prange(len(task_pool)):
        pool = task_pool[task]
        shift = multipliers[pool] * leaf_stiffness[pool]
        position = np.empty(columns + 1, dtype=np.int64)
        height = np.empty(columns + 1)
        for leaf in range(task_start[task], task_start[task + 1]):
            row = values[leaves[leaf]]
            level = upper[leaves[leaf]]
            first, last = pool_leaf(noisy[leaves[leaf]], shift, level, position, height)
            row[:] = 0.0
            row[: position[first]] = level
            for b in range(first, last):
                mean = (height[b + 1] - height[b]) / (position[b + 1] - position[b])
                level = min(level, max(mean, 0.0))
                row[position[b] : position[b + 1]] = level


@njit(cache=True)
def gradient(
    noisy: Int,
    multipliers: Real,
    internal: Int,
    above: Int,
    stiffness: Real,
    pool_start: Int,
    sums: Real,
    fixed_total: float,
    out: Real,
) -> float:
    """F from the pools' sums; returns its largest magnitude. A fixed total pins x_root[0]."""
    columns = noisy.shape[1]
    for i in range(len(internal)):
        row = noisy[internal[i]]
        for k in range(columns):
            out[i, k] = multipliers[i, k] * stiffness[i] - row[k]
        for task in range(pool_start[i], pool_start[i + 1]):
            for k in range(columns):
                out[i, k] += sums[task, k]
        p = above[i]
        if p >= 0:
            # out[p] is complete but for its internal children, which follow it.
            for k in range(columns):
                shared = multipliers[p, k] * stiffness[i]
                out[i, k] -= shared
                out[p, k] += row[k] + shared - multipliers[i, k] * stiffness[i]
    if fixed_total >= 0:
        out[0, 0] += noisy[0, 0] - multipliers[0, 0] * stiffness[0] - fixed_total
    return float(np.abs(out).max())


@njit(cache=True)
def _add_pool_average(
    direction: Real,
    stiffness: float,
    first_leaf: int,
    last_leaf: int,
    edges: Int32,
    blocks: Int32,
    prefix: Real,
    changes: Real,
    out: Real,
) -> None:
    """Add Σ_leaves J d / w: each block takes the mean of its cells, found from prefix sums."""
    columns = direction.shape[0]
    prefix[0] = 0.0
    for k in range(columns):
        prefix[k + 1] = prefix[k] + direction[k]
    changes[:] = 0.0
    for leaf in range(first_leaf, last_leaf):
        start, before = edges[leaf, 0], 0.0
        # Invariant: `changes` holds this leaf's changes of level left of `start`, where its
        # level is `before`.
        for b in range(1, blocks[leaf] + 1):
            stop = edges[leaf, b]
            mean = (prefix[stop] - prefix[start]) / (stop - start)
            changes[start] += mean - before
            start, before = stop, mean
        changes[start] -= before
    level = 0.0
    for k in range(columns):
        level += changes[k]
        out[k] += level * stiffness


@njit(cache=True)
def hessian_product(
    direction: Real,
    above: Int,
    stiffness: Real,
    leaf_stiffness: Real,
    pool_leaves: Int,
    edges: Int32,
    blocks: Int32,
    pinned: bool,
    damping: float,
    out: Real,
) -> float:
    """(H + damping) d; returns ⟨d, (H + damping) d⟩.

    One thread: a product takes under a millisecond for 3,000 regions × 1,000 sizes, and there
    are hundreds of them; two threads on a busy machine lose more at the barriers.
    """
    regions, columns = direction.shape
    prefix, changes = np.empty(columns + 1), np.empty(columns + 1)
    for i in range(regions):
        for k in range(columns):
            out[i, k] = (stiffness[i] + damping) * direction[i, k]
        first, last = pool_leaves[i], pool_leaves[i + 1]
        if last > first:
            _add_pool_average(
                direction[i],
                leaf_stiffness[i],
                first,
                last,
                edges,
                blocks,
                prefix,
                changes,
                out[i],
            )
        p = above[i]
        if p >= 0:
            for k in range(columns):
                out[p, k] += stiffness[i] * (direction[p, k] - direction[i, k])
                out[i, k] -= stiffness[i] * direction[p, k]
    if pinned:
        out[0, 0] -= stiffness[0] * direction[0, 0]
    return float(inner(direction, out))


@njit(cache=True)
def inner(left: Real, right: Real) -> float:
    """⟨left, right⟩, row by row in order."""
    total = 0.0
    for i in range(left.shape[0]):
        row = 0.0
        for k in range(left.shape[1]):
            row += left[i, k] * right[i, k]
        total += row
    return total


@njit(cache=True)
def factorise(
    above: Int,
    stiffness: Real,
    leaf_stiffness: Real,
    pool_leaves: Int,
    edges: Int32,
    blocks: Int32,
    pinned: bool,
    damping: float,
    pivots: Real,
) -> None:
    """Pivots of the preconditioner's elimination, inverted.

    A pool's averaging has eigenvalues from (nearly) zero, on rough rows, to its number of free
    leaves, on smooth ones; POOL_SHARE of that number stands for it.
    """
    regions, columns = pivots.shape
    pivots[:] = 0.0
    for i in range(regions - 1, -1, -1):
        free = np.zeros(columns + 1)
        for leaf in range(pool_leaves[i], pool_leaves[i + 1]):
            free[edges[leaf, 0]] += 1.0
            free[edges[leaf, blocks[leaf]]] -= 1.0
        count = 0.0
        p = above[i]
        for k in range(columns):
            count += free[k]
            own = stiffness[i] + damping
            if pinned and i == 0 and k == 0:
                own = damping
            # Children come later in breadth-first order: their shares are already added.
            pivot = 1.0 / (pivots[i, k] + own + POOL_SHARE * leaf_stiffness[i] * count)
            pivots[i, k] = pivot
            if p >= 0:
                pivots[p, k] += stiffness[i] - stiffness[i] * stiffness[i] * pivot


@njit(cache=True)
def precondition(residual: Real, above: Int, stiffness: Real, pivots: Real, out: Real) -> float:
    """Solve the preconditioner's system; returns ⟨residual, solution⟩."""
    regions, columns = residual.shape
    out[:] = residual
    for i in range(regions - 1, 0, -1):
        p = above[i]
        for k in range(columns):
            out[p, k] += stiffness[i] * pivots[i, k] * out[i, k]
    for k in range(columns):
        out[0, k] *= pivots[0, k]
    for i in range(1, regions):
        p = above[i]
        for k in range(columns):
            out[i, k] = (out[i, k] + stiffness[i] * out[p, k]) * pivots[i, k]
    return float(inner(residual, out))


@njit(cache=True)
def advance(length: float, search: Real, product: Real, step: Real, residual: Real) -> None:
    """step += length · search, residual −= length · product, in one pass."""
    for i in range(search.shape[0]):
        for k in range(search.shape[1]):
            step[i, k] += length * search[i, k]
            residual[i, k] -= length * product[i, k]


@njit(cache=True)
def combine(solved: Real, factor: float, search: Real) -> None:
    """search = solved + factor · search."""
    for i in range(search.shape[0]):
        for k in range(search.shape[1]):
            search[i, k] = solved[i, k] + factor * search[i, k]
