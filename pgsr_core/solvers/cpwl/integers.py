"""Integers from the continuous optimum: round from the root down, repair from the leaves up.

A branch hands its integer total to its children by largest remainders: their continuous answers,
moved so that they sum to the total, are rounded down after adding a common θ for which the rounded
ones sum to it as well. θ is found by bisection; children whose remainders it cannot tell apart
share what is left evenly. Rounded so, few exchanges are left to make.
A pool's own problem is solved exactly: with t the largest integer for which C(t) = Σ max(0, n + t)
is at most the total, leaves take max(0, n + t), and the rest v − C(t) is one more for some of those
with n + t ≥ 0. Their cost is equal, so the choice is free; it steps evenly through them from a
starting point scattered over pools and sizes, which favours no region.

On the way back up the marginal costs of each node are known from t and the rest alone, and a
branch with a paying exchange between its children is repaired (see ``exchange``).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from pgsr_core.solvers.cpwl.exchange import (
    INFINITE,
    Costs,
    balance_branch,
    refresh,
    scatter,
)
from pgsr_core.solvers.cpwl.layout import Int, Layout, Real
from pgsr_core.solvers.cpwl.pools import BELOW, COUNT, SUM, TALLIES, THRESHOLD, Leaves, take_tally
from pgsr_core.solvers.cpwl.relaxation import State

# Moves that a branch may need for each child before its start counts as distant.
MOVES_A_CHILD = 8
DISTANT = -(2**62)
# Blocks whose part of a row is written in one go.
BLOCKS_A_ROW = 64
# Children whose answers are kept while a branch looks for its θ.
KEPT = 64

# Bisections of θ: remainders nearer than 2 to this power below zero count as equal.
HALVINGS = 9
SIZE_HALVINGS = 20

# Rows of the working lanes of a pool.
LEVEL, REST, ELIGIBLE, PHASE = 0, 1, 2, 3
POOL_LANES = 4

# Rows of the working lanes of a branch: the children's multiplier, the bounds of θ with the sums
# they round to, the sum at hand, and the even steps through those whom θ cannot tell apart.
SHARE, LOW, HIGH, BELOW_TOTAL, ABOVE_TOTAL, ROUNDED, REMAINDER, BETWEEN, EVEN = range(9)
BRANCH_LANES = 9


@njit(cache=True, error_model="numpy")
def round_sizes(state: State, multiplier: float, groups: int, totals: Int) -> None:
    """Round the root's answers to integers that sum to G, as ``_open_branch`` does for children."""
    sizes = len(totals)
    answers = np.empty(sizes)
    for size in range(sizes):
        answer = state.root_offset[size] + state.root_slope[size] * multiplier
        answers[size] = answer if answer > 0.0 else 0.0
    low, high, below, above = -1.0, 1.0, 0.0, 0.0
    for _ in range(SIZE_HALVINGS):
        middle = 0.5 * (low + high)
        rounded = 0.0
        for size in range(sizes):
            rounded += np.floor(max(answers[size] + middle, 0.0))
        if rounded <= groups:
            low, below = middle, rounded
        else:
            high, above = middle, rounded
    rest, between = groups - np.int64(below), np.int64(max(above - below, 1.0))
    phase, left = np.int64(scatter(0, sizes) % np.uint64(between)), groups
    for size in range(sizes):
        least = np.int64(min(np.floor(max(answers[size] + low, 0.0)), float(groups)))
        phase += rest if np.floor(max(answers[size] + high, 0.0)) > least else 0
        least += phase >= between
        phase -= between if phase >= between else 0
        # No size gets more than is left, the last all of it: feasible whatever the answers are.
        given = left
        if size < sizes - 1 and least < left:
            given = int(least)
        totals[size] = given
        left -= given


