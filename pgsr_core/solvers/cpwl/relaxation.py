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
PILOT_ROUNDS = 6
# Sweeps over one block, in the cache, before the root's multiplier is computed anew.
MAX_SWEEPS = 40
# A block rests when at most one in so many of its active sets moved, and the whole table likewise:
# the integer stage mends the few that are left at less cost than another sweep.
BLOCK_REST = 6
TABLE_REST = 200
# It does not rest while a threshold is this far from where it belongs: the units to move later
# are then many, though the sets are few.
FAR = 64.0
FAR_COUNT = 2**32

# How a block begins: from the active sets it has, each pool alone, or all leaves active.
SWEEPS, POOLS, EVERYTHING = 0, 1, 2
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
        moved: active sets that the sweeps since the last multiplier changed in each block.
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
    if blocks.count > 1:
        multiplier = _ask_pilot(noisy, layout, blocks, state, groups, multiplier)
    blocks.run(_settle_blocks, noisy, layout, state, multiplier, POOLS, False)
    few = blocks.sizes * layout.pools // TABLE_REST
    for _ in range(MAX_ROUNDS):
        slope = float(state.root_slope.sum())
        if slope <= 0.0:
            # No leaf is active though G is positive. Begun with all leaves active this cannot
            # recur: from there the iterates decrease towards an optimum where some leaf is.
            blocks.run(_settle_blocks, noisy, layout, state, multiplier, EVERYTHING, False)
            slope = float(state.root_slope.sum())
        multiplier = (groups - float(state.root_offset.sum())) / slope
        blocks.run(_settle_blocks, noisy, layout, state, multiplier, SWEEPS, False)
        if state.moved.sum() <= few:
            break
    slope = float(state.root_slope.sum())
    return (groups - float(state.root_offset.sum())) / slope if slope > 0.0 else multiplier


def _ask_pilot(
    noisy: Int, layout: Layout, blocks: Blocks, state: State, groups: int, multiplier: float
) -> float:
    """Settle one block of large sizes first; returns a better first multiplier for all.

    Most sizes of a long table are alike: few groups and much noise. What the pilot's pools receive
    is expected in all other blocks, and by how much its sizes answer above the root's noisy counts
    (leaves cannot go below zero) is expected of all other sizes. One guess for all blocks leaves
    them independent, hence the result the same for any number of threads.
    """
    pilot, weight = blocks.count // 2, int(layout.weight[0])
    sizes = slice(pilot * blocks.width, (pilot + 1) * blocks.width)
    mode = POOLS
    for _ in range(PILOT_ROUNDS):
        _settle_blocks(pilot, pilot + 1, noisy, layout, state, multiplier, mode, True)
        mode = SWEEPS
        # Newton's step on Σ_s max(0, n + τ/w) + sizes · (what the pilot answers above that) = G.
        slopes = state.root_slope[sizes]
        alone = noisy[0] + multiplier / weight
        active = alone > 0.0
        beyond = float((state.root_offset[sizes] + slopes * multiplier).mean())
        beyond -= float(np.where(active, alone, 0.0)[sizes].mean())
        answers = float(alone[active].sum()) + blocks.sizes * beyond
        steeper = float(slopes.sum()) * weight - int(active[sizes].sum())
        slope = int(active.sum()) + blocks.sizes * steeper / len(slopes)
        if slope <= 0.0:
            break
        multiplier += weight * (groups - answers) / slope
    return multiplier


def _spread(row: Int, groups: float) -> float:
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
    tally: Leaves, leaf_weight: float, offset: Real, slope: Real, below: Leaves, above: Leaves
) -> None:
    for j in range(len(offset)):
        offset[j] = tally[SUM, j]
        slope[j] = tally[COUNT, j] / leaf_weight
    for j in range(len(offset)):
        below[j] = tally[BELOW, j]
        above[j] = tally[ABOVE, j]


@njit(cache=True, error_model="numpy")
def _settle_pool(
    own: Int,
    weight: float,
    leaf_weight: float,
    guess: float,
    leaves: Leaves,
    none: int,
    tally: Leaves,
    level: Real,
) -> None:
    """Solve one pool under its region alone, as if the region's τ_out were as guessed.

    Newton's method. Sets above a threshold are nested, so an unchanged count is an unchanged set.
    """
    for _ in range(MAX_POOL_PASSES):
        before, after = 0, 0
        for j in range(len(own)):
            gap = weight * (own[j] - float(tally[SUM, j]))
            level[j] = -(guess + gap) / (leaf_weight + weight * tally[COUNT, j])
            before += tally[COUNT, j]
        _set_threshold(level, tally, none)
        take_tally(leaves, tally, none)
        for j in range(len(own)):
            after += tally[COUNT, j]
        if after == before:
            break


@njit(cache=True, error_model="numpy")
def _answer(
    own: Int, weight: float, inner_offset: Real, inner_slope: Real, offset: Real, slope: Real
) -> None:
    """Add S' and k' of a node to its parent's row of the stacks."""
    for j in range(len(own)):
        lift = weight * inner_slope[j]
        share = 1.0 / (1.0 + lift)
        offset[j] += (inner_offset[j] + lift * own[j]) * share
        slope[j] += inner_slope[j] * share


@njit(cache=True, error_model="numpy")
def _descend(own: Int, weight: float, offset: Real, slope: Real, outer: Real, inner: Real) -> None:
    """τ_in of a node from τ_out."""
    for j in range(len(own)):
        inner[j] = (outer[j] + weight * (own[j] - offset[j])) / (1.0 + weight * slope[j])


