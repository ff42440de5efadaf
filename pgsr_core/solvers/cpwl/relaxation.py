"""The continuous optimum by active sets: which leaves stay above zero, in every pool and size.

Write τ for half the multiplier that a node receives from its parent. A leaf of weight w answers
max(0, n + τ/w), so a pool with a fixed active set answers X = S + kτ, with S the sum of its active
leaves and k their number over w. A node of weight w and noisy count n that hands τ_in down adds
its own cost: τ_out = τ_in + w (X − n). Hence

    τ_in = (τ_out + w (n − S)) / (1 + w k),
    S' = (S + w k n) / (1 + w k),   k' = k / (1 + w k)

where S' + k' τ_out is the answer of the whole subtree. The root's answers over all sizes sum to G
at τ = (G − ΣS') / Σk'. One sweep walks down with these τ, tallies again the pools whose active set
changed, and walks back up. That is Newton's method on a convex, piecewise linear, increasing
system whose Jacobian has a non-negative inverse (the answers of a subtree are convex in τ_out, and
so is their sum): after the first step the iterates decrease monotonically, whatever the start.
The sweeps are capped all the same; the integer stage is exact from any feasible start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from pgsr_core.solvers.cpwl.blocks import Blocks
from pgsr_core.solvers.cpwl.layout import Int, Layout, Real
from pgsr_core.solvers.cpwl.pools import (
    ABOVE,
    BELOW,
    COUNT,
    SUM,
    TALLIES,
    THRESHOLD,
    Leaves,
    take_tally,
)

MAX_ROUNDS = 40
# Sweeps over one block, in the cache, before the root's multiplier is computed anew.
MAX_SWEEPS = 40
# A block rests when at most one in so many of its active sets moved, and the whole table likewise:
# the integer stage mends the few that are left at less cost than another sweep.
BLOCK_REST = 20
TABLE_REST = 200
# It does not rest while a threshold is this far from where it belongs: the units to move later
# are then many, though the sets are few.
FAR = 4.0
FAR_COUNT = 2**32
# Passes over one pool before the tree is looked at; Newton's method on one pool rarely needs 12.
MAX_POOL_PASSES = 40


class State(NamedTuple):
    """What is known of every node and size, block by block.

    Attributes:
        leaves: packed leaves, (blocks, leaves, width).
        none: larger than any of them.
        offset: S of each node, (blocks, nodes, width).
        slope: k of each node, the same shape.
        below: largest idle leaf of each pool, (blocks, pools, width); −none where there is none.
        above: smallest active leaf, the same shape; none where there is none.
        root_offset: S' of the root for each size.
        root_slope: k' of the root for each size.
        guess: the τ that each pool's node is expected to receive from above.
        bar: the level above which a pool's leaves are expected to be active.
        sweeps: sweeps made over each block.
        moved: active sets that the last sweep over each block changed.
    """

    leaves: Leaves
    none: int
    offset: Real
    slope: Real
    below: Leaves
    above: Leaves
    root_offset: Real
    root_slope: Real
    guess: Real
    bar: Real
    sweeps: Int
    moved: Int


def new_state(layout: Layout, blocks: Blocks, leaves: Leaves, none: int) -> State:
    """Room for the state of all nodes and sizes."""
    nodes = (blocks.count, layout.nodes, blocks.width)
    pools = (blocks.count, layout.pools, blocks.width)
    return State(
        leaves,
        none,
        np.empty(nodes),
        np.empty(nodes),
        np.empty(pools, leaves.dtype),
        np.empty(pools, leaves.dtype),
        np.zeros(blocks.sizes),
        np.zeros(blocks.sizes),
        np.zeros(layout.pools),
        np.full(layout.pools, -np.inf),
        np.zeros(blocks.count, np.int64),
        np.zeros(blocks.count, np.int64),
    )


def relax(noisy: Int, layout: Layout, blocks: Blocks, state: State, *, groups: int) -> float:
    """Find the active sets of the continuous optimum; ``groups`` must be positive.

    Returns the root's multiplier, at which the answers in ``state`` sum to ``groups``.
    """
    multiplier = int(layout.weight[0]) * _spread(noisy[0], groups)
    _ask_pilot(noisy, layout, blocks, state, multiplier)
    blocks.run(_start_blocks, noisy, layout, state, False)
    blocks.run(_sweep_blocks, noisy, layout, state, multiplier)
    few = blocks.sizes * layout.pools // TABLE_REST
    restarted = False
    for _ in range(MAX_ROUNDS):
        slope = float(state.root_slope.sum())
        if slope <= 0.0:
            # No leaf is active though G is positive. With all leaves active this cannot recur:
            # from there the iterates decrease towards an optimum where some leaf is active.
            if restarted:
                break
            blocks.run(_start_blocks, noisy, layout, state, True)
            restarted = True
            slope = float(state.root_slope.sum())
        multiplier = (groups - float(state.root_offset.sum())) / slope
        blocks.run(_sweep_blocks, noisy, layout, state, multiplier)
        if state.moved.sum() <= few:
            break
    slope = float(state.root_slope.sum())
    return (groups - float(state.root_offset.sum())) / slope if slope > 0.0 else multiplier


def _ask_pilot(noisy: Int, layout: Layout, blocks: Blocks, state: State, multiplier: float) -> None:
    """Settle one block of large sizes first, and expect its multipliers in all the others.

    Most sizes of a long table are alike: few groups and much noise. One guess for all of them
    leaves the blocks independent, hence the result the same for any number of threads.
    """
    if blocks.count > 1:
        pilot = blocks.count // 2
        _start_blocks(pilot, pilot + 1, noisy, layout, state, False)
        _sweep_blocks(pilot, pilot + 1, noisy, layout, state, multiplier)
        _note_guess(pilot, noisy, layout, state, multiplier)


def _spread(row: Int, groups: int) -> float:
    """The t with Σ max(0, n + t) = G: the root's multiplier if the rest of the tree agreed."""
    largest = np.sort(row.astype(np.float64))[::-1]
    levels = (groups - np.cumsum(largest)) / np.arange(1, len(largest) + 1)
    # With the i largest active the answer is levels[i − 1]; it is the least of them.
    return float(levels.min())


