"""Kernels for the dual: its gradient, products with its Hessian, and how stiff it turned out.

With a multiplier row λ_i for each internal region i (p its parent, 1/w its stiffness):

    leaf:      x = fit of n + λ_p / w                       (fit: isotonic, within bounds)
    internal:  x_i = n_i + (λ_p − λ_i) / w_i, or the fit of that where the region is held
    gradient:  F_i = Σ_children x − x_i                     (zero where the table is consistent)
    Hessian:   (H d)_i = Σ_leaves J d_i / w + J_i (d_i − d_p) / w_i
                         + Σ_internal children J_c (d_i − d_c) / w_c

where J averages over a fit's blocks and is the identity for a region that is not held. Every
sum is taken in an order that does not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from pgsr_core.solvers.projection.fits import (
    Blocks,
    add_averages,
    add_fit,
    fit_row,
    keep_blocks,
    write_fit,
)
from pgsr_core.solvers.projection.layout import Layout

Int = NDArray[np.int64]
Real = NDArray[np.float64]

# Neighbouring columns that share a damping.
BAND = 32
LEAST_DAMPING = 1e-9
# What is left of a damping after a step that did not need it.
DAMPING_DECAY = 0.25


@njit(cache=True, parallel=True)
def fit_pools(
    layout: Layout, noisy: Int, upper: Real, multipliers: Real, blocks: Blocks, sums: Real
) -> None:
    """Fit every leaf under its parent's multipliers; keep its blocks, sum the fits by task."""
    columns = noisy.shape[1]
    for task in prange(len(layout.task_pool)):
        pool = layout.task_pool[task]
        shift = multipliers[pool] * layout.leaf_stiffness[pool]
        position, height = np.empty(columns + 1, np.int64), np.empty(columns + 1)
        sums[task] = 0.0
        for leaf in range(layout.task_start[task], layout.task_start[task + 1]):
            region = layout.leaves[leaf]
            first, last = fit_row(noisy[region], shift, upper[region], position, height)
            add_fit(upper[region], first, last, position, height, sums[task])
            keep_blocks(blocks, leaf, first, last, position, 0)


@njit(cache=True, parallel=True)
def write_leaves(layout: Layout, noisy: Int, upper: Real, multipliers: Real, values: Real) -> None:
    """Write the leaves' fits into the whole table."""
    columns = noisy.shape[1]
    for task in prange(len(layout.task_pool)):
        pool = layout.task_pool[task]
        shift = multipliers[pool] * layout.leaf_stiffness[pool]
        position, height = np.empty(columns + 1, np.int64), np.empty(columns + 1)
        for leaf in range(layout.task_start[task], layout.task_start[task + 1]):
            region = layout.leaves[leaf]
            first, last = fit_row(noisy[region], shift, upper[region], position, height)
            write_fit(upper[region], first, last, position, height, values[region])


@njit(cache=True)
def _fit_internal(
    layout: Layout, noisy: Int, upper: Real, i: int, shift: Real, blocks: Blocks, row: Real
) -> None:
    """Fit internal region i's own row under a shift; a pinned root keeps its first cell."""
    columns = noisy.shape[1]
    region = layout.internal[i]
    pinned = 1 if i == 0 and layout.root_total >= 0 else 0
    row[0] = layout.root_total
    blocks.counts[i] = 0
    blocks.edges[i, 0] = 0
    if pinned < columns:
        position, height = np.empty(columns + 1, np.int64), np.empty(columns + 1)
        first, last = fit_row(
            noisy[region, pinned:], shift[pinned:], upper[region], position, height
        )
        write_fit(upper[region], first, last, position, height, row[pinned:])
        keep_blocks(blocks, i, first, last, position, pinned)


@njit(cache=True)
def _internal_row(
    layout: Layout,
    noisy: Int,
    upper: Real,
    multipliers: Real,
    i: int,
    shift: Real,
    blocks: Blocks,
    row: Real,
) -> None:
    """Write x_i, fitted where the region is held."""
    above = layout.above[i]
    for k in range(noisy.shape[1]):
        pull = multipliers[above, k] if above >= 0 else 0.0
        shift[k] = (pull - multipliers[i, k]) * layout.stiffness[i]
    if layout.held[i]:
        _fit_internal(layout, noisy, upper, i, shift, blocks, row)
    else:
        for k in range(noisy.shape[1]):
            row[k] = noisy[layout.internal[i], k] + shift[k]
        if i == 0 and layout.root_total >= 0:
            row[0] = layout.root_total


@njit(cache=True)
def write_internal(
    layout: Layout, noisy: Int, upper: Real, multipliers: Real, blocks: Blocks, values: Real
) -> None:
    """Write the internal regions' rows into the whole table."""
    shift = np.empty(noisy.shape[1])
    for i in range(len(layout.internal)):
        row = values[layout.internal[i]]
        _internal_row(layout, noisy, upper, multipliers, i, shift, blocks, row)


