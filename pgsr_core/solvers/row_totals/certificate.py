"""Proof of optimality in one pass: it shares the tree with the solver and nothing else.

The problem is a minimum-cost flow with convex costs, and a feasible table is a global optimum
exactly when every node of the network can be given an integer potential such that

    w (2 (x − n) − 1) ≤ φ(parent, s) − φ(r, s) ≤ w (2 (x − n) + 1)

for every cell (the first only where x > 0), a leaf having one potential for all sizes and the sink
above the root one as well (Ahuja, Magnanti and Orlin 1993, theorem 9.4; Murota 2003, section 9.4).
The proof is one potential for each leaf, its *price*. Given these, each size is a tree, and the
potentials that a node can have are an interval: the intersection of what its children allow. The
prices prove the table optimal if no interval is empty. Any other optimum has the same proof.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pgsr_core.errors import PgsrError
from pgsr_core.hierarchy import RegionTree

Int = NDArray[np.int64]

NEVER = 2**62
LARGEST = 2**60
TABLE_DIMENSIONS = 2
# Cells whose intervals are kept at a time.
ROOM = 2**20
WIDEST, NARROWEST = 512, 8


class PriceInputError(PgsrError):
    """The arguments do not describe a table with row totals, and prices, on the tree."""


class PriceOverflow(PgsrError):
    """An interval's ends might not fit 64 bits."""

    def __init__(self, *, largest: int, groups: int, weights: int, price: int) -> None:
        self.largest = largest
        self.groups = groups
        self.weights = weights
        self.price = price
        super().__init__(
            f"noisy counts up to {largest} in magnitude, {groups} groups, weights that sum to "
            f"{weights} and prices up to {price} could overflow the certificate's 64 bits. "
            "Remedy: divide the weights by a common factor, or check the measurements."
        )


@dataclass(frozen=True)
class PriceCertificate:
    """What was proved of a table.

    Attributes:
        feasible: non-negative, children sum to parents, leaves sum to their totals.
        optimal: feasible, and the prices prove that no table has a smaller objective.
        slack: length of the shortest interval of potentials, negative if one is empty; None where
            the table is not feasible.
        objective: Σ_r w Σ_s (x − n)², exactly.
    """

    feasible: bool
    optimal: bool
    slack: int | None
    objective: int


def certify(
    tree: RegionTree,
    noisy: NDArray[np.int64],
    counts: NDArray[np.int64],
    *,
    groups_by_region: NDArray[np.int64],
    prices: NDArray[np.int64],
    level_weights: Sequence[int] | None = None,
) -> PriceCertificate:
    """Check that ``counts`` is feasible, and that ``prices`` prove it the optimum for ``noisy``.

    Args:
        tree: the region tree.
        noisy: regions × sizes, the measurements.
        counts: regions × sizes, the table to check.
        groups_by_region: what each region must sum to.
        prices: one integer for each of ``tree.leaves``.
        level_weights: a positive integer for each level, root first; None means all 1.

    Raises:
        PriceOverflow: potentials might need more than 64 bits.
        PriceInputError: shapes or weights do not fit the tree.
    """
    target, table = _as_integers(tree, noisy), _as_integers(tree, counts)
    totals = np.asarray(groups_by_region)
    cost = np.asarray(prices)
    weights = (
        [1] * tree.levels if level_weights is None else list(map(operator.index, level_weights))
    )
    if (
        target.shape != table.shape
        or totals.shape != (tree.regions,)
        or cost.shape != (len(tree.leaves),)
        or len(weights) != tree.levels
        or min(weights) < 1
    ):
        raise PriceInputError(
            "noisy counts and counts must have the same shape, totals be one for each region, "
            "prices one for each leaf, and weights positive, one for each level. "
            "Remedy: pass the tables, prices and weights of the solver."
        )
    objective = _objective(tree, target, table, weights)
    if not _is_feasible(tree, table, totals):
        return PriceCertificate(False, False, None, objective)
    _refuse_overflow(target, int(totals[0]), weights, cost)
    slack = _shortest(tree, target, table, weights, cost.astype(np.int64))
    return PriceCertificate(True, slack >= 0, slack, objective)


def _as_integers(tree: RegionTree, values: NDArray[np.int64]) -> Int:
    table = np.asarray(values)
    if (
        table.ndim != TABLE_DIMENSIONS
        or table.shape[0] != tree.regions
        or not table.shape[1]
        or not np.issubdtype(table.dtype, np.signedinteger)
    ):
        raise PriceInputError(
            f"a table must hold signed integers in {tree.regions} rows, one for each region, got "
            f"{table.dtype} of shape {table.shape}. Remedy: pass a table of regions × sizes."
        )
    return np.ascontiguousarray(table, dtype=np.int64)


def _is_feasible(tree: RegionTree, counts: Int, totals: Int) -> bool:
    """Counts in 0..G that add up. With regions · G and sizes · G below 2^62, no sum overflows."""
    groups = int(totals[0])
    if counts.min() < 0 or int(counts.max()) > groups:
        return False
    if groups * max(counts.shape) >= NEVER:
        sums = [sum(row) for row in counts.tolist()]
        return sums == totals.tolist() and _sums_exactly(tree, counts)
    if not np.array_equal(counts.sum(axis=1), totals):
        return False
    inner = np.flatnonzero(~tree.is_leaf)
    if not len(inner):
        return True
    return bool(_adds_up(tree.first_child, inner, counts))