@njit(cache=True, error_model="numpy")
def _guess_level(
    offset: Real,
    slope: Real,
    below: Leaves,
    above: Leaves,
    leaf_weight: float,
    total: Int,
    work: Int,
) -> int:
    """t, rest and eligible leaves from the active set at hand; in how many lanes they are unproven.

    With S and k of the set {n ≥ a}, t = floor((v − S) / k) is right if every leaf above −t is
    active and every active leaf is at least −t; the eligible leaves are the active ones unless an
    idle one lies at −t.
    """
    unproven = 0
    for j in range(len(total)):
        count = np.floor(slope[j] * leaf_weight + 0.5)
        active = count > 0.0
        level = np.floor((total[j] - offset[j]) / count) if active else -float(below[j])
        rest = total[j] - (offset[j] + count * level) if active else float(total[j])
        tied = (below[j] == -level) & (rest > 0.0)
        right = (below[j] <= -level) & (above[j] >= -level) & (rest >= 0.0) & (not tied)
        right &= (rest < count) | (rest == 0.0)
        work[LEVEL, j] = level
        work[REST, j] = rest
        work[ELIGIBLE, j] = count
        unproven += not right
    return unproven


@njit(cache=True)
def _find_level(leaves: Leaves, total: Int, none: int, tally: Leaves, work: Int) -> None:
    """The same by Newton's method in integers, from the levels in ``work``.

    C is convex and increasing. Above the root a step of ceil((C − v) / #{n + t ≥ 0}) down never
    passes it by more than the remainder; below, one step up may overshoot once. Each step from
    above shrinks C − v or the slope by half, so that there are few.
    """
    lanes = len(total)
    for j in range(lanes):
        # The answer lies between −max n and v − max n; a guess need not.
        work[LEVEL, j] = max(-none, min(none + total[j], work[LEVEL, j]))
    moving = True
    while moving:
        for j in range(lanes):
            tally[THRESHOLD, j] = max(-none, min(none, -work[LEVEL, j]))
        take_tally(leaves, tally, none)
        moving = False
        for j in range(lanes):
            count = np.int64(tally[COUNT, j])
            rest = total[j] - (tally[SUM, j] + count * work[LEVEL, j])
            work[REST, j] = rest
            work[ELIGIBLE, j] = count
            if count == 0:
                work[LEVEL, j] = -np.int64(tally[BELOW, j])
                moving = True
            elif rest < 0:
                work[LEVEL, j] -= (count - 1 - rest) // count
                moving = True
            elif rest >= count:
                work[LEVEL, j] += rest // count
                moving = True


@njit(cache=True)
def _share(values: Int, answer: Int, work: Int) -> None:
    """One leaf's counts: max(0, n + t), and one more where the even steps fall on it.

    Invariant: PHASE is below ELIGIBLE; it gains REST with each eligible leaf and gives one away
    when it passes ELIGIBLE, so that after all of them REST have been given.
    """
    for j in range(len(values)):
        lifted = values[j] + work[LEVEL, j]
        phase = work[PHASE, j] + (work[REST, j] if lifted >= 0 else 0)
        over = phase >= work[ELIGIBLE, j]
        work[PHASE, j] = phase - (work[ELIGIBLE, j] if over else 0)
        answer[j] = (lifted if lifted > 0 else 0) + (1 if over else 0)


@njit(cache=True)
def share_row(row: Int, groups: int, none: int) -> Int:
    """The optimum of a lone root: one pool whose leaves are the sizes."""
    work, tally = np.zeros((POOL_LANES, 1), np.int64), np.zeros((TALLIES, 1), np.int64)
    total, answer = np.array([groups]), np.empty((len(row), 1), np.int64)
    values = row.copy().reshape(-1, 1)
    _find_level(values, total, none, tally, work)
    _start_sharing(0, 0, 1, work)
    for i in range(len(row)):
        _share(values[i], answer[i], work)
    return answer.reshape(-1)


@njit(cache=True)
def _start_sharing(node: int, start: int, lanes: int, work: Int) -> None:
    for j in range(lanes):
        draw = scatter(node, start + j) >> np.uint64(33)
        if work[REST, j] > 0:
            work[PHASE, j] = np.int64((draw * np.uint64(work[ELIGIBLE, j])) >> np.uint64(31))
        else:
            work[ELIGIBLE, j] = 1
            work[PHASE, j] = 0


