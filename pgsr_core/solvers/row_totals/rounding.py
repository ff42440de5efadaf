"""From the continuous optimum to integer potentials, and to a table that fits them.

Potentials are rounded; then each leaf's is moved until some table that fits has its total, and
that table is taken. What is left out of balance are a few units between regions and their
children, for the search to carry away. Where a cell may hold either of two numbers, units go to
those sizes that the leaf's siblings have left most short of the continuous optimum.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from pgsr_core.solvers.cpwl.blocks import Blocks
from pgsr_core.solvers.cpwl.layout import Int, Real
from pgsr_core.solvers.row_totals.network import Network
from pgsr_core.solvers.row_totals.window import Flow

FITTING_PASSES = 4
LARGEST_START = 2.0**58


def round_potentials(
    network: Network, blocks: Blocks, noisy: Int, tau: Real, multiplier: Real, totals: Int
) -> Flow:
    """Integer potentials beside the continuous ones, and a table that fits them."""
    potential = np.concatenate(
        [np.rint(-2.0 * multiplier), np.rint(2.0 * tau).reshape(-1), np.zeros(1)]
    )
    # Beyond this no optimal potential lies; a continuous stage that did not settle might.
    potential = np.clip(potential, -LARGEST_START, LARGEST_START).astype(np.int64)
    flow = Flow(noisy, np.empty_like(noisy), potential, np.zeros(len(potential), np.int64))
    parts = len(network.inner_row)
    blocks.run(_fit_nodes, network, flow, blocks.width, totals)
    _round_inner(network, flow, tau)
    blocks.run(_round_pools, network, flow, tau, multiplier, totals, parts=parts)
    flow.excess[-1] = flow.counts[0].sum() - totals.sum()
    return flow


@njit(cache=True)
def _least(noisy: int, difference: int, weight: int) -> int:
    """The least x that fits a difference of potentials."""
    return max(0, noisy - (weight - difference) // (2 * weight))


@njit(cache=True)
def _most(noisy: int, difference: int, weight: int) -> int:
    return max(0, noisy + (difference + weight) // (2 * weight))


@njit(cache=True)
def _total(noisy: Int, heads: Int, own: int, weight: int, most: bool) -> int:
    """The least or largest total of a row that fits its potential."""
    total = 0
    for s in range(len(noisy)):
        difference = heads[s] - own
        # Below w (1 − 2 n) not even the first unit pays.
        if difference >= weight * (1 - 2 * noisy[s]):
            if most:
                total += _most(noisy[s], difference, weight)
            else:
                total += _least(noisy[s], difference, weight)
    return total


@njit(cache=True)
def _fit_potential(noisy: Int, heads: Int, own: int, weight: int, total: int) -> int:
    """The largest potential at which the row can hold ``total``, from a guess nearby.

    Rows grow as it falls: find the largest at which the largest fitting total is enough. The
    totals that fit potentials p and p − 1 overlap, so that the least fits as well.
    """
    step = 1
    low, high = own, own
    while _total(noisy, heads, low, weight, True) < total:
        high = low
        low -= step
        step *= 2
    if low == own:
        high, step = own + 1, 1
        while _total(noisy, heads, high, weight, True) >= total:
            low = high
            high += step
            step *= 2
    # Invariant: enough at low, not at high.
    while high - low > 1:
        middle = low + (high - low) // 2
        if _total(noisy, heads, middle, weight, True) >= total:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True)
def _close_row(noisy: Int, heads: Int, weight: int) -> int:
    """A potential at which no size of an empty leaf wants a unit."""
    dearest = heads[0] - weight * (1 - 2 * noisy[0])
    for s in range(len(noisy)):
        dearest = max(dearest, heads[s] - weight * (1 - 2 * noisy[s]))
    return int(dearest)


@njit(cache=True)
def _fill_row(
    noisy: Int, heads: Int, own: int, weight: int, total: int, target: Real, debt: Real, counts: Int
) -> None:
    """The row of this total that fits, its free units where the debt is largest."""
    spare, either = total, 0
    free = np.empty(len(noisy), np.int64)
    for s in range(len(noisy)):
        counts[s] = 0
        difference = heads[s] - own
        if difference >= weight * (1 - 2 * noisy[s]):
            counts[s] = _least(noisy[s], difference, weight)
            spare -= counts[s]
            if _most(noisy[s], difference, weight) > counts[s]:
                free[either] = s
                either += 1
        debt[s] += max(0.0, noisy[s] + target[s]) - counts[s]
    if spare:
        keys = np.empty(either)
        for k in range(either):
            keys[k] = -debt[free[k]]
        for k in np.argsort(keys, kind="mergesort")[:spare]:
            counts[free[k]] += 1
            debt[free[k]] -= 1.0


@njit(cache=True, nogil=True)
def _fit_nodes(first: int, last: int, network: Network, flow: Flow, width: int, totals: Int) -> int:
    """Move potentials of inner nodes by a little until they can be in balance, bottom up."""
    leaves, sizes = len(network.leaf_row), flow.noisy.shape[1]
    least, most = np.empty(width, np.int64), np.empty(width, np.int64)
    for block in range(first, last):
        start, stop = block * width, min((block + 1) * width, sizes)
        for i in range(len(network.inner_row) - 1, -1, -1):
            for _ in range(FITTING_PASSES):
                least[:], most[:] = 0, 0
                own = flow.potential[leaves + i * sizes + start : leaves + i * sizes + stop]
                weight = network.leaf_weight[i]
                for leaf in range(network.first_leaf[i], network.first_leaf[i + 1]):
                    if totals[leaf]:
                        noisy = flow.noisy[network.leaf_row[leaf], start:stop]
                        tail = flow.potential[leaf]
                        for j in range(len(own)):
                            difference = own[j] - tail
                            if difference >= weight * (1 - 2 * noisy[j]):
                                least[j] += _least(noisy[j], difference, weight)
                                most[j] += _most(noisy[j], difference, weight)
                for child in range(network.first_inner[i], network.first_inner[i + 1]):
                    noisy = flow.noisy[network.inner_row[child], start:stop]
                    below = leaves + child * sizes + start
                    weight = network.weight[child]
                    for j in range(len(own)):
                        difference = own[j] - flow.potential[below + j]
                        least[j] += _least(noisy[j], difference, weight)
                        most[j] += _most(noisy[j], difference, weight)
                if not _move_misfits(network, flow, i, start, own, least, most):
                    break
    return 0


@njit(cache=True)
def _move_misfits(
    network: Network, flow: Flow, i: int, start: int, own: Int, least: Int, most: Int
) -> int:
    """Move the potentials at which children cannot hold what their region holds; how many."""
    leaves, sizes, moved = len(network.leaf_row), flow.noisy.shape[1], 0
    noisy, weight = flow.noisy[network.inner_row[i]], network.weight[i]
    for j in range(len(own)):
        above = leaves + network.above[i] * sizes + start + j if i else len(flow.potential) - 1
        difference = flow.potential[above] - own[j]
        if least[j] > _most(noisy[start + j], difference, weight):
            own[j] -= 1
            moved += 1
        elif most[j] < _least(noisy[start + j], difference, weight):
            own[j] += 1
            moved += 1
    return moved


@njit(cache=True, nogil=True)
def _round_pools(
    first: int, last: int, network: Network, flow: Flow, tau: Real, multiplier: Real, totals: Int
) -> int:
    leaves, sizes = len(multiplier), flow.noisy.shape[1]
    debt, target = np.empty(sizes), np.empty(sizes)
    for pool in range(first, last):
        weight = network.leaf_weight[pool]
        heads = flow.potential[leaves + pool * sizes : leaves + (pool + 1) * sizes]
        _open_debts(network, flow, tau, pool, debt)
        for leaf in range(network.first_leaf[pool], network.first_leaf[pool + 1]):
            noisy, counts = flow.noisy[network.leaf_row[leaf]], flow.counts[network.leaf_row[leaf]]
            if totals[leaf] == 0:
                counts[:] = 0
                flow.potential[leaf] = _close_row(noisy, heads, weight)
                continue
            own = _fit_potential(noisy, heads, flow.potential[leaf], weight, totals[leaf])
            flow.potential[leaf] = own
            for s in range(sizes):
                target[s] = (tau[pool, s] + multiplier[leaf]) / weight
            _fill_row(noisy, heads, own, weight, totals[leaf], target, debt, counts)
    return 0


@njit(cache=True)
def _open_debts(network: Network, flow: Flow, tau: Real, i: int, debt: Real) -> None:
    """What a region's leaves are to hold beyond what the continuous optimum gives them."""
    node = len(network.leaf_row) + i * len(debt)
    for s in range(len(debt)):
        debt[s] = -flow.excess[node + s] - _target(network, flow, tau, i, s)
    for child in range(network.first_inner[i], network.first_inner[i + 1]):
        for s in range(len(debt)):
            debt[s] += _target(network, flow, tau, child, s)


@njit(cache=True)
def _target(network: Network, flow: Flow, tau: Real, i: int, s: int) -> float:
    """The continuous optimum of an inner region."""
    outer = tau[network.above[i], s] if i else 0.0
    return float(flow.noisy[network.inner_row[i], s] + (outer - tau[i, s]) / network.weight[i])


@njit(cache=True)
def _round_inner(network: Network, flow: Flow, tau: Real) -> None:
    leaves, sizes = len(network.leaf_row), flow.noisy.shape[1]
    for i in range(len(network.inner_row)):
        row, weight = network.inner_row[i], network.weight[i]
        for s in range(sizes):
            tail = leaves + i * sizes + s
            head = leaves + network.above[i] * sizes + s if i else len(flow.potential) - 1
            difference = flow.potential[head] - flow.potential[tail]
            least = _least(flow.noisy[row, s], difference, weight)
            most = _most(flow.noisy[row, s], difference, weight)
            target = _target(network, flow, tau, i, s)
            flow.counts[row, s] = most if 2.0 * target > least + most else least
            flow.excess[tail] -= flow.counts[row, s]
            if i:
                flow.excess[head] += flow.counts[row, s]
