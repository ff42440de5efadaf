"""Proof of optimality in one pass, independent of the solver: it shares the tree and nothing else.

One unit can move from a child of a node to another child, or from a size to another size. With

    up(r) = w (2 (x − n) + 1) + min up of a child,
    down(r) = w (1 − 2 (x − n)) + min down of a child

(down infinite at x = 0) the cheapest such move under a node costs min up + min down over its
children. The objective is separable and convex on a laminar family, hence M-convex, and a feasible
table is a global optimum exactly when no such move has a negative cost (Murota 2003, Theorem 6.26).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from numba import njit
from numpy.typing import NDArray

from pgsr_core.errors import PgsrError
from pgsr_core.hierarchy import RegionTree

Int = NDArray[np.int64]

TABLE_DIMENSIONS = 2
NEVER = 2**62
# Columns that are checked in one walk: long enough to stream rows, short enough for the cache.
COLUMNS = 2048
# Differences below this have squares whose sum over COLUMNS columns fits 64 bits.
SMALL = 2**25
LOW_BITS = 2**32


class CertificateInputError(PgsrError):
    """The arguments do not describe a solution on the tree."""


class CertificateOverflow(PgsrError):
    """A marginal cost might not fit 64 bits."""

    def __init__(self, *, largest: int, groups: int, weights: int) -> None:
        self.largest = largest
        self.groups = groups
        self.weights = weights
        super().__init__(
            f"noisy counts up to {largest} in magnitude, {groups} groups and weights that sum to "
            f"{weights} could overflow the certificate's 64 bits. Remedy: divide the weights by a "
            "common factor, or check the measurements."
        )


@dataclass(frozen=True)
class OptimalityCertificate:
    """What was proved of a table.

    Attributes:
        feasible: non-negative, children sum to parents, the root sums to G.
        optimal: feasible, and no exchange of one unit pays.
        worst_exchange: the least min up + min down under a node. Negative, it is the change of
            the objective by the exchange that pays most; None where the table is not feasible, or
            no unit can move.
        objective: Σ_r w Σ_s (x − n)², exactly.
    """

    feasible: bool
    optimal: bool
    worst_exchange: int | None
    objective: int


class _Findings(NamedTuple):
    """Of one walk; all numbers hold only if the magnitudes allow the arithmetic."""

    consistent: bool
    worst: int
    up: int
    down: int
    negative: bool
    counts_union: int
    noisy_union: int
    gap_union: int


def certify(
    tree: RegionTree,
    noisy: NDArray[np.int64],
    counts: NDArray[np.int64],
    *,
    groups: int,
    level_weights: Sequence[int] | None = None,
) -> OptimalityCertificate:
    """Check that ``counts`` is feasible, and that it is the optimum for ``noisy``.

    Args:
        tree: the region tree.
        noisy: regions × sizes, the measurements.
        counts: regions × sizes, the table to check.
        groups: G, what the root must sum to.
        level_weights: a positive integer for each level, root first; None means all 1.

    Raises:
        CertificateOverflow: marginal costs might need more than 64 bits.
        CertificateInputError: shapes or weights do not fit the tree.
    """
    target, table = _as_table(tree, noisy), _as_table(tree, counts)
    weights = (
        [1] * tree.levels if level_weights is None else list(map(operator.index, level_weights))
    )
    if target.shape != table.shape or len(weights) != tree.levels or min(weights) < 1:
        raise CertificateInputError(
            "noisy counts and counts must have the same shape, and weights be positive, one for "
            "each level. Remedy: pass the tables and weights that the solver was given."
        )
    total = operator.index(groups)
    walks, squares = _walk_all(tree, target, table, weights)
    gap = 0
    for walk in walks:
        gap |= walk.gap_union
    if gap < SMALL:
        parts = squares.sum(axis=0).tolist()
        sums = [high * LOW_BITS + low for high, low in parts]
    else:
        sums = _exact_squares(tree, target, table)
    objective = sum(weight * part for weight, part in zip(weights, sums, strict=True))
    if not _is_feasible(tree, table, walks, total):
        return OptimalityCertificate(False, False, None, objective)
    _refuse_overflow(target, walks, total, weights)
    between_sizes = min(walk.up for walk in walks) + min(walk.down for walk in walks)
    worst = min(between_sizes, *(walk.worst for walk in walks))
    movable = worst < NEVER // 2
    return OptimalityCertificate(
        True, not movable or worst >= 0, worst if movable else None, objective
    )


def _as_table(tree: RegionTree, values: NDArray[np.int64]) -> Int:
    table = np.asarray(values)
    if (
        table.ndim != TABLE_DIMENSIONS
        or table.shape[0] != tree.regions
        or not np.issubdtype(table.dtype, np.signedinteger)
    ):
        raise CertificateInputError(
            f"a table must hold signed integers in {tree.regions} rows, one for each region, got "
            f"{table.dtype} of shape {table.shape}. Remedy: pass a table of regions × sizes."
        )
    return np.ascontiguousarray(table, dtype=np.int64)


def _walk_all(
    tree: RegionTree, noisy: Int, counts: Int, weights: list[int]
) -> tuple[list[_Findings], Int]:
    starts = range(0, noisy.shape[1], COLUMNS)
    squares = np.zeros((len(starts), tree.levels, 2), dtype=np.int64)
    # Weights beyond 64 bits cannot be walked with; the bound refuses them afterwards.
    small = np.array([min(weight, NEVER) for weight in weights], dtype=np.int64)

    def walk(part: int) -> _Findings:
        start = starts[part]
        stop = min(start + COLUMNS, noisy.shape[1])
        found = _walk(tree.first_child, small, noisy, counts, start, stop, squares[part])
        return _Findings(*found)

    parts, threads = range(len(starts)), numba.get_num_threads()
    if min(len(parts), threads) == 1:  # starting a thread takes longer than a small table
        return [walk(part) for part in parts], squares
    with ThreadPoolExecutor(max_workers=threads) as workers:
        return list(workers.map(walk, parts)), squares


def _is_feasible(tree: RegionTree, counts: Int, walks: list[_Findings], groups: int) -> bool:
    """Counts in 0..G whose children sum to their parents and whose root sums to G.

    A count above G is not feasible, so that sums of children are only relied on where at most
    regions × G is reached.
    """
    union = 0
    for walk in walks:
        union |= walk.counts_union
    if any(walk.negative for walk in walks) or union >= 2 * max(groups, 1):
        return False
    if sum(counts[0].tolist()) != groups:
        return False
    if 2 * union * tree.regions >= NEVER:
        return _sums_exactly(tree, counts)
    return all(walk.consistent for walk in walks)


def _sums_exactly(tree: RegionTree, counts: Int) -> bool:
    for region in np.flatnonzero(~tree.is_leaf).tolist():
        children = counts[tree.first_child[region] : tree.first_child[region + 1]]
        if children.astype(object).sum(axis=0).tolist() != counts[region].tolist():
            return False
    return True


def _exact_squares(tree: RegionTree, noisy: Int, counts: Int) -> list[int]:
    """Σ (x − n)² of each level in unbounded integers: slow, for numbers that need it."""
    sums = [0] * tree.levels
    for region, level in enumerate(tree.level.tolist()):
        gaps = counts[region].astype(object) - noisy[region].astype(object)
        sums[level] += int((gaps * gaps).sum())
    return sums


def _refuse_overflow(noisy: Int, walks: list[_Findings], groups: int, weights: list[int]) -> None:
    union = 0
    for walk in walks:
        union |= walk.noisy_union
    if sum(weights) * (2 * (groups + union + 1) + 1) >= NEVER // 4:
        largest = max(int(noisy.max()), -int(noisy.min()))
        if sum(weights) * (2 * (groups + largest) + 1) >= NEVER // 4:
            raise CertificateOverflow(largest=largest, groups=groups, weights=sum(weights))


@njit(cache=True, nogil=True)
def _walk(
    first_child: Int,
    weights: Int,
    noisy: Int,
    counts: Int,
    start: int,
    stop: int,
    squares: Int,
) -> tuple[bool, int, int, int, bool, int, int, int]:
    """Walk the tree depth first over columns ``start : stop``, all of them side by side."""
    width, height = stop - start, len(weights) + 1
    up, down = np.full((height, width), NEVER), np.full((height, width), NEVER)
    least, most = np.full((height, width), NEVER), np.full((height, width), -NEVER)
    total = np.zeros((height, width), np.int64)
    path, cursor = np.zeros(height, np.int64), np.zeros(height, np.int64)
    unions = np.zeros(4, np.int64)
    worst, wrong = NEVER, 0
    path[0], cursor[0] = 0, first_child[0]
    depth = 0
    # Invariant: path[: depth + 1] are the open regions; row d + 1 of up, down, least, most and
    # total has taken in the finished children of path[d].
    while depth >= 0:
        region = path[depth]
        child = cursor[depth]
        if child < first_child[region + 1]:
            cursor[depth] += 1
            if first_child[child] == first_child[child + 1]:
                below = depth + 1
                square = _take_leaf(
                    noisy[child, start:stop],
                    counts[child, start:stop],
                    least[below],
                    most[below],
                    total[below],
                    unions,
                )
                squares[below, 0] += square // LOW_BITS
                squares[below, 1] += square % LOW_BITS
            else:
                depth += 1
                path[depth], cursor[depth] = child, first_child[child]
            continue
        weight = weights[depth]
        leaf_weight = weights[depth + 1] if depth + 1 < len(weights) else 1
        leaf = first_child[region] == first_child[region + 1]
        pays, square, broken = _close_region(
            noisy[region, start:stop],
            counts[region, start:stop],
            weight,
            leaf_weight,
            leaf,
            up[depth : depth + 2],
            down[depth : depth + 2],
            least[depth + 1],
            most[depth + 1],
            total[depth : depth + 2],
            unions,
        )
        squares[depth, 0] += square // LOW_BITS
        squares[depth, 1] += square % LOW_BITS
        worst, wrong = min(worst, pays), wrong | broken
        depth -= 1
    return (
        wrong == 0,
        worst,
        up[0].min(),
        down[0].min(),
        unions[0] < 0,
        unions[1],
        unions[2],
        unions[3],
    )


@njit(cache=True)
def _take_leaf(noisy: Int, counts: Int, least: Int, most: Int, total: Int, unions: Int) -> int:
    """Take a leaf into its parent's rows: smallest and largest x − n (of those above 0), and x."""
    square, sign, of_counts, of_noisy, of_gap = 0, 0, 0, 0, 0
    for j in range(len(counts)):
        x, n = counts[j], noisy[j]
        gap = x - n
        sign |= x
        of_counts |= x
        of_noisy |= n ^ (n >> 63)
        of_gap |= gap ^ (gap >> 63)
        narrow = np.int64(np.int32(gap))
        square += int(narrow * narrow)
        least[j] = min(least[j], gap)
        most[j] = max(most[j], gap if x > 0 else most[j])
        total[j] += x
    _note(unions, sign, of_counts, of_noisy, of_gap)
    return square


