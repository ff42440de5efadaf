"""The arcs that matter: leaves' cells that hold something, or could soon.

Potentials φ and a table x fit together when no arc has a negative reduced cost, that is when

    w (2 (x − n) − 1) ≤ φ(head) − φ(tail) ≤ w (2 (x − n) + 1)

(the first only where x > 0). Most cells of a long table are empty, and far from paying for a unit.
Those whose reduced cost is beyond a *reach* are left out of the searches: as long as potentials
have moved by no more than the reach, they cannot pay, nor lie on a path that is free.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from pgsr_core.solvers.cpwl.blocks import Blocks
from pgsr_core.solvers.cpwl.layout import Int
from pgsr_core.solvers.cpwl.pools import Leaves
from pgsr_core.solvers.row_totals.network import Network

# Columns of a window's arcs.
LEAF, SIZE, COUNT, NOISY = 0, 1, 2, 3
FIELDS = 4
NARROW_NUMBER = 2**31


class Flow(NamedTuple):
    """An integer table and potentials that fit it, and what is still out of balance.

    Nodes are numbered: leaves first, then (inner region, size) row by row, then the sink.

    Attributes:
        noisy: regions × sizes.
        counts: regions × sizes; in a window's cells the window's numbers hold instead.
        potential: of each node.
        excess: of each node, what flows in or is supplied, less what flows out.
    """

    noisy: Int
    counts: Int
    potential: Int
    excess: Int


class Window(NamedTuple):
    """Arcs of leaves that are near, row by row, then all arcs of inner regions.

    Attributes:
        first: the arcs of leaf l are ``first[l] : first[l + 1]``; that of inner cell c (i · sizes
            + s) is ``first[-1] + c``.
        arcs: leaf, size, x and n of each arc, side by side: one line of the cache.
        first_below: the leaves' arcs into inner cell c are
            ``below[first_below[c] : first_below[c + 1]]``.
        below: numbers of arcs, and their leaves.
        weight: of the arcs that begin at each node.
    """

    first: Int
    arcs: Leaves
    first_below: Int
    below: Leaves
    weight: Int


def open_window(network: Network, blocks: Blocks, flow: Flow, reach: int) -> Window:
    """Gather the arcs within reach."""
    leaves, cells = len(network.leaf_row), len(network.inner_row) * flow.noisy.shape[1]
    first = np.zeros(leaves + 1, np.int64)
    blocks.run(_count_arcs, network, flow, reach, first, parts=leaves)
    np.cumsum(first, out=first)
    arcs = int(first[-1])
    # A count can still change by every unit that is out of balance.
    largest = int(np.abs(flow.excess).sum()) + max(
        int(flow.counts.max()), int(flow.noisy.max()), -int(flow.noisy.min())
    )
    narrow = max(largest, leaves, flow.noisy.shape[1]) < NARROW_NUMBER
    window = Window(
        first,
        _room((arcs + cells, FIELDS), narrow=narrow),
        np.zeros(cells + 1, np.int64),
        _room((arcs, 2), narrow=max(arcs, leaves) < NARROW_NUMBER),
        np.concatenate(
            [network.leaf_weight[network.pool], np.repeat(network.weight, flow.noisy.shape[1]), [1]]
        ),
    )
    window.arcs[arcs:, COUNT] = flow.counts[network.inner_row].reshape(-1)
    window.arcs[arcs:, NOISY] = flow.noisy[network.inner_row].reshape(-1)
    blocks.run(_fill_arcs, network, flow, reach, window, parts=leaves)
    _sort_below(network, window, flow.noisy.shape[1])
    return window


def _room(shape: tuple[int, int], *, narrow: bool) -> Leaves:
    return np.zeros(shape, np.int32) if narrow else np.zeros(shape, np.int64)


def close_window(network: Network, flow: Flow, window: Window) -> None:
    """Write the arcs back into the table."""
    arcs, inner = np.split(window.arcs, [window.first[-1]])
    flow.counts[network.leaf_row[arcs[:, LEAF]], arcs[:, SIZE]] = arcs[:, COUNT]
    flow.counts[network.inner_row] = inner[:, COUNT].reshape(-1, flow.noisy.shape[1])


@njit(cache=True)
def _is_near(flow: Flow, row: int, s: int, difference: int, weight: int, reach: int) -> bool:
    if flow.counts[row, s] > 0:
        return True
    return bool(weight * (1 - 2 * flow.noisy[row, s]) - difference <= reach)


@njit(cache=True, nogil=True)
def _count_arcs(
    first: int, last: int, network: Network, flow: Flow, reach: int, counted: Int
) -> int:
    leaves, sizes = len(network.leaf_row), flow.noisy.shape[1]
    for leaf in range(first, last):
        row, pool = network.leaf_row[leaf], network.pool[leaf]
        weight, own, near = network.leaf_weight[pool], flow.potential[leaf], 0
        heads = flow.potential[leaves + pool * sizes : leaves + (pool + 1) * sizes]
        for s in range(sizes):
            near += _is_near(flow, row, s, heads[s] - own, weight, reach)
        counted[leaf + 1] = near
    return 0


@njit(cache=True, nogil=True)
def _fill_arcs(
    first: int, last: int, network: Network, flow: Flow, reach: int, window: Window
) -> int:
    leaves, sizes = len(network.leaf_row), flow.noisy.shape[1]
    for leaf in range(first, last):
        row, pool = network.leaf_row[leaf], network.pool[leaf]
        weight, own, arc = network.leaf_weight[pool], flow.potential[leaf], window.first[leaf]
        heads = flow.potential[leaves + pool * sizes : leaves + (pool + 1) * sizes]
        for s in range(sizes):
            if _is_near(flow, row, s, heads[s] - own, weight, reach):
                window.arcs[arc, LEAF], window.arcs[arc, SIZE] = leaf, s
                window.arcs[arc, COUNT] = flow.counts[row, s]
                window.arcs[arc, NOISY] = flow.noisy[row, s]
                arc += 1
    return 0


@njit(cache=True)
def _sort_below(network: Network, window: Window, sizes: int) -> None:
    """Arcs by the node they lead to, a counting sort."""
    for arc in range(window.first[-1]):
        window.first_below[
            network.pool[window.arcs[arc, LEAF]] * sizes + window.arcs[arc, SIZE] + 1
        ] += 1
    for cell in range(1, len(window.first_below)):
        window.first_below[cell] += window.first_below[cell - 1]
    free = window.first_below.copy()
    for arc in range(window.first[-1]):
        cell = network.pool[window.arcs[arc, LEAF]] * sizes + window.arcs[arc, SIZE]
        window.below[free[cell], 0] = arc
        window.below[free[cell], 1] = window.arcs[arc, LEAF]
        free[cell] += 1


@njit(cache=True)
def add_leaf_excess(network: Network, flow: Flow, window: Window) -> None:
    """What leaves send into the nodes above them: all of it is in the window."""
    leaves, sizes = len(network.leaf_row), flow.noisy.shape[1]
    for arc in range(window.first[-1]):
        flow.excess[
            leaves + network.pool[window.arcs[arc, LEAF]] * sizes + window.arcs[arc, SIZE]
        ] += window.arcs[arc, COUNT]
