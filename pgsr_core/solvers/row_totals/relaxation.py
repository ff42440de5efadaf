"""The continuous optimum: a Newton method on one multiplier for each leaf.

Write λ_r for half the multiplier of Σ_s x[r, s] = G_r and τ for half of what a region receives
from its parent. A leaf of weight w answers max(0, n + (λ_r + τ) / w), and for fixed λ every size
is a tree of its own, whose root receives τ = 0: the recursions of `cpwl.relaxation` settle it. The
totals of the rows, T(λ), are the gradient of a convex function, so T(λ) = G is solved by Newton's
method with conjugate gradients and a line search on the slope.

The Jacobian is Σ_s of tree operators on the active leaves of size s. Its preconditioner is one
tree for all sizes: with A_r the summed slopes of a leaf, and an inner region's weight set to
ω = 1 / R − 1 / K, where K and R sum its inner and outer slopes over sizes, the region answers a
common multiplier as it does in truth. That tree's inverse is explicit:
(M⁻¹ F)_r = F_r / A_r + Σ over the regions u above r of ω_u (Σ F of the leaves under u).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from pgsr_core.solvers.cpwl.blocks import Blocks
from pgsr_core.solvers.cpwl.layout import Int, Real
from pgsr_core.solvers.cpwl.pools import Leaves
from pgsr_core.solvers.row_totals.network import Mask, Network

MAX_NEWTON_STEPS = 40
MAX_CONJUGATE_STEPS = 60
MAX_SWEEPS = 40
MAX_HALVINGS = 8
# Rest when no leaf's multiplier is off by more than this, as far as its own slope tells: the
# integer stage rounds multipliers to halves.
REST = 0.02
# Conjugate gradients stop at this share of the residual.
FORCING = 0.1
STEEPEST = 0.7


class State(NamedTuple):
    """What is known of every node and leaf.

    Attributes:
        leaves: packed noisy counts of leaves, (blocks, leaves, width).
        own: noisy counts of inner regions, (inner regions, sizes).
        fixed: which leaves are empty by constraint.
        tau: τ that each inner region hands down, (inner regions, sizes).
        offset: S of each inner region, the same shape.
        slope: k of each inner region, the same shape.
        active: which leaves are above zero, shaped as ``leaves``.
        sums: of rows, for each block, (blocks, leaves).
        slopes: active cells of each leaf, for each block, the same shape.
    """

    leaves: Leaves
    own: Real
    fixed: Mask
    tau: Real
    offset: Real
    slope: Real
    active: Mask
    sums: Real
    slopes: Real


def relax(network: Network, blocks: Blocks, state: State, totals: Int) -> tuple[Real, int]:
    """The multipliers λ of leaves, with ``state.tau`` to match; and the Newton steps made."""
    goal = totals.astype(np.float64)
    multiplier = np.zeros(len(goal))
    blocks.run(_start_rows, network, state, goal, multiplier, parts=len(goal))
    residual = goal - _answer(network, blocks, state, multiplier)
    for step in range(MAX_NEWTON_STEPS):
        slopes = state.slopes.sum(axis=0)
        if np.abs(residual / np.maximum(slopes, 1.0)).max(initial=0.0) <= REST:
            return multiplier, step
        direction = _newton_direction(network, blocks, state, residual, slopes)
        multiplier, residual = _search(
            network, blocks, state, goal, multiplier, residual, direction
        )
    return multiplier, MAX_NEWTON_STEPS


def new_state(network: Network, blocks: Blocks, leaves: Leaves, noisy: Int, totals: Int) -> State:
    """Room for all; τ begins at 0."""
    nodes = (len(network.inner_row), blocks.sizes)
    rows = (blocks.count, len(network.leaf_row))
    return State(
        leaves,
        noisy[network.inner_row].astype(np.float64),
        (totals == 0).astype(np.uint8),
        np.zeros(nodes),
        np.empty(nodes),
        np.empty(nodes),
        np.zeros(leaves.shape, np.uint8),
        np.zeros(rows),
        np.zeros(rows),
    )


def _answer(network: Network, blocks: Blocks, state: State, multiplier: Real) -> Real:
    blocks.run(_settle_blocks, network, state, multiplier)
    sums: Real = state.sums.sum(axis=0)
    return sums


def _search(
    network: Network,
    blocks: Blocks,
    state: State,
    goal: Real,
    start: Real,
    residual: Real,
    direction: Real,
) -> tuple[Real, Real]:
    """Step along a direction of ascent until the slope has fallen, but not far below zero."""
    first = float(residual @ direction)
    length = 1.0
    for _ in range(MAX_HALVINGS):
        point = start + length * direction
        new = goal - _answer(network, blocks, state, point)
        slope = float(new @ direction)
        if slope >= -STEEPEST * first:
            break
        length *= min(max(first / (first - slope), 0.1), 0.6)
    return point, new


def _newton_direction(
    network: Network, blocks: Blocks, state: State, residual: Real, slopes: Real
) -> Real:
    """J⁻¹ F, roughly, by preconditioned conjugate gradients."""
    idle = slopes == 0.0
    diagonal = np.where(idle, 1.0, slopes)
    stiffness = _stiffness(network, state)
    solution = np.zeros_like(residual)
    rest = residual.copy()
    rest[state.fixed == 1] = 0.0
    fixed = state.fixed == 1
    scaled = _precondition(network, diagonal, stiffness, rest)
    scaled[fixed] = 0.0
    search = scaled.copy()
    energy = first = float(rest @ scaled)
    for _ in range(MAX_CONJUGATE_STEPS):
        if energy <= FORCING**2 * first:
            break
        blocks.run(_multiply_blocks, network, state, search)
        image = state.sums.sum(axis=0) + idle * search
        image[fixed] = 0.0
        curvature = float(search @ image)
        if curvature <= 0.0:
            break
        solution += energy / curvature * search
        rest -= energy / curvature * image
        scaled = _precondition(network, diagonal, stiffness, rest)
        scaled[fixed] = 0.0
        before, energy = energy, float(rest @ scaled)
        search = scaled + energy / before * search
    return solution


def _stiffness(network: Network, state: State) -> Real:
    inner = state.slope.sum(axis=1)
    lift = state.slope * network.weight[:, None]
    outer = (state.slope / (1.0 + lift)).sum(axis=1)
    safe = np.where(outer > 0.0, outer, 1.0)
    return np.where(outer > 0.0, 1.0 / safe - 1.0 / np.where(outer > 0.0, inner, 1.0), 0.0)


@njit(cache=True)
def _precondition(network: Network, diagonal: Real, stiffness: Real, residual: Real) -> Real:
    inner = len(network.inner_row)
    load = np.zeros(inner)
    for i in range(inner - 1, -1, -1):
        for leaf in range(network.first_leaf[i], network.first_leaf[i + 1]):
            load[i] += residual[leaf]
        if i:
            load[network.above[i]] += load[i]
    result = np.empty(len(residual))
    for i in range(inner):
        load[i] = stiffness[i] * load[i] + (load[network.above[i]] if i else 0.0)
        for leaf in range(network.first_leaf[i], network.first_leaf[i + 1]):
            result[leaf] = residual[leaf] / diagonal[leaf] + load[i]
    return result


@njit(cache=True, nogil=True, error_model="numpy")
def _start_rows(
    first: int, last: int, network: Network, state: State, goal: Real, multiplier: Real
) -> int:
    """λ of each leaf alone, as if τ were 0: Σ max(0, n + λ/w) = G by Newton from all active.

    From there it decreases to the solution, and an unchanged number of cells is an unchanged set.
    """
    sizes, width = state.own.shape[1], state.leaves.shape[2]
    for leaf in range(first, last):
        if goal[leaf] == 0.0:
            continue
        weight = float(network.leaf_weight[network.pool[leaf]])
        level, before = -np.inf, -1
        for _ in range(sizes):
            total, count = 0.0, 0
            for block in range(state.leaves.shape[0]):
                row = state.leaves[block, leaf, : min(width, sizes - block * width)]
                for j in range(len(row)):
                    on = row[j] > level
                    total += row[j] if on else 0.0
                    count += 1 if on else 0
            if count in (before, 0):
                break
            before = count
            level = (total - goal[leaf]) / count
        multiplier[leaf] = -level * weight
    return 0


@njit(cache=True, nogil=True, error_model="numpy")
def _settle_blocks(first: int, last: int, network: Network, state: State, multiplier: Real) -> int:
    """Settle every size of a block at the leaves' multipliers; then sum its rows."""
    width, sizes = state.leaves.shape[2], state.own.shape[1]
    count = np.zeros(width)
    for block in range(first, last):
        start, stop = block * width, min((block + 1) * width, sizes)
        for sweep in range(MAX_SWEEPS):
            if not _sweep(block, start, stop, network, state, multiplier, count) and sweep:
                break
        _sum_rows(block, start, stop, network, state, multiplier)
    return 0


