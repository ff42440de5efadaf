"""Exact generalised least squares over a region tree and any set of tables, in closed form.

Minimises Σ over regions r and tables S of |margin_S(x[r]) − y[r, S]|² / v[r, S] over all x that
are consistent along the tree. Classes of interactions are uncorrelated, so each is one problem on
the tree with one variance a region (`weights`); docs/attribute-tables.md derives it.

What a region knows is kept in three parts. `cells` is the full table, passed along the tree with
the weights of the full table's class; that is wrong for its smaller classes. `known` holds
the components of the smaller classes, passed along with their own weights. `carried` holds what
`cells` says about the smaller classes. In the end known − carried is spread over the cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit, prange
from numpy.typing import ArrayLike, NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.attribute_tables.plan import Plan, make_plan
from pgsr_core.solvers.attribute_tables.region import spread, take_cells, take_components, take_part
from pgsr_core.solvers.attribute_tables.schema import Int, Map, Real, Schema, TablesDoNotFit
from pgsr_core.solvers.attribute_tables.threads import threads_for
from pgsr_core.solvers.attribute_tables.weights import (
    Weights,
    blend,
    by_region,
    determined,
    own_variances,
    weigh,
)
from pgsr_core.solvers.isotonic import read_only

Measured = Sequence[NDArray[np.int64] | NDArray[np.float64]]


class State(NamedTuple):
    """What is known of each region: cells (regions × n), known and carried (regions × classes)."""

    cells: Real
    known: Real
    carried: Real


class Facts(NamedTuple):
    """What decides how much a table counts: see `weights.blend`."""

    noise: Real
    sizes: Int
    measures: NDArray[np.bool_]
    own: Real


class Fit(NamedTuple):
    """The estimate.

    Attributes:
        cells: regions × cells of the full table; of smallest norm where that is not determined.
        weights: with the variances that are left.
        published: regions × tables: where the table is determined.
    """

    cells: Real
    weights: Weights
    published: NDArray[np.bool_]


def least_squares(
    tree: RegionTree,
    schema: Schema,
    measured: Measured,
    *,
    variances: ArrayLike,
    out: Real | None = None,
) -> Fit:
    """The best linear unbiased estimate under all equalities at once.

    Args:
        tree: the region tree.
        schema: attributes and tables.
        measured: for each table, regions × its cells; rows that were not measured are ignored.
        variances: of the noise, levels × tables or regions × tables; 0 is public, infinity is
            not measured.
        out: memory for the cells (regions × cells, C order), where there is some to use again.

    Raises:
        TablesDoNotFit: shapes or variances do not describe a problem.
    """
    plan = make_plan(schema)
    noise = by_region(tree, variances, schema)
    own = own_variances(schema, noise)
    weights = weigh(tree, own)
    state = gather_tables(tree, schema, plan, measured, noise=noise, own=own, out=out)
    gather(tree, weights, plan, state)
    hand_down(tree, weights, plan, state)
    return Fit(state.cells, weights, determined(schema, weights.variance))


def checked(tree: RegionTree, schema: Schema, measured: Measured) -> list[NDArray[np.generic]]:
    """The measurements as contiguous arrays of int64 or float64.

    Raises:
        TablesDoNotFit: a table is missing or has another shape.
    """
    found: list[NDArray[np.generic]] = []
    if len(measured) != len(schema.tables):
        raise TablesDoNotFit(
            f"{len(measured)} tables are given, and {len(schema.tables)} were measured. "
            "Remedy: give one array for each."
        )
    for table, values in zip(schema.tables, measured, strict=True):
        expected = (tree.regions, schema.size(table))
        if values.shape != expected or values.dtype.kind not in "if":
            raise TablesDoNotFit(
                f"table {table} has shape {values.shape} of {values.dtype}, expected {expected} "
                "of numbers. Remedy: one row a region, one column a cell."
            )
        wide = np.float64 if values.dtype.kind == "f" else np.int64
        found.append(read_only(np.ascontiguousarray(values, dtype=wide)))
    return found


def gather_tables(
    tree: RegionTree,
    schema: Schema,
    plan: Plan,
    measured: Measured,
    *,
    noise: Real,
    own: Real,
    out: Real | None = None,
) -> State:
    """What each region's own tables say together."""
    tables = checked(tree, schema, measured)
    state = State(
        np.empty((tree.regions, schema.cells)) if out is None else out,
        np.zeros((tree.regions, plan.small)),
        np.zeros((tree.regions, plan.packed)),
    )
    if schema.full not in schema.tables:
        state.cells[:] = 0.0
    facts = Facts(noise, schema.sizes, schema.measures, own)
    for place, (table, values) in enumerate(zip(schema.tables, tables, strict=True)):
        with threads_for(values.size):
            if table == schema.full:
                _take_full(plan, values, place, facts, state)
            else:
                inside, maps, parts = _maps_from(schema, plan, place)
                _take_table(plan, values, place, facts, inside, maps, parts, state.known)
    return state


def _maps_from(schema: Schema, plan: Plan, place: int) -> tuple[Int, Map, Int]:
    """The classes that a table tells of, the maps of its cells to each, and their parts."""
    table = schema.tables[place]
    inside = [p for p in schema.classes_within(table) if p < len(plan.density)]
    maps = [schema.margin_map(table, schema.classes[p]) for p in inside]
    parts = np.flatnonzero(np.isin(plan.parts[:, 0], plan.start[inside]))
    return np.array(inside, dtype=np.int64), np.stack(maps), parts