@njit(cache=True, error_model="numpy")
def _has_moved(
    multiplier: Real, leaf_weight: float, below: Leaves, above: Leaves, level: Real
) -> int:
    """In how many lanes the active set is no longer {n > −τ/w}; FAR_COUNT more for a far one."""
    share = -1.0 / leaf_weight
    moved, far = 0, 0
    for j in range(len(level)):
        bar = multiplier[j] * share
        level[j] = bar
        moved += (bar < below[j]) | (bar >= above[j])
        far += (bar + FAR < below[j]) | (bar - FAR >= above[j])
    return moved + far * FAR_COUNT


@njit(cache=True)
def _move_row(source: Real, target: Real) -> None:
    for j in range(len(source)):
        target[j] = source[j]


@njit(cache=True)
def _fill(row: Real, value: float) -> None:
    for j in range(len(row)):
        row[j] = value


@njit(cache=True)
def _mean(row: Real, lanes: int) -> float:
    total = 0.0
    for j in range(lanes):
        total += row[j]
    return total / lanes


@njit(cache=True, error_model="numpy")
def _sweep(
    block: int,
    noisy: Int,
    layout: Layout,
    state: State,
    mode: int,
    note: bool,
    stacks: Real,
    tally: Leaves,
) -> int:
    """One walk down and up for the sizes of a block; how many active sets it changed.

    ``stacks`` holds rows by depth: τ_in, and the sums of S' and k'; the last row is for levels.
    """
    width, moved, none = state.offset.shape[2], 0, state.none
    start = block * width
    lanes = min(width, noisy.shape[1] - start)
    multiplier, offset, slope = stacks[0], stacks[1], stacks[2]
    level = stacks[0, stacks.shape[1] - 1, :lanes]
    node_offset, node_slope = state.offset[block], state.slope[block]
    _fill(offset[0], 0.0)
    _fill(slope[0], 0.0)
    # Invariant: the open branches are the ancestors of the node that comes next, each with
    # its τ_in in `multiplier` and the answers of its finished children in the other stacks.
    for node in range(len(layout.row)):
        own = noisy[max(layout.row[node], 0), start : start + lanes]
        depth, pool, weight = layout.depth[node], layout.pool[node], float(layout.weight[node])
        outer, inner = multiplier[depth], multiplier[depth + 1]
        if mode == SWEEPS:
            _descend(own, weight, node_offset[node], node_slope[node], outer, inner)
        if pool < 0:
            _fill(offset[depth + 1], 0.0)
            _fill(slope[depth + 1], 0.0)
            continue
        leaves = state.leaves[block, layout.first_leaf[node] : layout.first_leaf[node + 1]]
        below, above = state.below[block, pool], state.above[block, pool]
        leaf_weight = float(layout.leaf_weight[node])
        shifted = FAR_COUNT
        if mode == SWEEPS:
            shifted = _has_moved(inner, leaf_weight, below, above, level)
        else:
            _fill(level, state.bar[pool] if mode == POOLS else -np.inf)
        if shifted:
            moved += shifted
            _set_threshold(level, tally, none)
            take_tally(leaves, tally, none)
            if mode == POOLS:
                guess = state.guess[pool]
                _settle_pool(own, weight, leaf_weight, guess, leaves, none, tally, level)
            _keep_tally(tally, leaf_weight, node_offset[node], node_slope[node], below, above)
        if note and mode == SWEEPS:
            state.guess[pool] = _mean(outer, lanes)
            state.bar[pool] = -_mean(inner, lanes) / leaf_weight
        # The pool answers its parent; so does every branch of which it is the last node.
        current = node
        while True:
            row, depth = max(layout.row[current], 0), layout.depth[current]
            _answer(
                noisy[row, start : start + lanes],
                float(layout.weight[current]),
                node_offset[current],
                node_slope[current],
                offset[depth],
                slope[depth],
            )
            current = layout.above[current]
            if current < 0 or layout.stop[current] != node + 1:
                break
            _move_row(offset[layout.depth[current] + 1], node_offset[current])
            _move_row(slope[layout.depth[current] + 1], node_slope[current])
    return moved


@njit(cache=True, nogil=True)
def _settle_blocks(
    first: int,
    last: int,
    noisy: Int,
    layout: Layout,
    state: State,
    top: float,
    mode: int,
    note: bool,
) -> int:
    """Newton steps for every size until its active sets fit the multiplier ``top``.

    ``mode`` says how a block begins; ``note`` keeps the settled multipliers as guesses. With all
    leaves active it ends there, because ``top`` was not computed from them.
    """
    width = state.offset.shape[2]
    height = layout.depth.max() + 3
    stacks = np.full((3, height, width), top)
    tally = np.zeros((TALLIES, width), state.leaves.dtype)
    for block in range(first, last):
        start = block * width
        lanes = min(width, noisy.shape[1] - start)
        few = lanes * state.below.shape[1] // BLOCK_REST
        current = mode
        state.moved[block] = 0
        for _ in range(MAX_SWEEPS):
            moved = _sweep(block, noisy, layout, state, current, note, stacks, tally)
            state.sweeps[block] += 1
            state.moved[block] += moved
            if current == EVERYTHING or (current == SWEEPS and moved % FAR_COUNT <= few):
                break
            current = SWEEPS
        for j in range(lanes):
            state.root_offset[start + j] = stacks[1, 0, j]
            state.root_slope[start + j] = stacks[2, 0, j]
    return 0