@njit(cache=True, error_model="numpy")
def _sweep(
    block: int, start: int, stop: int, network: Network, state: State, multiplier: Real, count: Real
) -> bool:
    """Active sets from τ, then τ from active sets; whether any number of active leaves changed."""
    inner, lanes = len(network.inner_row), stop - start
    moved = False
    for i in range(inner):
        state.offset[i, start:stop] = 0.0
    for i in range(inner - 1, -1, -1):
        offset, slope = state.offset[i, start:stop], state.slope[i, start:stop]
        tau, own = state.tau[i, start:stop], state.own[i, start:stop]
        share = 1.0 / network.leaf_weight[i]
        count[:lanes] = 0.0
        for leaf in range(network.first_leaf[i], network.first_leaf[i + 1]):
            if not state.fixed[leaf]:
                _tally(
                    state.leaves[block, leaf], multiplier[leaf] * share, share, tau, offset, count
                )
        for j in range(lanes):
            count[j] *= share
        for child in range(network.first_inner[i], network.first_inner[i + 1]):
            lift, inside = float(network.weight[child]), state.slope[child, start:stop]
            for j in range(lanes):
                count[j] += inside[j] / (1.0 + lift * inside[j])
        changed = 0
        for j in range(lanes):
            changed += slope[j] != count[j]
            slope[j] = count[j]
        moved |= changed > 0
        if i:
            outer, weight = state.offset[network.above[i], start:stop], float(network.weight[i])
            for j in range(lanes):
                lift = weight * slope[j]
                outer[j] += (offset[j] + lift * own[j]) / (1.0 + lift)
    for i in range(inner):
        above, weight = max(network.above[i], 0), float(network.weight[i])
        offset, slope = state.offset[i, start:stop], state.slope[i, start:stop]
        tau, own = state.tau[i, start:stop], state.own[i, start:stop]
        outer = state.tau[above, start:stop]
        keep = 1.0 if i else 0.0
        for j in range(lanes):
            tau[j] = (keep * outer[j] + weight * (own[j] - offset[j])) / (1.0 + weight * slope[j])
    return moved