@njit(cache=True, error_model="numpy")
def _set_threshold(level: Real, tally: Leaves, none: int) -> None:
    """Active are the leaves above ``level``: those of at least floor(level) + 1."""
    bound = float(none)
    for j in range(len(level)):
        least = np.floor(level[j]) + 1.0
        least = least if least < bound else bound
        tally[THRESHOLD, j] = least if least > -bound else -bound


@njit(cache=True, error_model="numpy")
def _keep_tally(
    layout: Layout, node: int, block: int, lanes: int, state: State, tally: Leaves
) -> None:
    offset, slope = state.offset[block, node], state.slope[block, node]
    below, above = state.below[block, layout.pool[node]], state.above[block, layout.pool[node]]
    share = 1.0 / layout.leaf_weight[node]
    for j in range(lanes):
        offset[j] = tally[SUM, j]
        slope[j] = tally[COUNT, j] * share
    for j in range(lanes):
        below[j] = tally[BELOW, j]
        above[j] = tally[ABOVE, j]


@njit(cache=True, error_model="numpy")
def _settle_pool(
    own: Int, layout: Layout, node: int, block: int, state: State, tally: Leaves, level: Real
) -> None:
    """Solve one pool under its region alone, as if the region's τ_out were as guessed.

    Newton's method. Sets above a threshold are nested, so an unchanged count is an unchanged set.
    """
    leaves = state.leaves[block, layout.first_leaf[node] : layout.first_leaf[node + 1]]
    weight, leaf_weight = float(layout.weight[node]), float(layout.leaf_weight[node])
    lanes, guess = len(own), state.guess[layout.pool[node]]
    for _ in range(MAX_POOL_PASSES):
        before = 0
        for j in range(lanes):
            lift = weight * tally[COUNT, j]
            gap = weight * (own[j] - float(tally[SUM, j]))
            level[j] = -(guess + gap) / (leaf_weight + lift)
            before += tally[COUNT, j]
        _set_threshold(level, tally, state.none)
        take_tally(leaves, tally, state.none)
        after = 0
        for j in range(lanes):
            after += tally[COUNT, j]
        if after == before:
            break


