"""The published table algorithm for the tree program: a reference and a peer, not the product's.

For each size there is one copy of the region tree, and all roots hang under a dummy root whose
value is the number of groups G (Fioretto and Van Hentenryck 2019, "Differential Privacy of
Hierarchical Census Data: An Optimization Approach", sections 6 and 7). A node's cost table is

    τ(v) = w (v − n)² + φ(v),   φ(v) = min { Σ τ_c(x_c) : Σ x_c = v, x_c in D_c },   v in D,

over the truncated domain D = {n − δ .. n + δ}, clipped at 0, with δ = 3 ⌈2λ²⌉ for noise of
scale λ (footnote 2). Tables are convex (Lemma 5), so φ is a merge of the children's slopes: from
the sum of the children's cheapest values one unit at a time is given to the child with the least
slope, or taken from the child with the greatest (equation 4), with a heap over the children:
O(|D| log m) for a node with m children (Theorem 3).

Truncated domains can exclude every solution. That is an answer, not an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree

Int = NDArray[np.int64]
TOTAL = (-1, -1)
"""Stands for the dummy root in `TableSolution.infeasible`."""

KEPT_CELLS = 1 << 26
"""Table entries kept between the sweeps up and down (512 MiB); beyond, a size is built twice."""


@dataclass(frozen=True)
class TableSolution:
    """The optimum over the truncated domains, or where they leave no solution.

    Attributes:
        counts: the table (regions × sizes), None where the domains exclude every solution.
        infeasible: (region, column) of every node whose own domain is empty or misses all sums
            of its children's; `TOTAL` where G is out of reach of the roots. A node above an
            infeasible one is not listed.
        cells: table entries built.
    """

    counts: Int | None
    infeasible: tuple[tuple[int, int], ...]
    cells: int


def solve_by_tables(
    tree: RegionTree,
    noisy: Int,
    *,
    groups: int,
    scales: Sequence[float],
    level_weights: Sequence[int] | None = None,
    domain_radius: Sequence[int] | None = None,
    leaf_tables: bool = True,
) -> TableSolution:
    """Minimise Σ w (x − noisy)² over the tree by cost tables with truncated domains.

    Memory is bounded: one size's tables at a time, one slope table for every root, and other
    inner tables only up to `KEPT_CELLS`. Equal costs go to the earlier sibling (and size).

    Args:
        tree: the region tree.
        noisy: noisy counts (regions × sizes).
        groups: G, the sum of the root's row in the result.
        scales: noise scale of each level, root first.
        level_weights: positive weight of each level; all one by default.
        domain_radius: δ of each level in place of 3 ⌈2λ²⌉.
        leaf_tables: build the tables of the leaves too, as published; otherwise they are read
            off their formula: the same result for less work.
    """
    radii = _radii(scales) if domain_radius is None else list(domain_radius)
    weights = [1] * tree.levels if level_weights is None else list(level_weights)
    _check_lengths(tree, noisy, radii, weights)
    layout = _Layout.of(tree, radii=radii, weights=weights)
    return _Sweeps(layout, np.ascontiguousarray(noisy.T), leaf_tables).solve(groups)


def _radii(scales: Sequence[float]) -> list[int]:
    return [3 * math.ceil(2 * scale * scale) for scale in scales]


def _check_lengths(tree: RegionTree, noisy: Int, radii: list[int], weights: list[int]) -> None:
    if noisy.shape[:1] != (tree.regions,) or noisy.ndim != 2:  # noqa: PLR2004 - rows and columns
        raise ValueError(
            f"noisy must have one row for each of {tree.regions} regions, got shape {noisy.shape}; "
            "pass the table of the same tree"
        )
    for name, values, least in (("domain radius", radii, 0), ("weight", weights, 1)):
        if len(values) != tree.levels or min(values) < least:
            raise ValueError(
                f"there must be one {name} of at least {least} for each of {tree.levels} levels, "
                f"got {values}; give one for each level, root first"
            )


@dataclass(frozen=True)
class _Layout:
    """Where each node's slopes lie in one size's buffer, and what does not depend on the size.

    A table of |D| values is stored as its |D| − 1 slopes. Inner nodes and the root have a place
    of their own in ``[0, kept)``; the leaves below a node share the rest of the buffer with the
    leaves below every other, because they are needed only while their parent is built.
    """

    first_child: Int
    radius: Int
    weight: Int
    own_place: Int
    """Offset of each node's slopes; −1 for a leaf below the root."""
    place: Int
    """Offset of each node's slopes, leaves included."""
    kept: int
    length: int

    @classmethod
    def of(cls, tree: RegionTree, *, radii: list[int], weights: list[int]) -> _Layout:
        radius = np.array(radii, dtype=np.int64)[tree.level]
        shared = tree.is_leaf.copy()
        shared[0] = False
        widths = 2 * radius
        own_widths = np.where(shared, 0, widths)
        own_starts = np.cumsum(own_widths) - own_widths
        kept = int(own_widths.sum())
        # Siblings are contiguous: a running sum less its value at the first sibling is the place
        # among the leaves of the family.
        leaf_widths = widths - own_widths
        leaf_starts = np.cumsum(leaf_widths) - leaf_widths
        first_sibling = np.append(0, tree.first_child[tree.parent[1:]])
        place = np.where(shared, kept + leaf_starts - leaf_starts[first_sibling], own_starts)
        return cls(
            first_child=tree.first_child,
            radius=radius,
            weight=np.array(weights, dtype=np.int64)[tree.level],
            own_place=np.where(shared, -1, own_starts),
            place=place,
            kept=kept,
            length=int((place + widths).max()),
        )


