"""Whole numbers: given an integer parent and real children, integer children that add up to it.

Cell by cell the parent's integer is shared out: each child gets its value rounded down, and the
units that are left go to those with the largest fraction plus half of what rounding has cost their
total so far and half of what it has cost each of their one-way tables. So the error of a total
stays near that of one cell. Where public totals bind a child's sum, units move between siblings
within one cell, which no bound can forbid: columns keep their sums, and rows get theirs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.attribute_tables.problem import Problem, least_totals
from pgsr_core.solvers.attribute_tables.schema import Int, Map, Real, Schema
from pgsr_core.solvers.attribute_tables.threads import threads_for
from pgsr_core.solvers.isotonic import read_only

UNBOUNDED = 2**62
CARRIED = 0.5
HALF = 0.5
NEARLY = 1e-9


class Bounds(NamedTuple):
    """Fewest and most people of each region, as public totals in and below it say."""

    least: Int
    most: Int


def bounds_of(tree: RegionTree, totals: Int) -> Bounds:
    """Bounds from public totals."""
    least, exact = least_totals(tree, totals)
    return Bounds(least, np.where(exact, least, UNBOUNDED))


def one_way_maps(schema: Schema) -> Map:
    """Attributes × cells: the place of each cell in the one-way tables, one after the other."""
    begin = np.concatenate([[0], np.cumsum(schema.domains)])
    rows = [schema.margin_map(schema.full, (a,)) + begin[a] for a in range(len(schema.domains))]
    return np.stack(rows).astype(np.int32)


def to_integers(problem: Problem, cells: Real) -> Int:
    """Regions × cells: whole numbers ≥ 0, consistent along the tree, near real estimates.

    Each family's cells are first moved, as little as possible, to be non-negative and to add up to
    the parent's integers. Public totals and impossible cells are kept.
    """
    tree = problem.tree
    bounds, maps = bounds_of(tree, problem.totals), one_way_maps(problem.schema)
    found = np.zeros(cells.shape, dtype=np.int64)
    found[0] = round_root(cells[0], problem.possible, bounds, maps)
    for level in range(tree.levels - 1):
        start, stop = int(tree.level_start[level]), int(tree.level_start[level + 1])
        below = int(tree.level_start[level + 2]) - stop
        with threads_for(below * cells.shape[1]):
            _round_level(start, stop, read_only(tree.first_child), cells, bounds, maps, found)
    return found


def round_root(cells: Real, possible: NDArray[np.bool_], bounds: Bounds, maps: Map) -> Int:
    """The root's cells, and its total if it is public or bounded."""
    values = np.where(possible, np.maximum(cells, 0.0), 0.0)
    total = int(np.clip(round(float(np.where(possible, cells, 0.0).sum())), 0, None))
    total = int(np.clip(total, bounds.least[0], bounds.most[0])) if possible.any() else 0
    column = np.where(possible, cells, 0.0)[possible]
    settle(column, float(total))
    values[possible] = column
    found = np.empty(len(cells), dtype=np.int64)
    _round_row(values, maps, found)
    _fix_total(values, possible, found, total)
    return found


def _fix_total(values: Real, possible: NDArray[np.bool_], found: Int, total: int) -> None:
    missing = total - int(found.sum())
    while missing:
        step = 1 if missing > 0 else -1
        allowed = np.flatnonzero(possible if step > 0 else found > 0)
        order = np.argsort(-step * (values - found)[allowed], kind="stable")
        chosen = allowed[order[: abs(missing)]]
        found[chosen] += step
        missing -= step * len(chosen)


@njit(cache=True)
def settle(values: Real, total: float) -> None:
    """The nearest non-negative values with this sum, in place (Michelot 1986)."""
    members = len(values)
    active = np.ones(members, dtype=np.bool_)
    # Invariant: what has left the active set is zero in the projection.
    while True:
        count, held = 0, 0.0
        for place in range(members):
            if active[place]:
                count += 1
                held += values[place]
        if count == 0:
            return
        shift = (total - held) / count
        left = False
        for place in range(members):
            if active[place] and values[place] + shift < 0.0:
                active[place] = False
                left = True
        if not left:
            for place in range(members):
                values[place] = values[place] + shift if active[place] else 0.0
            return


@njit(cache=True)
def _round_row(values: Real, maps: Map, found: Int) -> None:
    total, one_way = 0.0, np.zeros(maps.max() + 1)
    for cell in range(len(values)):
        low = np.floor(values[cell] + NEARLY)
        part = values[cell] - low
        score = part + CARRIED * total
        for one in range(len(maps)):
            score += CARRIED * one_way[maps[one, cell]]
        up = 1 if part > NEARLY and score >= HALF else 0
        found[cell] = int(low) + up
        total += part - up
        for one in range(len(maps)):
            one_way[maps[one, cell]] += part - up


@njit(cache=True, parallel=True)
def _round_level(
    start: int, stop: int, first_child: Int, cells: Real, bounds: Bounds, maps: Map, found: Int
) -> None:
    least, most = bounds
    for number in prange(stop - start):
        region = start + number
        begin, end = first_child[region], first_child[region + 1]
        if begin < end:
            real = cells[begin:end].copy()
            round_family(
                found[region], real, least[begin:end], most[begin:end], maps, found[begin:end]
            )