@njit(cache=True)
def _price_pool(
    work: Int, leaf_weight: int, own: Int, weight: int, total: Int, up: Int, down: Int
) -> None:
    """Marginal costs of a pool's node, from the level and the rest alone."""
    for j in range(len(total)):
        slant = 2 * leaf_weight * work[LEVEL, j]
        mine = 2 * weight * (total[j] - own[j])
        less = -slant - leaf_weight if work[REST, j] > 0 else leaf_weight - slant
        up[j] = slant + leaf_weight + mine + weight
        down[j] = less + weight - mine if total[j] > 0 else INFINITE


@njit(cache=True)
def _keep_level(work: Int, lanes: int, level: Leaves, rest: Leaves, eligible: Int) -> None:
    for j in range(lanes):
        level[j] = work[LEVEL, j]
        rest[j] = work[REST, j]
        eligible[j] = work[ELIGIBLE, j]


@njit(cache=True, error_model="numpy")
def _answers(
    own: Int, weight: float, offset: Real, slope: Real, share: Real, answers: Real
) -> None:
    """A child's continuous answers to its parent's multiplier."""
    for j in range(len(answers)):
        lift = weight * slope[j]
        answer = (offset[j] + lift * own[j] + slope[j] * share[j]) / (1.0 + lift)
        answers[j] = answer if answer > 0.0 else 0.0


@njit(cache=True, error_model="numpy")
def _add_rounded(answers: Real, rounding: Real) -> None:
    for j in range(len(answers)):
        lifted = answers[j] + 0.5 * (rounding[LOW, j] + rounding[HIGH, j])
        rounding[ROUNDED, j] += np.floor(lifted if lifted > 0.0 else 0.0)


@njit(cache=True, error_model="numpy")
def _halve(rounding: Real, total: Int) -> None:
    """Keep the half of [LOW, HIGH] that holds the θ for the total."""
    for j in range(len(total)):
        rounded = rounding[ROUNDED, j]
        middle = 0.5 * (rounding[LOW, j] + rounding[HIGH, j])
        fits = rounded <= total[j]
        rounding[LOW, j] = middle if fits else rounding[LOW, j]
        rounding[BELOW_TOTAL, j] = rounded if fits else rounding[BELOW_TOTAL, j]
        rounding[HIGH, j] = rounding[HIGH, j] if fits else middle
        rounding[ABOVE_TOTAL, j] = rounding[ABOVE_TOTAL, j] if fits else rounded
        rounding[ROUNDED, j] = 0.0


@njit(cache=True, error_model="numpy")
def _open_branch(
    noisy: Int,
    layout: Layout,
    node: int,
    start: int,
    offset: Real,
    slope: Real,
    total: Int,
    rounding: Real,
    bank: Real,
) -> None:
    """Find the children's multiplier and the θ for which their rounded answers sum to the total.

    Invariant of the bisection: rounded with θ = LOW the answers sum to BELOW_TOTAL ≤ total, with
    HIGH to ABOVE_TOTAL > total. Where clipped answers deny it such a start, totals are capped.
    """
    for j in range(len(total)):
        share = (total[j] - offset[node, j]) / slope[node, j]
        rounding[SHARE, j] = share if slope[node, j] > 0.0 else 0.0
        rounding[LOW, j] = -1.0
        rounding[HIGH, j] = 1.0
        rounding[BELOW_TOTAL, j] = 0.0
        rounding[ABOVE_TOTAL, j] = 0.0
        rounding[ROUNDED, j] = 0.0
    for halving in range(HALVINGS):
        child, nth = node + 1, 0
        while child < layout.stop[node]:
            answers = bank[min(nth, KEPT), : len(total)]
            if halving == 0 or nth >= KEPT:
                own = noisy[max(layout.row[child], 0), start : start + len(total)]
                weight = float(layout.weight[child])
                _answers(own, weight, offset[child], slope[child], rounding[SHARE], answers)
            _add_rounded(answers, rounding)
            child = layout.stop[child]
            nth += 1
        _halve(rounding, total)
    for j in range(len(total)):
        between = rounding[ABOVE_TOTAL, j] - rounding[BELOW_TOTAL, j]
        between = between if between > 1.0 else 1.0
        rounding[REMAINDER, j] = total[j] - rounding[BELOW_TOTAL, j]
        rounding[BETWEEN, j] = between
        draw = np.float64(np.int64(scatter(node, start + j) >> np.uint64(12))) * 2.0**-52
        rounding[EVEN, j] = np.floor(draw * between)