class _Tables(NamedTuple):
    """One size's tables: the state that the kernels share."""

    place: Int
    """Offset of a node's slopes; −1 for a leaf whose slopes are read off (d1)."""
    low: Int
    high: Int
    """Domains; `low > high` marks a node without a table."""
    best: Int
    """Cheapest value of each table, the least of equals; for a node without one, whose fault."""
    slopes: Int
    weight: Int
    noisy: Int


class _Sweeps:
    """The bottom-up and top-down phases over all sizes."""

    def __init__(self, layout: _Layout, noisy: Int, leaf_tables: bool) -> None:
        self.layout = layout
        self.noisy = noisy
        self.build_place = layout.place if leaf_tables else layout.own_place
        self.buffer = np.empty(layout.length, dtype=np.int64)
        self.cells = 0
        self.infeasible: list[tuple[int, int]] = []

    def solve(self, groups: int) -> TableSolution:
        sizes, regions = self.noisy.shape
        roots, kept = self._sweep_up()
        if not self.infeasible and not roots.low.sum() <= groups <= roots.high.sum():
            self.infeasible.append(TOTAL)
        if self.infeasible:
            return TableSolution(None, tuple(self.infeasible), self.cells)

        at_root = roots.best.copy()
        _reach(roots, groups, 0, sizes, at_root, _Heap.of(sizes))
        built = self.cells
        by_size = np.empty((sizes, regions), dtype=np.int64)
        by_size[:, 0] = at_root
        for size in range(sizes):
            tables = kept.pop(size, None) or self._build(size)
            _extract_values(self.layout.first_child, tables, by_size[size])
        return TableSolution(np.ascontiguousarray(by_size.T), (), built)

    def _sweep_up(self) -> tuple[_Tables, dict[int, _Tables]]:
        """Build all sizes; returns the roots as children of the dummy root, and what is kept."""
        sizes, regions = self.noisy.shape
        width = int(2 * self.layout.radius[0])
        roots = _Tables(
            place=np.arange(sizes, dtype=np.int64) * width,
            low=np.empty(sizes, dtype=np.int64),
            high=np.empty(sizes, dtype=np.int64),
            best=np.empty(sizes, dtype=np.int64),
            slopes=np.empty(sizes * width, dtype=np.int64),
            weight=np.full(sizes, self.layout.weight[0]),
            noisy=self.noisy[:, 0].copy(),
        )
        kept: dict[int, _Tables] = {}
        for size in range(sizes):
            tables = self._build(size)
            roots.low[size], roots.high[size] = tables.low[0], tables.high[0]
            roots.best[size] = tables.best[0]
            roots.slopes[size * width : (size + 1) * width] = tables.slopes[:width]
            if (size + 1) * (self.layout.kept + 3 * regions) <= KEPT_CELLS:
                kept[size] = tables
        return roots, kept

    def _build(self, size: int) -> _Tables:
        layout = self.layout
        low, high, best = np.empty((3, len(layout.radius)), dtype=np.int64)
        tables = _Tables(
            self.build_place, low, high, best, self.buffer, layout.weight, self.noisy[size]
        )
        self.cells += _build_tables(layout.first_child, layout.radius, tables)
        at_fault = np.flatnonzero((low > high) & (best == _AT_FAULT))
        self.infeasible.extend((int(region), size) for region in at_fault)
        return tables._replace(place=layout.own_place, slopes=self.buffer[: layout.kept].copy())


