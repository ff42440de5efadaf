"""Unit exchanges on an integer solution, one size at a time: the exact finish.

The marginal cost of δ more (up) or δ less (down) at a node, over δ, is

    up = w (2 (z − n) + δ) + min up of a child,   down = w (δ − 2 (z − n)) + min down of a child

and down is infinite where z < δ. The cost is separable and convex on a laminar family, hence
M-convex (Murota 2003, section 6.3): a solution is optimal on the lattice of step δ exactly when no
node has min up + min down < 0 among its children, and moving δ along the two cheapest paths keeps
the subtrees below optimal for their totals. So a node is balanced after its children, and the
dummy root over the sizes last.

From the rounded continuous optimum a few moves suffice. From a distant start (a relaxation that
did not settle, numbers beyond the precision of doubles) the same moves are made with δ a falling
power of two; the optimum of one scale is near that of the next (proximity of M-convex scaling,
Murota 2003, section 6.6), so that the number of moves stays polynomial.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pgsr_core.solvers.cpwl.layout import Int, Layout

INFINITE = 2**62
Hash = NDArray[np.uint64]


class Costs(NamedTuple):
    """The integer solution and its marginal costs.

    Attributes:
        noisy: regions × sizes.
        counts: the integer solution, regions × sizes.
        up: cost of one more at a node, (blocks, nodes, width).
        down: cost of one less, INFINITE where there is none to take.
    """

    noisy: Int
    counts: Int
    up: Int
    down: Int


@njit(cache=True)
def scatter(node: int, size: int) -> np.uint64:
    """A fixed pseudo-random number for a node and a size (SplitMix64): breaks ties evenly."""
    x = np.uint64(node) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(size)
    x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True)
def _leaf_up(costs: Costs, region: int, size: int, weight: int, step: int) -> int:
    return int(weight * (2 * (costs.counts[region, size] - costs.noisy[region, size]) + step))


@njit(cache=True)
def _leaf_down(costs: Costs, region: int, size: int, weight: int, step: int) -> int:
    if costs.counts[region, size] < step:
        return INFINITE
    return int(weight * (step - 2 * (costs.counts[region, size] - costs.noisy[region, size])))


@njit(cache=True)
def refresh(costs: Costs, layout: Layout, node: int, size: int, step: int) -> None:
    """Recompute a node's marginal costs from its children's."""
    width = costs.up.shape[2]
    block, lane = size // width, size % width
    up, down = INFINITE, INFINITE
    if layout.pool[node] >= 0:
        weight = layout.leaf_weight[node]
        for i in range(layout.first_leaf[node], layout.first_leaf[node + 1]):
            up = min(up, _leaf_up(costs, layout.leaf_row[i], size, weight, step))
            down = min(down, _leaf_down(costs, layout.leaf_row[i], size, weight, step))
    else:
        child = node + 1
        while child < layout.stop[node]:
            up = min(up, costs.up[block, child, lane])
            down = min(down, costs.down[block, child, lane])
            child = layout.stop[child]
    if layout.row[node] >= 0:
        slant = costs.counts[layout.row[node], size] - costs.noisy[layout.row[node], size]
        up += layout.weight[node] * (2 * slant + step)
        if down < INFINITE:
            down += layout.weight[node] * (step - 2 * slant)
    costs.up[block, node, lane] = up
    costs.down[block, node, lane] = down


@njit(cache=True)
def _cheapest_leaf(
    costs: Costs, layout: Layout, node: int, size: int, step: int, more: bool
) -> int:
    best, best_region, weight = INFINITE, -1, layout.leaf_weight[node]
    for i in range(layout.first_leaf[node], layout.first_leaf[node + 1]):
        region = layout.leaf_row[i]
        if more:
            cost = _leaf_up(costs, region, size, weight, step)
        else:
            cost = _leaf_down(costs, region, size, weight, step)
        if cost < best or (
            cost == best and best_region >= 0 and scatter(region, size) < scatter(best_region, size)
        ):
            best, best_region = cost, region
    return best_region


@njit(cache=True)
def _cheapest_child(costs: Costs, layout: Layout, node: int, size: int, more: bool) -> int:
    width = costs.up.shape[2]
    block, lane = size // width, size % width
    best, best_child = INFINITE, -1
    child = node + 1
    while child < layout.stop[node]:
        cost = costs.up[block, child, lane] if more else costs.down[block, child, lane]
        if cost < best or (
            cost == best and best_child >= 0 and scatter(child, size) < scatter(best_child, size)
        ):
            best, best_child = cost, child
        child = layout.stop[child]
    return best_child


@njit(cache=True)
def shift(costs: Costs, layout: Layout, top: int, size: int, step: int, more: bool) -> None:
    """Add ``step`` to a node (or take it away) along the cheapest path below it."""
    change = step if more else -step
    node = top
    # Invariant: every node above `node` on the path, up to `top`, has been changed.
    while True:
        if layout.row[node] >= 0:
            costs.counts[layout.row[node], size] += change
        if layout.pool[node] >= 0:
            break
        node = _cheapest_child(costs, layout, node, size, more)
    costs.counts[_cheapest_leaf(costs, layout, node, size, step, more), size] += change
    while node >= top:
        refresh(costs, layout, node, size, step)
        node = layout.above[node]


@njit(cache=True)
def _better(cost: Int, key: Hash, a: int, b: int) -> int:
    if cost[a] != cost[b]:
        return a if cost[a] < cost[b] else b
    return a if key[a] <= key[b] else b


@njit(cache=True)
def _crown(cost: Int, key: Hash) -> Int:
    """A tournament over the costs: entry 1 is the cheapest; entries n + i are the players."""
    players = len(cost)
    winner = np.empty(2 * players, np.int64)
    for i in range(players):
        winner[players + i] = i
    for i in range(players - 1, 0, -1):
        winner[i] = _better(cost, key, winner[2 * i], winner[2 * i + 1])
    if players == 1:
        winner[1] = 0
    return winner


@njit(cache=True)
def _replay(winner: Int, cost: Int, key: Hash, player: int) -> None:
    i = (player + len(cost)) // 2
    while i >= 1 and len(cost) > 1:
        winner[i] = _better(cost, key, winner[2 * i], winner[2 * i + 1])
        i //= 2


@njit(cache=True)
def _children(layout: Layout, node: int) -> Int:
    count = 0
    child = node + 1
    while child < layout.stop[node]:
        count += 1
        child = layout.stop[child]
    children = np.empty(count, np.int64)
    child = node + 1
    for i in range(count):
        children[i] = child
        child = layout.stop[child]
    return children


@njit(cache=True)
def balance_branch(
    costs: Costs, layout: Layout, node: int, size: int, step: int, limit: int
) -> int:
    """Exchange among the children of a branch until none pays; the moves, −1 past the limit."""
    width = costs.up.shape[2]
    block, lane = size // width, size % width
    children = _children(layout, node)
    up, down = np.empty(len(children), np.int64), np.empty(len(children), np.int64)
    key = np.empty(len(children), np.uint64)
    for i in range(len(children)):
        up[i] = costs.up[block, children[i], lane]
        down[i] = costs.down[block, children[i], lane]
        key[i] = scatter(children[i], size)
    gain, loss = _crown(up, key), _crown(down, key)
    moves = 0
    while down[loss[1]] < INFINITE and up[gain[1]] + down[loss[1]] < 0:
        if moves == limit:
            return -1
        more, less = gain[1], loss[1]
        shift(costs, layout, children[more], size, step, True)
        shift(costs, layout, children[less], size, step, False)
        for i in (more, less):
            up[i] = costs.up[block, children[i], lane]
            down[i] = costs.down[block, children[i], lane]
            _replay(gain, up, key, i)
            _replay(loss, down, key, i)
        moves += 1
    return moves


@njit(cache=True)
def _balance_pool(costs: Costs, layout: Layout, node: int, size: int, step: int) -> int:
    rows = layout.leaf_row[layout.first_leaf[node] : layout.first_leaf[node + 1]]
    weight = layout.leaf_weight[node]
    up, down = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    key = np.empty(len(rows), np.uint64)
    for i in range(len(rows)):
        up[i] = _leaf_up(costs, rows[i], size, weight, step)
        down[i] = _leaf_down(costs, rows[i], size, weight, step)
        key[i] = scatter(rows[i], size)
    gain, loss = _crown(up, key), _crown(down, key)
    moves = 0
    while down[loss[1]] < INFINITE and up[gain[1]] + down[loss[1]] < 0:
        more, less = gain[1], loss[1]
        costs.counts[rows[more], size] += step
        costs.counts[rows[less], size] -= step
        for i in (more, less):
            up[i] = _leaf_up(costs, rows[i], size, weight, step)
            down[i] = _leaf_down(costs, rows[i], size, weight, step)
            _replay(gain, up, key, i)
            _replay(loss, down, key, i)
        moves += 1
    return moves


@njit(cache=True)
def balance_sizes(costs: Costs, layout: Layout, step: int, limit: int) -> int:
    """Exchange among the sizes, the children of the dummy root; the moves, −1 past the limit."""
    sizes, width = costs.counts.shape[1], costs.up.shape[2]
    up, down = np.empty(sizes, np.int64), np.empty(sizes, np.int64)
    key = np.empty(sizes, np.uint64)
    for size in range(sizes):
        up[size] = costs.up[size // width, 0, size % width]
        down[size] = costs.down[size // width, 0, size % width]
        key[size] = scatter(0, size)
    gain, loss = _crown(up, key), _crown(down, key)
    moves = 0
    while down[loss[1]] < INFINITE and up[gain[1]] + down[loss[1]] < 0:
        if moves == limit:
            return -1
        more, less = gain[1], loss[1]
        shift(costs, layout, 0, more, step, True)
        shift(costs, layout, 0, less, step, False)
        for size in (more, less):
            up[size] = costs.up[size // width, 0, size % width]
            down[size] = costs.down[size // width, 0, size % width]
            _replay(gain, up, key, size)
            _replay(loss, down, key, size)
        moves += 1
    return moves


@njit(cache=True, nogil=True)
def balance_scale(first: int, last: int, costs: Costs, layout: Layout, step: int) -> int:
    """Make every node of these blocks optimal for its total on the lattice of step ``step``."""
    width, moves = costs.up.shape[2], 0
    for size in range(first * width, min(last * width, costs.counts.shape[1])):
        # Invariant: the nodes after `node`, its subtree among them, are optimal for their totals.
        for node in range(len(layout.row) - 1, -1, -1):
            if layout.pool[node] >= 0:
                moves += _balance_pool(costs, layout, node, size, step)
            else:
                moves += balance_branch(costs, layout, node, size, step, -1)
            refresh(costs, layout, node, size, step)
    return moves
