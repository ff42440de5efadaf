"""Controlled rounding: integers close to a projected table that meet every constraint exactly.

From the root down, and within a region's children from the largest size down, the integers of
the children at size k solve, exactly,

    minimise   Σ_c (x_c − y_c,k)² + COUNTS (x_c − x_c,k+1 − (y_c,k − y_c,k+1))²
    subject to x_c,k+1 ≤ x_c ≤ G_c,   Σ_c x_c = the parent's integer at k

over integers x_c, given those at k + 1 (zero beyond N). The second term is about the counts of
size k: without it neighbouring sizes are rounded each its own way, which costs counts some percent
where there is next to no noise. It always has a solution: the parent's row does not
increase with k, so the lower bounds sum to at most its entry, and the upper bounds sum to the
parent's own, which its entry respects. Rounding each number up or down would not do: once the
parent is rounded, its children's real numbers no longer add up to it, and such a rounding may
not exist (children (2, 1) and (¾, ½) under the parent (2, 2)).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.isotonic import isotonic_real, read_only
from pgsr_core.solvers.projection.layout import (
    ProjectionInputError,
    checked_groups,
    checked_table,
)

Int = NDArray[np.int64]
Real = NDArray[np.float64]

# Above this, a double cannot tell a number from the next half.
LARGEST_EXACT = 2**50
# What closeness of a count is worth, beside that of a cumulative count. With 1 the latter suffer
# more than the former gain; docs/solvers.md says on what it was tried.
COUNTS = 1 / 3
CARRIED = COUNTS / (1 + COUNTS)


def round_consistently(
    tree: RegionTree, values: Real, *, groups: int, groups_by_region: Int | None
) -> Int:
    """Integers close to `values` that are consistent, monotone and bounded, exactly.

    The root's row is the closest non-increasing row of integers within [0, G], with c_1 = G
    where totals are not public; children follow as this module says. Nothing is asked of
    `values`: a table that is off by its residual, or by anything, still gives exact integers.

    Args:
        tree: the region tree.
        values: regions × N real cumulative counts from the top.
        groups: G, the number of groups in all.
        groups_by_region: the public number of groups of each region, or None.

    Raises:
        ProjectionInputError: shapes or totals do not fit the tree, or numbers are too large.
    """
    checked_table(tree, values, np.float64)
    upper = checked_groups(tree, groups, groups_by_region)
    targets = read_only(np.ascontiguousarray(values, dtype=np.float64))
    if groups > LARGEST_EXACT or not (np.abs(targets) <= LARGEST_EXACT).all():
        raise ProjectionInputError(
            f"numbers to round must be finite and within ±{LARGEST_EXACT}. "
            f"Remedy: check the measurements."
        )
    rounded = np.zeros(targets.shape, dtype=np.int64)
    rounded[0] = _root_row(targets[0], groups, pinned=groups_by_region is None)
    _round_descendants(targets, upper, read_only(tree.first_child), rounded)
    return rounded


def _root_row(row: Real, groups: int, *, pinned: bool) -> Int:
    """The closest non-increasing integers: the isotonic fit, rounded half up (see isotonic)."""
    fitted = np.full(len(row), groups, dtype=np.int64)
    # A pinned c_1 is at the upper bound of the rest, so it does not bind them.
    free = 1 if pinned else 0
    fitted[free:] = np.floor(isotonic_real(row[None, free:], upper=float(groups)) + 0.5)[0]
    return fitted


@njit(cache=True)
def _round_descendants(targets: Real, upper: Int, first_child: Int, rounded: Int) -> None:
    """Round everything below the root; regions are breadth first, so parents are final first.

    One thread: the work is a small part of the projection's, and comes in many small families.
    """
    for region in range(targets.shape[0]):
        start, stop = first_child[region], first_child[region + 1]
        if stop > start:
            _round_family(
                targets[start:stop], upper[start:stop], rounded[region], start, rounded[start:stop]
            )


@njit(cache=True)
def _round_family(targets: Real, upper: Int, totals: Int, name: int, rounded: Int) -> None:
    """Children × sizes integers under the parent's row of totals, largest size first."""
    children, columns = targets.shape
    low = np.zeros(children, dtype=np.int64)
    carried = np.zeros(children)
    goal = np.empty(children)
    nearest = np.empty(children, dtype=np.int64)
    cost = np.empty(children)
    order = np.empty(children, dtype=np.int64)
    # Invariant: `low` is the column at k + 1, so Σ low = totals[k + 1] ≤ totals[k] ≤ Σ upper, and
    # `carried` is CARRIED of what it is above its targets. Completing the square, the objective is
    # (1 + COUNTS) Σ (x − goal)² and a constant.
    for k in range(columns - 1, -1, -1):
        for c in range(children):
            goal[c] = targets[c, k] + carried[c]
            nearest[c] = np.int64(np.floor(goal[c] + 0.5))
        shift = _common_shift(nearest, low, upper, totals[k])
        eligible, missing = 0, totals[k]
        for c in range(children):
            moved = nearest[c] + shift
            x = min(max(moved, low[c]), upper[c])
            missing -= x
            rounded[c, k] = x
            if low[c] <= moved < upper[c]:
                # One more costs 2(x − goal) + 1, which is in (2·shift, 2·shift + 2] here and above
                # it for children held up by their lower bound: so at most one each, cheapest
                # first, is optimal (marginal allocation, Fox 1966).
                cost[c] = x - goal[c]
                order[eligible] = c
                eligible += 1
        _cheapest_first(order[:eligible], cost, name * columns + k, missing)
        for j in range(missing):
            rounded[order[j], k] += 1
        for c in range(children):
            low[c] = rounded[c, k]
            carried[c] = CARRIED * (rounded[c, k] - targets[c, k])