# --- Kernels, one size at a time.

_AT_FAULT = -1
_FAULT_BELOW = -2
_NOWHERE = -1


class _Heap(NamedTuple):
    """Room for the next slope of each sibling: least key first, then the earlier sibling."""

    keys: Int
    nodes: Int

    @classmethod
    def of(cls, size: int) -> _Heap:
        return cls(np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64))


@njit(cache=True)
def _sift_down(heap: _Heap, count: int, at: int) -> None:
    """Restore the heap order below one entry."""
    keys, nodes = heap.keys, heap.nodes
    key, node = keys[at], nodes[at]
    # Invariant: the subtrees below `at` are heaps, and `at` is a hole for (key, node).
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        right = child + 1
        if right < count and (
            keys[right] < keys[child]
            or (keys[right] == keys[child] and nodes[right] < nodes[child])
        ):
            child = right
        if keys[child] > key or (keys[child] == key and nodes[child] > node):
            break
        keys[at], nodes[at] = keys[child], nodes[child]
        at = child
    keys[at], nodes[at] = key, node


@njit(cache=True)
def _next_cost(tables: _Tables, node: int, value: int, sign: int) -> int:
    """τ(value + sign) − τ(value): from the table, or by (d1) for a leaf that has none."""
    left = value if sign > 0 else value - 1
    if tables.place[node] >= 0:
        slope = tables.slopes[tables.place[node] + left - tables.low[node]]
    else:
        slope = tables.weight[node] * (2 * (left - tables.noisy[node]) + 1)
    return sign * slope  # type: ignore[no-any-return]