@njit(cache=True)
def round_family(parent: Int, real: Real, least: Int, most: Int, maps: Map, found: Int) -> None:
    """Integers of one family; the real values are moved to add up."""
    column = np.empty(len(real))
    for cell in range(len(parent)):
        column[:] = real[:, cell]
        settle(column, float(parent[cell]))
        real[:, cell] = column
    bound = False
    for child in range(len(real)):
        bound |= least[child] > 0 or most[child] < UNBOUNDED
    if bound:
        _move_rows(real, least, most)
    _share_out(parent, real, maps, found)
    if bound:
        _repair_rows(real, least, most, found)


@njit(cache=True)
def _move_rows(real: Real, least: Int, most: Int) -> None:
    """Bring rows' sums into their bounds while columns keep theirs."""
    sums = real.sum(axis=1)
    lack = np.maximum(least - sums, 0.0)
    excess = np.maximum(sums - most, 0.0)
    room_down = np.maximum(sums - least, 0.0) - excess
    room_up = np.maximum(np.minimum(most - sums, 1e300), 0.0) - lack
    # What surplus and lack do not settle between them comes from, or goes to, rows with room.
    more = lack.sum() - excess.sum()
    if more > 0.0 and room_down.sum() > 0.0:
        excess += room_down * min(1.0, more / room_down.sum())
    elif more < 0.0 and room_up.sum() > 0.0:
        lack += room_up * min(1.0, -more / room_up.sum())
    if lack.sum() <= 0.0:
        return
    for cell in range(real.shape[1]):
        given = 0.0
        for child in range(len(real)):
            if sums[child] > 0.0 and excess[child] > 0.0:
                part = real[child, cell] * min(1.0, excess[child] / sums[child])
                real[child, cell] -= part
                given += part
        for child in range(len(real)):
            real[child, cell] += given * lack[child] / lack.sum()


@njit(cache=True)
def _share_out(parent: Int, real: Real, maps: Map, found: Int) -> None:
    children = len(real)
    total, one_way = np.zeros(children), np.zeros((children, maps.max() + 1))
    score, part = np.empty(children), np.empty(children)
    for cell in range(len(parent)):
        units = parent[cell]
        for child in range(children):
            low = np.floor(real[child, cell] + NEARLY)
            found[child, cell] = int(low)
            units -= int(low)
            part[child] = real[child, cell] - low
            score[child] = part[child] + CARRIED * total[child]
            for one in range(len(maps)):
                score[child] += CARRIED * one_way[child, maps[one, cell]]
            if part[child] <= NEARLY:
                score[child] -= 1e6
        _give_units(units, score, found[:, cell])
        for child in range(children):
            cost = real[child, cell] - found[child, cell]
            total[child] += cost
            for one in range(len(maps)):
                one_way[child, maps[one, cell]] += cost


@njit(cache=True)
def _give_units(units: int, score: Real, found: Int) -> None:
    """One unit each to the highest scores; or, should rounding down have given too much, back."""
    if units == 0:
        return
    order = np.argsort(-score, kind="mergesort")
    place = 0
    while units > 0:
        found[order[place % len(order)]] += 1
        units -= 1
        place += 1
    place = len(order) - 1
    while units < 0:
        if found[order[place]] > 0:
            found[order[place]] -= 1
            units += 1
        place = place - 1 if place > 0 else len(order) - 1


@njit(cache=True)
def _repair_rows(real: Real, least: Int, most: Int, found: Int) -> None:
    """Move units between siblings, the cheapest first, until every row is within its bounds."""
    sums = found.sum(axis=1)
    while True:
        over, under = -1, -1
        for child in range(len(found)):
            if sums[child] > most[child] and over < 0:
                over = child
            if sums[child] < least[child] and under < 0:
                under = child
        if over < 0 and under < 0:
            return
        # A row that must move takes part; without one, any row that has room does.
        gives = sums > least if over < 0 else np.arange(len(found)) == over
        takes = sums < most if under < 0 else np.arange(len(found)) == under
        giver, taker, cell = _cheapest_move(real, found, gives, takes)
        if giver < 0:
            return
        found[giver, cell] -= 1
        found[taker, cell] += 1
        sums[giver] -= 1
        sums[taker] += 1


@njit(cache=True)
def _cheapest_move(
    real: Real, found: Int, gives: NDArray[np.bool_], takes: NDArray[np.bool_]
) -> tuple[int, int, int]:
    """The unit whose move adds least to the squared distance: giver, taker and cell.

    No row may both give and take.
    """
    best, giver, taker, where = np.inf, -1, -1, -1
    for cell in range(found.shape[1]):
        give_cost, give, take_cost, take = np.inf, -1, np.inf, -1
        for child in range(len(found)):
            cost = real[child, cell] - found[child, cell]
            if gives[child] and found[child, cell] > 0 and cost < give_cost:
                give_cost, give = cost, child
            if takes[child] and -cost < take_cost:
                take_cost, take = -cost, child
        if give >= 0 and take >= 0 and give_cost + take_cost < best:
            best, giver, taker, where = give_cost + take_cost, give, take, cell
    return giver, taker, where