@njit(cache=True, error_model="numpy")
def _answer(
    own: Int, layout: Layout, node: int, block: int, state: State, offset: Real, slope: Real
) -> None:
    """Add S' and k' of a node to its parent's row of the stacks."""
    weight = float(layout.weight[node])
    inner_offset, inner_slope = state.offset[block, node], state.slope[block, node]
    for j in range(len(own)):
        lift = weight * inner_slope[j]
        share = 1.0 / (1.0 + lift)
        offset[j] += (inner_offset[j] + lift * own[j]) * share
        slope[j] += inner_slope[j] * share


@njit(cache=True, error_model="numpy")
def _finish(
    node: int,
    block: int,
    start: int,
    noisy: Int,
    layout: Layout,
    state: State,
    offset: Real,
    slope: Real,
) -> None:
    """A pool is done: answer its parent, and close the branches of which it is the last node."""
    lanes = min(state.offset.shape[2], noisy.shape[1] - start)
    current = node
    while True:
        own = noisy[max(layout.row[current], 0), start : start + lanes]
        depth = layout.depth[current]
        _answer(own, layout, current, block, state, offset[depth], slope[depth])
        current = layout.above[current]
        if current < 0 or layout.stop[current] != node + 1:
            break
        depth = layout.depth[current] + 1
        state.offset[block, current, :] = offset[depth]
        state.slope[block, current, :] = slope[depth]


@njit(cache=True, nogil=True, error_model="numpy")
def _start_blocks(
    first: int, last: int, noisy: Int, layout: Layout, state: State, everything: bool
) -> int:
    """First active sets: each pool alone, or all leaves where ``everything`` is set."""
    width = state.offset.shape[2]
    height = layout.depth.max() + 2
    offset, slope, level = np.zeros((height, width)), np.zeros((height, width)), np.zeros(width)
    tally = np.zeros((TALLIES, width), state.leaves.dtype)
    for block in range(first, last):
        start = block * width
        lanes = min(width, noisy.shape[1] - start)
        offset[0, :] = 0.0
        slope[0, :] = 0.0
        # Invariant: the open branches are the ancestors of the node that comes next.
        for node in range(len(layout.row)):
            if layout.pool[node] < 0:
                offset[layout.depth[node] + 1, :] = 0.0
                slope[layout.depth[node] + 1, :] = 0.0
                continue
            leaves = state.leaves[block, layout.first_leaf[node] : layout.first_leaf[node + 1]]
            level[:] = -np.inf if everything else state.bar[layout.pool[node]]
            _set_threshold(level, tally, state.none)
            take_tally(leaves, tally, state.none)
            if not everything:
                own = noisy[max(layout.row[node], 0), start : start + lanes]
                _settle_pool(own, layout, node, block, state, tally, level[:lanes])
            _keep_tally(layout, node, block, lanes, state, tally)
            _finish(node, block, start, noisy, layout, state, offset, slope)
        state.root_offset[start : start + lanes] = offset[0, :lanes]
        state.root_slope[start : start + lanes] = slope[0, :lanes]
    return 0


@njit(cache=True, error_model="numpy")
def _descend(
    own: Int, layout: Layout, node: int, block: int, state: State, outer: Real, inner: Real
) -> None:
    """τ_in of a node from τ_out."""
    weight = float(layout.weight[node])
    offset, slope = state.offset[block, node], state.slope[block, node]
    for j in range(len(own)):
        inner[j] = (outer[j] + weight * (own[j] - offset[j])) / (1.0 + weight * slope[j])