@njit(cache=True)
def _walk(
    tables: _Tables,
    first: int,
    stop: int,
    sign: int,
    steps: int,
    values: Int,
    heap: _Heap,
    skipped: int,
    target: int,
) -> None:
    """Move siblings `first : stop` by `steps` units in all, the cheapest unit first (equation 4).

    With sign 1 units are given, with sign −1 taken away; the caller knows that they fit. Unless
    `target` is `_NOWHERE`, slopes after the first `skipped` units are written from there on, up
    or down with the sign.
    """
    ends = tables.high if sign > 0 else tables.low
    keys, nodes = heap.keys, heap.nodes
    count = 0
    for node in range(first, stop):
        if values[node] != ends[node]:
            keys[count] = _next_cost(tables, node, values[node], sign)
            nodes[count] = node
            count += 1
    for at in range(count // 2 - 1, -1, -1):
        _sift_down(heap, count, at)
    # Invariant: the heap holds the next cost of every sibling that is not at the end of its
    # domain, and `values` is an optimal split of its own sum (the tables are convex, Lemma 5).
    for step in range(steps):
        node = nodes[0]
        if target != _NOWHERE and step >= skipped:
            tables.slopes[target + sign * (step - skipped)] = sign * keys[0]
        values[node] += sign
        if values[node] == ends[node]:
            count -= 1
            keys[0], nodes[0] = keys[count], nodes[count]
        else:
            keys[0] = _next_cost(tables, node, values[node], sign)
        _sift_down(heap, count, 0)


@njit(cache=True)
def _reach(tables: _Tables, total: int, first: int, stop: int, values: Int, heap: _Heap) -> None:
    """Split `total` over siblings at least cost: solve φ(total)."""
    missing = total
    for node in range(first, stop):
        values[node] = tables.best[node]
        missing -= values[node]
    sign = 1 if missing > 0 else -1
    _walk(tables, first, stop, sign, abs(missing), values, heap, 0, _NOWHERE)


@njit(cache=True)
def _merge_children(
    tables: _Tables, node: int, first: int, stop: int, values: Int, heap: _Heap
) -> None:
    """Write the slopes of φ over the node's domain into its table."""
    cheapest = 0
    for child in range(first, stop):
        cheapest += tables.best[child]
    low, high, place = tables.low[node], tables.high[node], tables.place[node]
    if cheapest < high:
        values[first:stop] = tables.best[first:stop]
        skipped = max(0, low - cheapest)
        target = place + cheapest + skipped - low
        _walk(tables, first, stop, 1, high - cheapest, values, heap, skipped, target)
    if cheapest > low:
        values[first:stop] = tables.best[first:stop]
        skipped = max(0, cheapest - high)
        target = place + cheapest - skipped - 1 - low
        _walk(tables, first, stop, -1, cheapest - low, values, heap, skipped, target)


@njit(cache=True)
def _write_leaf(tables: _Tables, node: int) -> None:
    """The table of a leaf (d1): an arithmetic progression of slopes."""
    place, low, weight = tables.place[node], tables.low[node], tables.weight[node]
    slope = weight * (2 * (low - tables.noisy[node]) + 1)
    for step in range(tables.high[node] - low):
        tables.slopes[place + step] = slope + 2 * weight * step


@njit(cache=True)
def _add_own_cost(tables: _Tables, node: int) -> None:
    """Add the slopes of w (v − n)² to those of φ and find the cheapest value."""
    place, low, weight = tables.place[node], tables.low[node], tables.weight[node]
    slopes = tables.slopes[place : place + tables.high[node] - low]
    slope = weight * (2 * (low - tables.noisy[node]) + 1)
    for step in range(len(slopes)):
        slopes[step] += slope + 2 * weight * step
    tables.best[node] = low + np.searchsorted(slopes, 0)


@njit(cache=True)
def _set_domain(tables: _Tables, first_child: Int, radius: Int, node: int) -> bool:
    """Intersect the node's own domain with the sums of its children's; False if it is empty."""
    low, high, best = tables.low, tables.high, tables.best
    low[node] = max(0, tables.noisy[node] - radius[node])
    high[node] = tables.noisy[node] + radius[node]
    best[node] = max(0, tables.noisy[node])
    first, stop = first_child[node], first_child[node + 1]
    if first < stop:
        for child in range(first, stop):
            if low[child] > high[child]:
                low[node], high[node], best[node] = 0, -1, _FAULT_BELOW
                return False
        low[node] = max(low[node], low[first:stop].sum())
        high[node] = min(high[node], high[first:stop].sum())
    if low[node] > high[node]:
        low[node], high[node], best[node] = 0, -1, _AT_FAULT
        return False
    return True


@njit(cache=True)
def _build_tables(first_child: Int, radius: Int, tables: _Tables) -> int:
    """The bottom-up phase; returns how many table entries were built."""
    regions = len(radius)
    values = np.empty(regions, dtype=np.int64)
    most = np.max(np.diff(first_child))
    heap = _Heap(np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64))
    cells = 0
    # Invariant: every node after `node` has its domain and its cheapest value and, unless it is
    # a leaf, its table. Leaves get theirs with their parent, in the place that families share.
    for node in range(regions - 1, -1, -1):
        if not _set_domain(tables, first_child, radius, node):
            continue
        first, stop = first_child[node], first_child[node + 1]
        for child in range(first, stop):
            if first_child[child] == first_child[child + 1] and tables.place[child] >= 0:
                _write_leaf(tables, child)
                cells += tables.high[child] - tables.low[child] + 1
        if first < stop:
            _merge_children(tables, node, first, stop, values, heap)
            _add_own_cost(tables, node)
        elif node == 0:
            _write_leaf(tables, node)
        else:
            continue
        cells += tables.high[node] - tables.low[node] + 1
    return cells


@njit(cache=True)
def _extract_values(first_child: Int, tables: _Tables, values: Int) -> None:
    """The top-down phase: from the root's value in `values[0]` on, solve φ at every node."""
    most = np.max(np.diff(first_child))
    heap = _Heap(np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64))
    for node in range(len(values)):
        first, stop = first_child[node], first_child[node + 1]
        if first < stop:
            _reach(tables, values[node], first, stop, values, heap)