def _sums_exactly(tree: RegionTree, counts: Int) -> bool:
    for region in np.flatnonzero(~tree.is_leaf).tolist():
        children = counts[tree.first_child[region] : tree.first_child[region + 1]]
        if children.astype(object).sum(axis=0).tolist() != counts[region].tolist():
            return False
    return True


@njit(cache=True)
def _adds_up(first_child: Int, inner: Int, counts: Int) -> bool:
    rest = np.empty(counts.shape[1], np.int64)
    for region in inner:
        rest[:] = counts[region]
        for child in range(first_child[region], first_child[region + 1]):
            row = counts[child]
            for s in range(len(row)):
                rest[s] -= row[s]
        for s in range(len(rest)):
            if rest[s]:
                return False
    return True


def _objective(tree: RegionTree, noisy: Int, counts: Int, weights: list[int]) -> int:
    # One apart from the extremes themselves, which have no negative.
    largest = max(int(noisy.max()), -int(noisy.min())) + max(int(counts.max()), -int(counts.min()))
    if largest**2 * noisy.shape[1] < NEVER:
        squares = _squares(noisy, counts).tolist()
    else:
        squares = [
            sum((x - n) ** 2 for x, n in zip(row.tolist(), own.tolist(), strict=True))
            for row, own in zip(counts, noisy, strict=True)
        ]
    return sum(weights[level] * part for level, part in zip(tree.level, squares, strict=True))


@njit(cache=True)
def _squares(noisy: Int, counts: Int) -> Int:
    """Σ (x − n)² of each row."""
    sums = np.zeros(len(noisy), np.int64)
    for region in range(len(noisy)):
        own, row, total = noisy[region], counts[region], 0
        for s in range(len(own)):
            total += (row[s] - own[s]) * (row[s] - own[s])
        sums[region] = total
    return sums


def _refuse_overflow(
    noisy: Int, groups: int, weights: list[int], prices: NDArray[np.int64]
) -> None:
    largest = max(int(noisy.max()), -int(noisy.min()))
    price = max(int(prices.max()), -int(prices.min()))
    if sum(weights) * (2 * (groups + largest) + 1) + price >= LARGEST:
        raise PriceOverflow(largest=largest, groups=groups, weights=sum(weights), price=price)


def _shortest(tree: RegionTree, noisy: Int, counts: Int, weights: list[int], prices: Int) -> int:
    """The length of the shortest interval, over all nodes and the sink."""
    inner = tree.regions - len(tree.leaves)
    width = min(max(ROOM // max(inner, 1), NARROWEST), WIDEST)
    number = np.empty(tree.regions, np.int64)
    number[tree.leaves] = np.arange(len(tree.leaves))
    number[~tree.is_leaf] = np.arange(inner)
    weight = np.array(weights, dtype=np.int64)[tree.level]
    shortest, least, most = NEVER, -NEVER, NEVER
    for start in range(0, noisy.shape[1], width):
        stop = min(start + width, noisy.shape[1])
        found, low, high = _intersect(
            tree.parent, tree.is_leaf, number, weight, prices, noisy, counts, start, stop
        )
        shortest, least, most = min(shortest, found), max(least, low), min(most, high)
    # A table without groups leaves the sink unbounded from below.
    return min(shortest, most - least) if least > -NEVER else min(shortest, NEVER)


@njit(cache=True)
def _intersect(
    parent: Int,
    is_leaf: NDArray[np.bool_],
    number: Int,
    weight: Int,
    prices: Int,
    noisy: Int,
    counts: Int,
    start: int,
    stop: int,
) -> tuple[int, int, int]:
    """The shortest interval of a node, and the ends of the sink's, for columns ``start : stop``.

    Regions are numbered breadth first: in falling order, children come before their parents. A
    cell above 0 has a child above 0, so that no end is used before it is set.
    """
    inner, width = len(parent) - len(prices), stop - start
    low, high = np.full((inner + 1, width), -NEVER), np.full((inner + 1, width), NEVER)
    shortest = NEVER
    for region in range(len(parent) - 1, -1, -1):
        n, x, w = noisy[region, start:stop], counts[region, start:stop], weight[region]
        above = number[parent[region]] if region else inner
        lower, upper = low[above], high[above]
        if is_leaf[region]:
            price = prices[number[region]]
            for j in range(width):
                middle = price + 2 * w * (x[j] - n[j])
                lower[j] = max(lower[j], middle - w if x[j] > 0 else -NEVER)
                upper[j] = min(upper[j], middle + w)
            continue
        least, most = low[number[region]], high[number[region]]
        for j in range(width):
            gap = 2 * w * (x[j] - n[j])
            upper[j] = min(upper[j], most[j] + gap + w)
            if x[j] > 0:
                shortest = min(shortest, most[j] - least[j])
                lower[j] = max(lower[j], least[j] + gap - w)
    return shortest, low[inner].max(), high[inner].min()