@njit(cache=True, error_model="numpy")
def _receive(answers: Real, rounding: Real, final: bool, left: Int, total: Int) -> None:
    """A child's integer totals; those between LOW and HIGH share the remainder evenly.

    Invariant: ``left`` is what the parent has still to give; no child gets more, the last all.
    """
    for j in range(len(total)):
        low, high = answers[j] + rounding[LOW, j], answers[j] + rounding[HIGH, j]
        least = np.floor(low if low > 0.0 else 0.0)
        most = np.floor(high if high > 0.0 else 0.0)
        even = rounding[EVEN, j] + (rounding[REMAINDER, j] if most > least else 0.0)
        over = even >= rounding[BETWEEN, j]
        rounding[EVEN, j] = even - (rounding[BETWEEN, j] if over else 0.0)
        answers[j] = least + (1.0 if over else 0.0)
    for j in range(len(total)):
        capped = answers[j] if answers[j] < left[j] else float(left[j])
        mine = left[j] if final else min(np.int64(capped), left[j])
        total[j] = mine
        left[j] -= mine


@njit(cache=True, nogil=True)
def round_blocks(
    first: int,
    last: int,
    costs: Costs,
    layout: Layout,
    state: State,
    eligible: Int,
    totals: Int,
    exact: bool,
) -> int:
    """Totals of all nodes for the sizes of these blocks, and levels and rests of the pools.

    ``costs.up`` and ``costs.down`` may share the memory of ``state.offset`` and ``state.slope``,
    and levels and rests take the place of ``state.below`` and ``state.above``: a pool's are written
    after its state was last read.
    """
    width = costs.up.shape[2]
    height = layout.depth.max() + 2
    rounding, lane_answers = np.zeros((height, BRANCH_LANES, width)), np.zeros(width)
    total, left = np.zeros((height, width), np.int64), np.zeros((height, width), np.int64)
    work, bank = np.zeros((POOL_LANES, width), np.int64), np.zeros((KEPT + 1, width))
    tally = np.zeros((TALLIES, width), state.leaves.dtype)
    for block in range(first, last):
        start = block * width
        lanes = min(width, costs.noisy.shape[1] - start)
        answers, offset, slope = lane_answers[:lanes], state.offset[block], state.slope[block]
        for j in range(lanes):
            total[0, j] = totals[start + j]
        # Invariant: the open branches are the ancestors of the node that comes next; `total`
        # holds their totals by depth, `left` how much of them they have still to give.
        for node in range(len(layout.row)):
            depth, row, pool = layout.depth[node], layout.row[node], layout.pool[node]
            weight, mine = layout.weight[node], total[depth, :lanes]
            own = costs.noisy[max(row, 0), start : start + lanes]
            if depth > 0:
                above = rounding[depth - 1]
                final = layout.stop[node] == layout.stop[layout.above[node]]
                _answers(own, float(weight), offset[node], slope[node], above[SHARE], answers)
                _receive(answers, above, final, left[depth - 1], mine)
            if row >= 0:
                _copy_row(mine, costs.counts[row, start : start + lanes])
            if pool < 0:
                _copy_row(mine, left[depth])
                _open_branch(
                    costs.noisy,
                    layout,
                    node,
                    start,
                    offset,
                    slope,
                    mine,
                    rounding[depth],
                    bank,
                )
                continue
            below, above_leaf = state.below[block, pool], state.above[block, pool]
            leaf_weight = layout.leaf_weight[node]
            unproven = _guess_level(
                offset[node], slope[node], below, above_leaf, float(leaf_weight), mine, work
            )
            if unproven or not exact:
                leaves = state.leaves[block, layout.first_leaf[node] : layout.first_leaf[node + 1]]
                _find_level(leaves, mine, state.none, tally, work)
            _keep_level(work, lanes, below, above_leaf, eligible[block, pool])
            up, down = costs.up[block, node], costs.down[block, node]
            _price_pool(work, leaf_weight, own, weight, mine, up, down)
    return 0


