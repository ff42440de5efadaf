"""The estimate of a whole table, from the root down.

Unbiased least squares first. Then the root's row is smoothed over bands of neighbouring sizes,
twice: how alike its children are to it is learnt from a first attempt, and tells of it in turn.
Each region's row is drawn towards its share of its parent's, as far as the level's own moments
say that regions of that level are alike; what siblings then lack of their parent's row is spread
in proportion to what is left of their variance. All is a pure function of the measurements and
public facts, with every sum in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.isotonic import isotonic_real, read_only
from pgsr_core.solvers.shrinkage.model import (
    SIGNIFICANT,
    SQUARE_OF_CELL,
    Level,
    Shares,
    bands,
    fit_shares,
    overdispersion,
    settle_leeway,
    shrink_shares,
)
from pgsr_core.solvers.shrinkage.parts import root_and_parts
from pgsr_core.solvers.shrinkage.root import smooth_root
from pgsr_core.solvers.shrinkage.smoother import Scratch, smooth_row
from pgsr_core.solvers.tree_least_squares import TreeFit, gather, hand_down

Int = NDArray[np.int64]
Real = NDArray[np.float64]


def shrink(
    tree: RegionTree,
    measured: Int,
    *,
    groups: int,
    groups_by_region: Int | None,
    scales: Sequence[float],
) -> Real:
    """Estimate the true cumulative counts from noisy ones, one column for each k = 1..N.

    Children's rows add up to their parent's, up to rounding errors. Rows of leaves need not be
    monotone or within bounds: that is for the projection.

    Args:
        tree: the region tree.
        measured: regions × N noisy integers.
        groups: G, the number of groups in all.
        groups_by_region: the public number of groups of each region, or None.
        scales: scale of the double-geometric noise of each level, root first. Its variance is
            taken to be 2 scale², that of Laplace noise: above the truth, by at most 1/6.
    """
    variances = [2.0 * scale * scale for scale in scales]
    fit = gather(tree, measured, level_variances=variances)
    parts = slice(1, int(tree.level_start[2])) if tree.levels > 1 else slice(1, 1)
    seen = TreeFit(fit.values[parts].copy(), fit.variance[parts].copy())
    hand_down(tree, fit)
    values, totals = fit.values, None
    if groups_by_region is not None:
        totals = groups_by_region.astype(np.float64)
    shares = Shares(np.ones(tree.regions), np.zeros(tree.regions), np.ones(tree.regions))
    _smooth_root(fit, groups, totals)
    if tree.levels > 1:
        # What the children are like is known only now, and then tells of the root.
        level = _level(tree, fit, 1, groups, totals)
        _expect_shares(level, values, totals, shares)
        found = overdispersion(level, values, shares)
        own = measured[0].astype(np.float64)
        values[0], fit.variance[0] = root_and_parts(level, own, variances[0], *seen, shares, found)
        _smooth_root(fit, groups, totals)
    for depth in range(1, tree.levels):
        level = _level(tree, fit, depth, groups, totals)
        _expect_shares(level, values, totals, shares)
        found = overdispersion(level, values, shares)
        last_steps = _empty_steps(level, values, totals, shares)
        _draw_level(level, values, shares, found, last_steps)
    return values


def _smooth_root(fit: TreeFit, groups: int, totals: Real | None) -> None:
    """Smooth the root's row over its sizes, in place."""
    known = 1 if totals is None else 0  # the first c_k, k = 1..N, that is not known to be G
    row, noise = fit.values[0], float(fit.variance[0])
    row[:known] = groups
    row[known:] = smooth_root(row[known:], noise=noise, total=float(groups))


def _level(tree: RegionTree, fit: TreeFit, depth: int, groups: int, totals: Real | None) -> Level:
    """A level of the tree, below one that is settled."""
    above, start, stop = (int(place) for place in tree.level_start[depth - 1 : depth + 2])
    bound = float(groups) if totals is None else totals[above:start]
    return Level(
        above,
        start,
        stop,
        parent=read_only(tree.parent),
        shapes=isotonic_real(fit.values[above:start], upper=bound),
        first_child=read_only(tree.first_child),
        noise=fit.variance,
        band=bands(fit.values.shape[1]),
    )


def _expect_shares(level: Level, values: Real, totals: Real | None, shares: Shares) -> None:
    """Shares by the number of groups where it is public, else as the rows say."""
    if totals is None:
        fit_shares(level, values, shares)
        shrink_shares(level, shares)
    else:
        regions = slice(level.start, level.stop)
        parents = totals[level.parent[regions]]
        shares.share[regions] = totals[regions] / np.maximum(parents, 1.0)
    settle_leeway(level, shares)


def _empty_steps(level: Level, values: Real, totals: Real | None, shares: Shares) -> Real:
    """Variance of the number of empty units of each region of the level; −1 where not known of."""
    regions = slice(level.start, level.stop)
    if totals is None:
        return np.full(level.stop - level.start, -1.0)
    above, noise, share = level.parent[regions], level.noise[regions], shares.share[regions]
    expected = share * (totals[above] - level.shapes[above - level.above, 0])
    counted, part = (1.0 - share) * expected, shares.leeway[regions] * expected * expected
    unlike = totals[regions] - values[regions, 0] - expected
    # fsum is exact, hence the same whatever the order and the machine.
    error = math.sqrt(SQUARE_OF_CELL * math.fsum(noise * noise))
    beyond = math.fsum(unlike * unlike - noise - counted) - SIGNIFICANT * error
    square = math.fsum(part)
    found = max(beyond, 0.0) / square if square > 0.0 else 0.0
    steps: Real = counted + found * part
    return steps


@njit(cache=True)
def _draw_level(level: Level, values: Real, shares: Shares, found: Real, last_steps: Real) -> None:
    """Smooth every row of the level around its share of its parent's, and settle the sums."""
    columns = values.shape[1]
    scratch = Scratch(np.empty(columns), np.empty(columns), np.empty(columns))
    seen, steps, missing, total = np.empty((4, columns))
    for region in range(level.above, level.start):
        first, last = level.first_child[region], level.first_child[region + 1]
        shape, left = level.shapes[region - level.above], np.empty((last - first, columns))
        missing[:] = values[region]
        total[:] = 0.0
        for child in range(first, last):
            row, own, share = values[child], left[child - first], shares.share[child]
            for k in range(columns):
                groups = shape[k] - (shape[k + 1] if k < columns - 1 else 0.0)
                expected = share * groups
                seen[k] = row[k] - share * shape[k]
                # A share that is off moves the whole row: here as steps with the same sum.
                steps[k] = (1.0 - share) * expected
                steps[k] += found[level.band[k]] * shares.leeway[child] * expected * expected
                steps[k] += shares.doubt[child] * groups * shape[0]
            last_step = last_steps[child - level.start]
            smooth_row(seen, steps, level.noise[child], last_step, scratch, row, own)
            for k in range(columns):
                row[k] += share * shape[k]
                missing[k] -= row[k]
                total[k] += own[k]
        for child in range(first, last):
            for k in range(columns):
                part = left[child - first, k] / total[k] if total[k] > 0.0 else shares.share[child]
                values[child, k] += part * missing[k]