@njit(cache=True)
def guess(layout: Layout, noisy: Int, upper: Real, blocks: Blocks, multipliers: Real) -> None:
    """First multipliers: those that take each region's own row, from the root down, to its fit.

    Were every region much heavier than its children, these would be optimal. A held region's
    fit needs no multipliers.
    """
    columns = noisy.shape[1]
    shift, row = np.empty(columns), np.empty(columns)
    multipliers[:] = 0.0
    for i in range(len(layout.internal)):
        if layout.held[i]:
            continue
        # λ_i is still zero, so the fit is that of n_i + λ_p / w_i.
        above = layout.above[i]
        for k in range(columns):
            shift[k] = multipliers[above, k] * layout.stiffness[i] if above >= 0 else 0.0
        _fit_internal(layout, noisy, upper, i, shift, blocks, row)
        for k in range(columns):
            excess = noisy[layout.internal[i], k] + shift[k] - row[k]
            multipliers[i, k] = excess / layout.stiffness[i]


@njit(cache=True)
def gradient(
    layout: Layout,
    noisy: Int,
    upper: Real,
    multipliers: Real,
    sums: Real,
    blocks: Blocks,
    out: Real,
) -> float:
    """F, given the pools' sums by task; its largest magnitude, or NaN if it is not finite."""
    regions, columns = multipliers.shape
    shift, row = np.empty(columns), np.empty(columns)
    out[:] = 0.0
    largest, unsound = 0.0, 0.0
    # Invariant: once i is done, out[i] lacks nothing: its internal children come after it in
    # `internal`, so it is walked from the last to the first.
    for i in range(regions - 1, -1, -1):
        _internal_row(layout, noisy, upper, multipliers, i, shift, blocks, row)
        for task in range(layout.pool_start[i], layout.pool_start[i + 1]):
            for k in range(columns):
                out[i, k] += sums[task, k]
        for k in range(columns):
            out[i, k] -= row[k]
            largest = max(largest, abs(out[i, k]))
            # A maximum passes over NaN, which must not look like convergence.
            unsound += out[i, k] - out[i, k]
        if i > 0:
            for k in range(columns):
                out[layout.above[i], k] += row[k]
    return largest + unsound


@njit(cache=True)
def hessian_product(
    layout: Layout,
    direction: Real,
    leaf_blocks: Blocks,
    blocks: Blocks,
    damping: Real,
    out: Real,
) -> float:
    """(H + damping · steepest) d; returns ⟨d, (H + damping · steepest) d⟩.

    One thread: a product takes under a millisecond for 3,000 regions × 1,000 sizes, and there
    are hundreds of them; two threads on a busy machine lose more at the barriers.
    """
    regions, columns = direction.shape
    prefix, changes = np.empty(columns + 1), np.empty(columns + 1)
    difference, flow = np.empty(columns), np.empty(columns)
    for i in range(regions):
        for k in range(columns):
            out[i, k] = damping[i, k // BAND] * layout.steepest[i] * direction[i, k]
        start, stop = layout.pool_leaves[i], layout.pool_leaves[i + 1]
        if stop > start:
            scale = layout.leaf_stiffness[i]
            add_averages(direction[i], scale, leaf_blocks, start, stop, prefix, changes, out[i])
        above = layout.above[i]
        for k in range(columns):
            difference[k] = direction[i, k] - (direction[above, k] if above >= 0 else 0.0)
            flow[k] = 0.0
        if layout.held[i]:
            add_averages(difference, layout.stiffness[i], blocks, i, i + 1, prefix, changes, flow)
        else:
            for k in range(columns):
                flow[k] = difference[k] * layout.stiffness[i]
            if i == 0 and layout.root_total >= 0:
                flow[0] = 0.0
        for k in range(columns):
            out[i, k] += flow[k]
        if above >= 0:
            for k in range(columns):
                out[above, k] -= flow[k]
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
def adapt_damping(
    layout: Layout, new_gradient: Real, unsolved: Real, step: Real, damping: Real
) -> None:
    """Set each band's damping to the curvature that the full step met and H did not foresee.

    The linear system left `unsolved` = −F − (H + damping · steepest) d, so the unforeseen
    change F(λ + d) − F(λ) − H d is F(λ + d) + unsolved + damping · steepest · d. As a share of
    the steepest possible it is in [0, 1] when the step is in one band; there, damping by it
    would have made the step right.
    """
    regions, columns = step.shape
    for i in range(regions):
        for band in range(damping.shape[1]):
            damped = damping[i, band] * layout.steepest[i]
            unforeseen, length = 0.0, 0.0
            for k in range(band * BAND, min((band + 1) * BAND, columns)):
                d = step[i, k]
                unforeseen += (new_gradient[i, k] + unsolved[i, k] + damped * d) * d
                length += d * d
            met = unforeseen / (layout.steepest[i] * length) if length > 0 else 0.0
            decayed = max(damping[i, band] * DAMPING_DECAY, LEAST_DAMPING)
            damping[i, band] = max(min(met, 1.0), decayed)