def gather(tree: RegionTree, weights: Weights, plan: Plan, state: State) -> None:
    """From the leaves up, in place: what is measured in and below a region."""
    for level in range(tree.levels - 2, -1, -1):
        start, stop = int(tree.level_start[level]), int(tree.level_start[level + 1])
        below = int(tree.level_start[level + 2]) - stop
        with threads_for(below * state.cells.shape[1]):
            _gather_level(start, stop, read_only(tree.first_child), weights.gain, plan, state)


def hand_down(tree: RegionTree, weights: Weights, plan: Plan, state: State) -> None:
    """From the root down, in place, and then all classes into the cells."""
    for level in range(tree.levels):
        start, stop = int(tree.level_start[level]), int(tree.level_start[level + 1])
        until = int(tree.level_start[min(level + 2, tree.levels)])
        with threads_for((until - start) * state.cells.shape[1]):
            _hand_down_level(start, stop, read_only(tree.first_child), weights.share, plan, state)


@njit(cache=True, parallel=True)
def _take_full(plan: Plan, values: Real, place: int, facts: Facts, state: State) -> None:
    cells, known, carried = state
    for region in prange(len(values)):
        work = (cells[region], known[region], carried[region])
        _take_region(plan, values[region], region, place, facts, work)


@njit(cache=True)
def _take_region(
    plan: Plan, values: Real, region: int, place: int, facts: Facts, work: tuple[Real, Real, Real]
) -> None:
    cells, known, carried = work
    noise, sizes, measures, own = facts
    if own[region, len(plan.density)] == np.inf:
        cells[:] = 0.0
        return
    take_cells(plan, values, cells, carried)
    take_components(plan, carried)
    for one in range(len(plan.density)):
        weight = blend(one, place, noise[region], sizes, measures, own[region])
        for cell in range(plan.start[one], plan.start[one + 1]):
            known[cell] += weight * carried[cell]


@njit(cache=True, parallel=True)
def _take_table(
    plan: Plan,
    values: Real,
    place: int,
    facts: Facts,
    inside: Int,
    maps: Map,
    parts: Int,
    known: Real,
) -> None:
    for region in prange(len(values)):
        _take_margins(
            plan, values[region], region, place, facts, inside, maps, parts, known[region]
        )


@njit(cache=True)
def _take_margins(
    plan: Plan,
    values: Real,
    region: int,
    place: int,
    facts: Facts,
    inside: Int,
    maps: Map,
    parts: Int,
    known: Real,
) -> None:
    noise, sizes, measures, own = facts
    if noise[region, place] == np.inf:
        return
    packed = np.empty(plan.small)
    for number in range(len(inside)):
        begin = plan.start[inside[number]]
        packed[begin : plan.start[inside[number] + 1]] = 0.0
        for cell in range(len(values)):
            packed[begin + maps[number, cell]] += values[cell]
    for part in parts:
        take_part(plan, part, packed)
    for one in inside:
        weight = blend(one, place, noise[region], sizes, measures, own[region])
        for cell in range(plan.start[one], plan.start[one + 1]):
            known[cell] += weight * packed[cell]


@njit(cache=True, parallel=True)
def _gather_level(
    start: int, stop: int, first_child: Int, gain: Real, plan: Plan, state: State
) -> None:
    cells, known, carried = state
    full = len(plan.density)
    for number in prange(stop - start):
        region = start + number
        begin, end = first_child[region], first_child[region + 1]
        if begin == end:
            continue
        _move_to_sum(cells, region, begin, end, 0, cells.shape[1], gain[region, full])
        _move_to_sum(carried, region, begin, end, 0, plan.small, gain[region, full])
        for one in range(full):
            here, there = plan.start[one], plan.start[one + 1]
            _move_to_sum(known, region, begin, end, here, there, gain[region, one])


@njit(cache=True)
def _move_to_sum(
    values: Real, region: int, begin: int, end: int, here: int, there: int, gain: float
) -> None:
    """Move a region's row from its own value towards the sum of its children's."""
    if gain == 0.0:
        return
    row = values[region, here:there]
    for place in range(len(row)):
        row[place] *= 1.0 - gain
    for child in range(begin, end):
        other = values[child, here:there]
        for place in range(len(row)):
            row[place] += gain * other[place]


@njit(cache=True, parallel=True)
def _hand_down_level(
    start: int, stop: int, first_child: Int, share: Real, plan: Plan, state: State
) -> None:
    """Finish the children of a level's regions, then put these regions' cells together."""
    cells, known, carried = state
    full = len(plan.density)
    for number in prange(stop - start):
        region = start + number
        begin, end = first_child[region], first_child[region + 1]
        if begin < end:
            missing = np.empty(max(cells.shape[1], plan.small))
            _give(cells, region, begin, end, 0, cells.shape[1], share[:, full], missing)
            _give(carried, region, begin, end, 0, plan.small, share[:, full], missing)
            for one in range(full):
                here, there = plan.start[one], plan.start[one + 1]
                _give(known, region, begin, end, here, there, share[:, one], missing)
        put_together(plan, known[region], carried[region], cells[region])


@njit(cache=True)
def _give(
    values: Real,
    region: int,
    begin: int,
    end: int,
    here: int,
    there: int,
    share: Real,
    missing: Real,
) -> None:
    """Give what a family's sum lacks to the children, each its share."""
    length = there - here
    missing[:length] = values[region, here:there]
    for child in range(begin, end):
        row = values[child, here:there]
        for place in range(length):
            missing[place] -= row[place]
    for child in range(begin, end):
        part = share[child]
        if part != 0.0:
            row = values[child, here:there]
            for place in range(length):
                row[place] += part * missing[place]


@njit(cache=True)
def put_together(plan: Plan, known: Real, carried: Real, cells: Real) -> None:
    """Spread what the smaller classes know beyond the cells; `carried` is used up."""
    for place in range(plan.small):
        carried[place] = known[place] - carried[place]
    spread(plan, carried, cells)
