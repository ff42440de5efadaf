"""Upper levels first: nothing that a leaf's bound x ≥ 0 pushes up can reach the regions above it.

From the leaves up, every region learns what is measured in and below it (the first pass of the
closed form). Then, from the root down, the children of each region minimise the weighted squares of
those estimates under x ≥ 0 and Σ children = the parent's integers, and are made whole
(`integers`). Each family is a problem of its own, solved by alternating directions as in
`non_negative`; the closed form is that of a tree with one level below an exact root.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from pgsr_core.solvers.attribute_tables.closed_form import State, gather, put_together
from pgsr_core.solvers.attribute_tables.integers import (
    Bounds,
    bounds_of,
    one_way_maps,
    round_family,
    round_root,
)
from pgsr_core.solvers.attribute_tables.plan import Plan
from pgsr_core.solvers.attribute_tables.problem import Problem
from pgsr_core.solvers.attribute_tables.proximal import STIFFNESS, advance, mix
from pgsr_core.solvers.attribute_tables.region import sum_cells, take_components
from pgsr_core.solvers.attribute_tables.schema import Int, Map, Real
from pgsr_core.solvers.attribute_tables.threads import threads_for
from pgsr_core.solvers.attribute_tables.weights import weigh
from pgsr_core.solvers.isotonic import read_only

# Both residuals, in people.
TOLERANCE = 0.005
MOST_FAMILY_ROUNDS = 1000


class TopFirst(NamedTuple):
    """Whole numbers, and the largest number of rounds that a family needed."""

    cells: Int
    rounds: int


def top_first(problem: Problem) -> TopFirst:
    """Regions × cells: whole, non-negative, consistent, upper levels first."""
    tree, plan = problem.tree, problem.plan
    weights = weigh(tree, problem.own)
    state = State(*(part.copy() for part in problem.state))
    gather(tree, weights, plan, state)
    bounds, maps = bounds_of(tree, problem.totals), one_way_maps(problem.schema)
    found = np.zeros((tree.regions, problem.schema.cells), dtype=np.int64)
    real = np.empty((1, problem.schema.cells))
    rest = (plan, problem.possible, False, found[0])
    most = solve_family(0, 1, state, weights.upward, *rest, real)
    found[0] = round_root(real[0], problem.possible, bounds, maps)
    for level in range(tree.levels - 1):
        start, stop = int(tree.level_start[level]), int(tree.level_start[level + 1])
        rounds = np.zeros(stop - start, dtype=np.int64)
        below = int(tree.level_start[level + 2]) - stop
        with threads_for(below * found.shape[1]):
            _solve_level(
                start,
                stop,
                read_only(tree.first_child),
                state,
                weights.upward,
                plan,
                problem.possible,
                bounds,
                maps,
                found,
                rounds,
            )
        most = max(most, int(rounds.max()))
    return TopFirst(found, most)


@njit(cache=True, parallel=True)
def _solve_level(
    start: int,
    stop: int,
    first_child: Int,
    state: State,
    upward: Real,
    plan: Plan,
    possible: NDArray[np.bool_],
    bounds: Bounds,
    maps: Map,
    found: Int,
    rounds: Int,
) -> None:
    least, most = bounds
    for number in prange(stop - start):
        region = start + number
        begin, end = first_child[region], first_child[region + 1]
        if begin < end:
            real = np.empty((end - begin, found.shape[1]))
            rounds[number] = solve_family(
                begin, end, state, upward, plan, possible, True, found[region], real
            )
            round_family(
                found[region], real, least[begin:end], most[begin:end], maps, found[begin:end]
            )


@njit(cache=True)
def solve_family(
    begin: int,
    end: int,
    state: State,
    upward: Real,
    plan: Plan,
    possible: NDArray[np.bool_],
    bound: bool,
    parent: Int,
    real: Real,
) -> int:
    """Non-negative children of an exact parent (if `bound`); returns the rounds."""
    held = real
    cells0, known0, carried0 = (
        state.cells[begin:end],
        state.known[begin:end],
        state.carried[begin:end],
    )
    keep, share = _family_weights(upward[begin:end], bound)
    above = parent.astype(np.float64)
    above_parts = np.empty(plan.packed)
    sum_cells(plan, above, above_parts)
    take_components(plan, above_parts)
    cells, known, carried = cells0.copy(), known0.copy(), carried0.copy()
    for child in range(end - begin):
        put_together(plan, known[child], carried[child], cells[child])
        held[child] = cells[child]
    rounds, worst = 0, np.inf
    while worst > TOLERANCE and rounds < MOST_FAMILY_ROUNDS:
        rounds += 1
        for child in range(end - begin):
            mix(
                plan,
                held[child],
                possible,
                keep[child],
                (cells0[child], known0[child], carried0[child]),
                (cells[child], known[child], carried[child]),
            )
        if bound:
            _meet_parent(plan, above, above_parts, share, cells, known, carried)
        worst = 0.0
        for child in range(end - begin):
            put_together(plan, known[child], carried[child], cells[child])
            worst = max(worst, advance(cells[child], possible, held[child]))
    for child in range(end - begin):
        for cell in range(held.shape[1]):
            held[child, cell] = max(held[child, cell], 0.0) if possible[cell] else 0.0
    return rounds


@njit(cache=True)
def _family_weights(upward: Real, bound: bool) -> tuple[Real, Real]:
    """What own estimates count beside the proximal term, and shares of what a family lacks."""
    children, classes = upward.shape
    keep, share = np.empty((children, classes)), np.zeros((children, classes))
    for child in range(children):
        scale = upward[child, classes - 1]
        if not 0.0 < scale < np.inf:
            scale = 0.0
            for one in range(classes):
                if upward[child, one] < np.inf:
                    scale = max(scale, upward[child, one])
            if scale == 0.0:
                scale = 1.0
        extra = STIFFNESS / scale
        for one in range(classes):
            own = upward[child, one]
            if own == 0.0:
                keep[child, one] = 1.0
            elif own == np.inf:
                keep[child, one] = 0.0
                share[child, one] = 1.0 / extra
            else:
                keep[child, one] = 1.0 / (1.0 + own * extra)
                share[child, one] = own * keep[child, one]
    for one in range(classes):
        below = share[:, one].sum()
        for child in range(children):
            share[child, one] = share[child, one] / below if bound and below > 0.0 else 0.0
    return keep, share


@njit(cache=True)
def _meet_parent(
    plan: Plan, above: Real, above_parts: Real, share: Real, cells: Real, known: Real, carried: Real
) -> None:
    full = len(plan.density)
    missing = above.copy()
    missing_parts = above_parts.copy()
    missing_known = above_parts.copy()
    for child in range(len(cells)):
        missing -= cells[child]
        for place in range(plan.small):
            missing_parts[place] -= carried[child, place]
            missing_known[place] -= known[child, place]
    for child in range(len(cells)):
        part = share[child, full]
        for cell in range(len(missing)):
            cells[child, cell] += part * missing[cell]
        for place in range(plan.small):
            carried[child, place] += part * missing_parts[place]
        for one in range(full):
            part = share[child, one]
            for place in range(plan.start[one], plan.start[one + 1]):
                known[child, place] += part * missing_known[place]