@njit(cache=True)
def _copy_row(source: Int, target: Int) -> None:
    for j in range(len(source)):
        target[j] = source[j]


@njit(cache=True, nogil=True)
def share_rows(
    first: int, last: int, noisy: Int, counts: Int, layout: Layout, state: State, eligible: Int
) -> int:
    """Counts of the leaves of nodes ``first:last``, from their pools' levels and rests.

    Whole rows are read and written, or long parts of them: memory is slow at anything less.
    """
    width, sizes = state.below.shape[2], noisy.shape[1]
    long_row = BLOCKS_A_ROW * width
    work = np.zeros((POOL_LANES, min(sizes, long_row)), np.int64)
    for node in range(first, last):
        pool = layout.pool[node]
        if pool < 0:
            continue
        for start in range(0, sizes, long_row):
            lanes = min(long_row, sizes - start)
            for block in range(start // width, (start + lanes + width - 1) // width):
                base = block * width - start
                level, rest = state.below[block, pool], state.above[block, pool]
                among = eligible[block, pool]
                for j in range(min(width, lanes - base)):
                    work[LEVEL, base + j] = level[j]
                    work[REST, base + j] = rest[j]
                    work[ELIGIBLE, base + j] = among[j]
            _start_sharing(node, start, lanes, work)
            for i in range(layout.first_leaf[node], layout.first_leaf[node + 1]):
                region = layout.leaf_row[i]
                values = noisy[region, start : start + lanes]
                _share(values, counts[region, start : start + lanes], work)
    return 0


@njit(cache=True)
def _gather(costs: Costs, layout: Layout, node: int, block: int, up: Int, down: Int) -> int:
    """The least up and down of a branch's children, lane by lane; how many children."""
    for j in range(len(up)):
        up[j] = INFINITE
        down[j] = INFINITE
    child, children = node + 1, 0
    while child < layout.stop[node]:
        child_up, child_down = costs.up[block, child], costs.down[block, child]
        for j in range(len(up)):
            up[j] = min(up[j], child_up[j])
            down[j] = min(down[j], child_down[j])
        child = layout.stop[child]
        children += 1
    return children


@njit(cache=True)
def _add_own_cost(own: Int, total: Int, weight: int, up: Int, down: Int, pays: Int) -> int:
    """Add a branch's own cost to its children's least; in how many lanes an exchange pays."""
    paying = 0
    for j in range(len(total)):
        pays[j] = up[j] + down[j] < 0
        paying += pays[j]
        slant = 2 * weight * (total[j] - own[j])
        up[j] += slant + weight
        down[j] = down[j] + weight - slant if down[j] < INFINITE else INFINITE
    return paying


@njit(cache=True, nogil=True)
def repair_blocks(first: int, last: int, costs: Costs, layout: Layout) -> int:
    """Exchange under every branch where it pays; the moves made, or DISTANT.

    DISTANT: some branch needed too many, and was left feasible but not optimal.
    """
    width, moves, distant = costs.up.shape[2], 0, False
    pays = np.zeros(width, np.int64)
    for block in range(first, last):
        start = block * width
        lanes = min(width, costs.noisy.shape[1] - start)
        # Invariant: the nodes after `node`, its subtree among them, are optimal for their totals.
        for node in range(len(layout.row) - 1, -1, -1):
            if layout.pool[node] >= 0:
                continue
            up, down = costs.up[block, node, :lanes], costs.down[block, node, :lanes]
            children = _gather(costs, layout, node, block, up, down)
            row, weight = layout.row[node], layout.weight[node]
            own = costs.noisy[row, start : start + lanes]
            total = costs.counts[row, start : start + lanes]
            if not _add_own_cost(own, total, weight, up, down, pays):
                continue
            for j in range(lanes):
                if not pays[j]:
                    continue
                size = start + j
                made = balance_branch(costs, layout, node, size, 1, MOVES_A_CHILD * children)
                distant |= made < 0
                moves += made
                refresh(costs, layout, node, size, 1)
    return DISTANT if distant else moves