@njit(cache=True)
def _shifted_sum(nearest: Int, low: Int, upper: Int, shift: int) -> int:
    total = np.int64(0)
    for c in range(len(nearest)):
        total += min(max(nearest[c] + shift, low[c]), upper[c])
    return int(total)


@njit(cache=True)
def _common_shift(nearest: Int, low: Int, upper: Int, total: int) -> int:
    """The largest shift t of a bracket with S(t) ≤ total ≤ S(t + 1), S the clipped sum.

    S does not decrease with t, is Σ low far down and Σ upper far up. Consistent targets need a
    shift of −1 or 0, so the bracket grows from there.
    """
    below, step = np.int64(0), np.int64(1)
    while _shifted_sum(nearest, low, upper, below) > total:
        below -= step
        step *= 2
    above = below + 1
    step = np.int64(1)
    while _shifted_sum(nearest, low, upper, above) < total:
        below = above
        above += step
        step *= 2
    # Invariant: S(below) ≤ total ≤ S(above).
    while above - below > 1:
        middle = (below + above) // 2
        if _shifted_sum(nearest, low, upper, middle) <= total:
            below = middle
        else:
            above = middle
    return int(below)


@njit(cache=True)
def _comes_before(left: int, right: int, cost: Real, salt: int) -> bool:
    """Cheaper first; equal costs in an order that favours no child over all sizes and families."""
    if cost[left] != cost[right]:
        return bool(cost[left] < cost[right])
    return bool(_scramble(left, salt) < _scramble(right, salt))


@njit(cache=True)
def _scramble(child: int, salt: int) -> np.uint64:
    """A fixed hash (the finaliser of SplitMix64); one-to-one in the child for each salt."""
    z = np.uint64(child) + np.uint64(salt) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True)
def _cheapest_first(order: Int, cost: Real, salt: int, count: int) -> None:
    """Rearrange `order` so that its first `count` children are the cheapest (quickselect)."""
    first, last = 0, len(order) - 1
    # Invariant: entries before `first` precede, entries after `last` follow all in between,
    # and the boundary at `count` lies in first..last + 1.
    while first < count <= last:
        pivot = order[(first + last) // 2]
        i, j = first, last
        while i <= j:
            while _comes_before(order[i], pivot, cost, salt):
                i += 1
            while _comes_before(pivot, order[j], cost, salt):
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        # Now first..j precede or equal the pivot, i..last follow or equal it.
        if count <= j:
            last = j
        elif count >= i:
            first = i
        else:
            return