@njit(cache=True, error_model="numpy")
def _has_moved(
    layout: Layout, node: int, block: int, state: State, multiplier: Real, level: Real
) -> int:
    """For how many sizes a pool's active set is no longer {n > −τ/w}; FAR_COUNT for each far one."""
    below, above = state.below[block, layout.pool[node]], state.above[block, layout.pool[node]]
    share = -1.0 / layout.leaf_weight[node]
    moved, far = 0, 0
    for j in range(len(level)):
        bar = multiplier[j] * share
        level[j] = bar
        moved += (bar < below[j]) | (bar >= above[j])
        far += (bar + FAR < below[j]) | (bar - FAR >= above[j])
    return moved + far * FAR_COUNT


@njit(cache=True, error_model="numpy")
def _sweep(
    block: int,
    noisy: Int,
    layout: Layout,
    state: State,
    multiplier: Real,
    offset: Real,
    slope: Real,
    level: Real,
    tally: Leaves,
) -> int:
    """One Newton step for the sizes of a block; how many pools had to be tallied again."""
    width, moved = state.offset.shape[2], 0
    start = block * width
    lanes = min(width, noisy.shape[1] - start)
    offset[0, :] = 0.0
    slope[0, :] = 0.0
    # Invariant: the open branches are the ancestors of the node that comes next, each with
    # its τ_in in `multiplier` and the answers of its finished children in the stacks.
    for node in range(len(layout.row)):
        own = noisy[max(layout.row[node], 0), start : start + lanes]
        depth = layout.depth[node]
        _descend(own, layout, node, block, state, multiplier[depth], multiplier[depth + 1])
        if layout.pool[node] < 0:
            offset[depth + 1, :] = 0.0
            slope[depth + 1, :] = 0.0
            continue
        shifted = _has_moved(layout, node, block, state, multiplier[depth + 1], level[:lanes])
        if shifted:
            moved += shifted
            leaves = state.leaves[block, layout.first_leaf[node] : layout.first_leaf[node + 1]]
            _set_threshold(level[:lanes], tally, state.none)
            take_tally(leaves, tally, state.none)
            _keep_tally(layout, node, block, lanes, state, tally)
        _finish(node, block, start, noisy, layout, state, offset, slope)
    return moved


@njit(cache=True, nogil=True, error_model="numpy")
def _sweep_blocks(
    first: int, last: int, noisy: Int, layout: Layout, state: State, top: float
) -> int:
    """Newton steps for every size until its active sets fit the multiplier ``top``."""
    width = state.offset.shape[2]
    height = layout.depth.max() + 2
    offset, slope, level = np.zeros((height, width)), np.zeros((height, width)), np.zeros(width)
    tally = np.zeros((TALLIES, width), state.leaves.dtype)
    multiplier = np.full((height, width), top)
    for block in range(first, last):
        start = block * width
        lanes = min(width, noisy.shape[1] - start)
        few = lanes * state.below.shape[1] // BLOCK_REST
        for _ in range(MAX_SWEEPS):
            moved = _sweep(block, noisy, layout, state, multiplier, offset, slope, level, tally)
            state.sweeps[block] += 1
            state.moved[block] = moved
            if moved % FAR_COUNT <= few:
                break
        state.root_offset[start : start + lanes] = offset[0, :lanes]
        state.root_slope[start : start + lanes] = slope[0, :lanes]
    return 0


@njit(cache=True, error_model="numpy")
def _note_guess(block: int, noisy: Int, layout: Layout, state: State, top: float) -> None:
    """Keep what each pool's node receives from above, the mean over a settled block's sizes."""
    width = state.offset.shape[2]
    start = block * width
    lanes = min(width, noisy.shape[1] - start)
    multiplier = np.full((layout.depth.max() + 2, width), top)
    for node in range(len(layout.row)):
        own = noisy[max(layout.row[node], 0), start : start + lanes]
        outer, inner = multiplier[layout.depth[node]], multiplier[layout.depth[node] + 1]
        _descend(own, layout, node, block, state, outer, inner)
        if layout.pool[node] >= 0:
            state.guess[layout.pool[node]] = outer[:lanes].mean()
            state.bar[layout.pool[node]] = -inner[:lanes].mean() / layout.leaf_weight[node]
