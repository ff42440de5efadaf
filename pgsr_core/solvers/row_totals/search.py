"""Units carried from where there is too much to where there is too little, by cheapest paths.

Successive shortest paths (Ahuja, Magnanti and Orlin 1993, section 9.7) from a table that fits its
potentials: Dijkstra's algorithm from one node in excess to the nearest in deficit, which moves the
potentials of the nodes it passed, and one unit along the path. The table fits its potentials
throughout, hence is optimal once nothing is out of balance. Each search looks at what is near.

Marginal costs are below 2^57 and potentials are kept below 2^60 in magnitude, or the search ends
with TOO_LARGE: a reduced cost is then below 2^57 + 2^61, and a distance below FAR = 2^62.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from pgsr_core.solvers.cpwl.layout import Int
from pgsr_core.solvers.cpwl.pools import Leaves
from pgsr_core.solvers.row_totals.network import Mask, Network
from pgsr_core.solvers.row_totals.window import COUNT, LEAF, NOISY, SIZE, Flow, Window

FAR = 2**62
LARGEST_POTENTIAL = 2**60
TOO_LARGE = -1
LEAF_NODE, SINK = -1, -2


class Scratch(NamedTuple):
    """Room for searches.

    Attributes:
        distance: of each node from the search's start; FAR between searches.
        came_from: the node before it on the cheapest path.
        came_by: the arc from there.
        settled: whether its distance is final; 0 between searches.
        queue: nodes whose distance is final, in order.
        touched: nodes that have a distance.
    """

    distance: Int
    came_from: Int
    came_by: Int
    settled: Mask
    queue: Int
    touched: Int


def new_scratch(nodes: int) -> Scratch:
    """Room for this many nodes."""
    room = [np.empty(nodes, np.int64) for _ in range(5)]
    room[0].fill(FAR)
    return Scratch(room[0], room[1], room[2], np.zeros(nodes, np.uint8), room[3], room[4])


@njit(cache=True, inline="always")
def _region(leaves: int, cells: int, node: int, sizes: int) -> int:
    """The inner region that a node belongs to; SINK for the sink, LEAF_NODE for a leaf."""
    if node < leaves:
        return LEAF_NODE
    return SINK if node == leaves + cells else (node - leaves) // sizes


@njit(cache=True, inline="always")
def _slots(
    first_inner: Int, first: Int, first_below: Int, node: int, region: int, sizes: int
) -> int:
    """How many arcs touch a node."""
    if region == LEAF_NODE:
        return int(first[node + 1] - first[node])
    if region == SINK:
        return sizes
    cell = node - len(first) + 1
    inner = first_inner[region + 1] - first_inner[region]
    return int(1 + inner + first_below[cell + 1] - first_below[cell])


@njit(cache=True, inline="always")
def _touching(
    pool: Int,
    above: Int,
    first_inner: Int,
    first: Int,
    arcs: Leaves,
    first_below: Int,
    below: Leaves,
    sizes: int,
    node: int,
    region: int,
    slot: int,
) -> tuple[int, int, bool]:
    """The arc in a slot, its other end, and whether it begins here."""
    leaves = len(pool)
    if region == LEAF_NODE:
        arc = first[node] + slot
        return arc, leaves + pool[node] * sizes + arcs[arc, SIZE], True
    if region == SINK:
        return first[leaves] + slot, leaves + slot, False
    cell = node - leaves
    if slot == 0:
        head = leaves + len(first_below) - 1
        if region:
            head = node + (above[region] - region) * sizes
        return first[leaves] + cell, head, True
    child = first_inner[region] + slot - 1
    if child < first_inner[region + 1]:
        inside = cell + (child - region) * sizes
        return first[leaves] + inside, leaves + inside, False
    at = first_below[cell] + child - first_inner[region + 1]
    return int(below[at, 0]), int(below[at, 1]), False


@njit(cache=True, inline="always")
def _cost(
    arcs: Leaves, weight: Int, potential: Int, arc: int, node: int, other: int, begins: bool
) -> int:
    """Reduced cost of a unit from a node to another; FAR where the arc has none to give back."""
    count, noisy = np.int64(arcs[arc, COUNT]), np.int64(arcs[arc, NOISY])
    gap = potential[other] - potential[node]
    if begins:
        return int(weight[node] * (2 * (count - noisy) + 1) - gap)
    return int(weight[other] * (1 - 2 * (count - noisy)) - gap) if count else FAR


@njit(cache=True)
def _sift(heap: Int, keys: Int, used: int, node: int, key: int) -> int:
    """Push onto a binary heap; returns the new length."""
    at = used
    while at > 0 and keys[(at - 1) // 2] > key:
        heap[at], keys[at] = heap[(at - 1) // 2], keys[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at], keys[at] = node, key
    return used + 1


@njit(cache=True)
def _pop(heap: Int, keys: Int, used: int) -> int:
    """Drop the least entry, which the caller has read; returns the new length."""
    used -= 1
    node, key, at = heap[used], keys[used], 0
    while True:
        child = 2 * at + 1
        if child >= used:
            break
        if child + 1 < used and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        heap[at], keys[at] = heap[child], keys[child]
        at = child
    heap[at], keys[at] = node, key
    return used


@njit(cache=True)
def _grow(array: Int) -> Int:
    larger = np.empty(2 * len(array), np.int64)
    larger[: len(array)] = array
    return larger


@njit(cache=True)
def _nearest(  # noqa: PLR0912 — one loop, too hot to be cut
    pool: Int,
    above: Int,
    first_inner: Int,
    first: Int,
    arcs: Leaves,
    first_below: Int,
    below: Leaves,
    weight: Int,
    potential: Int,
    excess: Int,
    sizes: int,
    distance: Int,
    came_from: Int,
    came_by: Int,
    settled: Mask,
    queue: Int,
    touched: Int,
    start: int,
    limit: int,
) -> tuple[int, int, int]:
    """The nearest deficit within ``limit`` (−1: none), nodes settled on the way, nodes touched."""
    heap, keys, used = np.empty(256, np.int64), np.empty(256, np.int64), 0
    distance[start], settled[start] = 0, 1
    queue[0], touched[0] = start, start
    looked, last, seen, current = 0, 1, 1, 0
    # Invariant: queue[:last] are the nodes whose distance is final, in order; those from `looked`
    # on lie at distance `current` and are yet to be looked at. The heap holds candidates that are
    # farther, some of them out of date.
    while True:
        if looked == last:
            while used and settled[heap[0]]:
                used = _pop(heap, keys, used)
            if used == 0:
                return -1, last, seen
            current, queue[last] = keys[0], heap[0]
            settled[heap[0]] = 1
            used = _pop(heap, keys, used)
            last += 1
        node = queue[looked]
        looked += 1
        if excess[node] < 0:
            return node, last, seen
        region = _region(len(pool), len(first_below) - 1, node, sizes)
        for slot in range(_slots(first_inner, first, first_below, node, region, sizes)):
            arc, other, begins = _touching(
                pool, above, first_inner, first, arcs, first_below, below, sizes, node, region, slot
            )
            if settled[other]:
                continue
            reduced = _cost(arcs, weight, potential, arc, node, other, begins)
            if reduced > limit - current or current + reduced >= distance[other]:
                continue
            if distance[other] == FAR:
                touched[seen] = other
                seen += 1
            distance[other] = current + reduced
            came_from[other], came_by[other] = node, arc
            if reduced == 0:
                settled[other], queue[last] = 1, other
                last += 1
                if excess[other] < 0:
                    return other, last, seen
            else:
                if used == len(heap):
                    heap, keys = _grow(heap), _grow(keys)
                used = _sift(heap, keys, used, other, current + reduced)


@njit(cache=True)
def _carry(leaves: int, window: Window, flow: Flow, scratch: Scratch, start: int, end: int) -> None:
    """Move one unit along the path that was found."""
    node = end
    while node != start:
        arc, before = scratch.came_by[node], scratch.came_from[node]
        # An arc leads from its leaf or its inner cell.
        tail = leaves + arc - window.first[leaves]
        if arc < window.first[leaves]:
            tail = np.int64(window.arcs[arc, LEAF])
        window.arcs[arc, COUNT] += 1 if tail == before else -1
        node = before
    flow.excess[start] -= 1
    flow.excess[end] += 1


@njit(cache=True)
def carry_units(network: Network, flow: Flow, window: Window, scratch: Scratch, reach: int) -> int:
    """Carry units until nothing is out of balance; how many were carried.

    A path over an arc outside the window is longer than ``reach`` less the largest fall of a
    leaf's potential since the window was opened. The search for a shorter one may fail: what is
    left then is for a larger window.
    """
    leaves = len(network.leaf_row)
    fallen, carried, most, hope = np.zeros(leaves, np.int64), 0, 0, 0
    for start in range(len(flow.excess)):
        while flow.excess[start] > 0:
            limit = min(hope, reach - most)
            end, settled, seen = _nearest(
                network.pool,
                network.above,
                network.first_inner,
                window.first,
                window.arcs,
                window.first_below,
                window.below,
                window.weight,
                flow.potential,
                flow.excess,
                flow.noisy.shape[1],
                scratch.distance,
                scratch.came_from,
                scratch.came_by,
                scratch.settled,
                scratch.queue,
                scratch.touched,
                start,
                limit,
            )
            if end >= 0:
                hope = 0
                fall = _lower(flow, scratch, settled, scratch.distance[end], fallen)
                if fall < 0:
                    return TOO_LARGE
                most = max(most, fall)
                _carry(leaves, window, flow, scratch, start, end)
                carried += 1
            for k in range(seen):
                scratch.distance[scratch.touched[k]] = FAR
                scratch.settled[scratch.touched[k]] = 0
            if end < 0:
                if limit == reach - most:
                    break
                hope = 4 * hope + 1
    return carried


@njit(cache=True)
def _lower(flow: Flow, scratch: Scratch, settled: int, length: int, fallen: Int) -> int:
    """Lower the potentials of the nodes before the path's end; the largest fall of a leaf's."""
    most = 0
    for k in range(settled):
        node = scratch.queue[k]
        fall = length - scratch.distance[node]
        flow.potential[node] -= fall
        if flow.potential[node] < -LARGEST_POTENTIAL:
            return TOO_LARGE
        if node < len(fallen):
            fallen[node] += fall
            most = max(most, fallen[node])
    return most