@njit(cache=True, error_model="numpy")
def _tally(row: Leaves, lift: float, share: float, tau: Real, offset: Real, count: Real) -> None:
    for j in range(len(tau)):
        value = row[j] + lift
        on = value + tau[j] * share > 0.0
        offset[j] += value if on else 0.0
        count[j] += 1.0 if on else 0.0


@njit(cache=True, error_model="numpy")
def _sum_rows(
    block: int, start: int, stop: int, network: Network, state: State, multiplier: Real
) -> None:
    for i in range(len(network.inner_row)):
        tau, share = state.tau[i, start:stop], 1.0 / network.leaf_weight[i]
        for leaf in range(network.first_leaf[i], network.first_leaf[i + 1]):
            if state.fixed[leaf]:
                continue
            row, active = state.leaves[block, leaf], state.active[block, leaf]
            lift, total, count = multiplier[leaf] * share, 0.0, 0
            for j in range(len(tau)):
                value = row[j] + lift + tau[j] * share
                on = value > 0.0
                active[j] = on
                total += value if on else 0.0
                count += on
            state.sums[block, leaf] = total
            state.slopes[block, leaf] = count * share


@njit(cache=True, nogil=True, error_model="numpy")
def _multiply_blocks(first: int, last: int, network: Network, state: State, change: Real) -> int:
    """How the sums of rows answer a small change of the leaves' multipliers, into ``sums``."""
    width, sizes, inner = state.leaves.shape[2], state.own.shape[1], len(network.inner_row)
    for block in range(first, last):
        start, stop = block * width, min((block + 1) * width, sizes)
        lanes = stop - start
        for i in range(inner):
            state.offset[i, start:stop] = 0.0
        for i in range(inner - 1, -1, -1):
            offset, slope = state.offset[i, start:stop], state.slope[i, start:stop]
            for leaf in range(network.first_leaf[i], network.first_leaf[i + 1]):
                active, lift = state.active[block, leaf], change[leaf] / network.leaf_weight[i]
                for j in range(lanes):
                    offset[j] += lift if active[j] else 0.0
            if i:
                outer, weight = state.offset[network.above[i], start:stop], float(network.weight[i])
                for j in range(lanes):
                    outer[j] += offset[j] / (1.0 + weight * slope[j])
        for i in range(inner):
            # From here on the row holds the change of τ.
            offset, slope = state.offset[i, start:stop], state.slope[i, start:stop]
            outer, weight = state.offset[max(network.above[i], 0), start:stop], network.weight[i]
            keep = 1.0 if i else 0.0
            for j in range(lanes):
                offset[j] = (keep * outer[j] - weight * offset[j]) / (1.0 + weight * slope[j])
            for leaf in range(network.first_leaf[i], network.first_leaf[i + 1]):
                active, own = state.active[block, leaf], change[leaf]
                total = 0.0
                for j in range(lanes):
                    total += own + offset[j] if active[j] else 0.0
                state.sums[block, leaf] = total / network.leaf_weight[i]
    return 0