@njit(cache=True)
def _note(unions: Int, sign: int, of_counts: int, of_noisy: int, of_gap: int) -> None:
    unions[0] |= sign
    unions[1] |= of_counts
    unions[2] |= of_noisy
    unions[3] |= of_gap


@njit(cache=True)
def _close_region(
    noisy: Int,
    counts: Int,
    weight: int,
    leaf_weight: int,
    leaf: bool,
    up: Int,
    down: Int,
    least: Int,
    most: Int,
    total: Int,
    unions: Int,
) -> tuple[int, int, int]:
    """All children are in: check their sum, price their cheapest exchange, answer the parent.

    Row 0 of up, down and total is the parent's, row 1 the region's own, which is emptied.
    """
    square, sign, of_counts, of_noisy, of_gap = 0, 0, 0, 0, 0
    worst, broken = NEVER, 0
    for j in range(len(counts)):
        x, n = counts[j], noisy[j]
        gap = x - n
        sign |= x
        of_counts |= x
        of_noisy |= n ^ (n >> 63)
        of_gap |= gap ^ (gap >> 63)
        narrow = np.int64(np.int32(gap))
        square += int(narrow * narrow)
        more, less = up[1, j], down[1, j]
        if least[j] < NEVER:
            more = min(more, leaf_weight * (2 * least[j] + 1))
        if most[j] > -NEVER:
            less = min(less, leaf_weight * (1 - 2 * most[j]))
        if leaf:
            more, less = 0, 0 if x > 0 else NEVER
        else:
            broken |= total[1, j] ^ x
            if less < NEVER:
                worst = min(worst, more + less)
        up[0, j] = min(up[0, j], weight * (2 * gap + 1) + more)
        if less < NEVER:
            down[0, j] = min(down[0, j], weight * (1 - 2 * gap) + less)
        total[0, j] += x
        up[1, j], down[1, j] = NEVER, NEVER
        least[j], most[j], total[1, j] = NEVER, -NEVER, 0
    _note(unions, sign, of_counts, of_noisy, of_gap)
    return worst, square, broken
