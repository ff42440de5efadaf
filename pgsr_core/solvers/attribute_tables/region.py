"""Kernels inside one region: sums of cells to classes, components, and spreading over cells."""

from __future__ import annotations

from numba import njit

from pgsr_core.solvers.attribute_tables.plan import COLUMNS, ROWS, Plan
from pgsr_core.solvers.attribute_tables.schema import Real

# Sums may be vectorised; infinities and not-a-numbers keep their meaning.
REORDERED = {"reassoc", "contract", "nsz"}


@njit(cache=True, fastmath=REORDERED)
def sum_cells(plan: Plan, cells: Real, packed: Real) -> None:
    """Fill the packed vector with the margins of the cells."""
    packed[:] = 0.0
    columns = plan.columns
    for row in range(plan.rows):
        _sum_line(plan, row, cells[row * columns : (row + 1) * columns], packed)
    _sum_steps(plan, packed)


@njit(cache=True, fastmath=REORDERED)
def take_cells(plan: Plan, values: Real, cells: Real, packed: Real) -> None:
    """Copy measured values to the cells, and fill the packed vector with their margins."""
    packed[:] = 0.0
    columns = plan.columns
    for row in range(plan.rows):
        line = cells[row * columns : (row + 1) * columns]
        source = values[row * columns : (row + 1) * columns]
        for column in range(columns):
            line[column] = source[column]
        _sum_line(plan, row, line, packed)
    _sum_steps(plan, packed)


@njit(cache=True, inline="always")
def _sum_line(plan: Plan, row: int, line: Real, packed: Real) -> None:
    for sweep in range(len(plan.first)):
        kind, begin, width = plan.first[sweep]
        begin += plan.first_row[sweep, row] * width
        if kind == ROWS:
            total = 0.0
            for column in range(len(line)):
                total += line[column]
            packed[begin] += total
        elif kind == COLUMNS:
            target = packed[begin : begin + len(line)]
            for column in range(len(line)):
                target[column] += line[column]
        else:
            for column in range(len(line)):
                packed[begin + plan.first_column[sweep, column]] += line[column]


@njit(cache=True, inline="always")
def _sum_steps(plan: Plan, packed: Real) -> None:
    for step in range(len(plan.steps)):
        source, length, target, where = plan.steps[step]
        for place in range(length):
            packed[target + plan.maps[where + place]] += packed[source + place]


@njit(cache=True)
def take_components(plan: Plan, packed: Real) -> None:
    """Turn margins into components, in place: each class without what smaller ones say."""
    # Invariant: when a class is the smaller of a pair, its own components are final.
    for part in range(len(plan.parts)):
        take_part(plan, part, packed)


@njit(cache=True, inline="always")
def take_part(plan: Plan, part: int, packed: Real) -> None:
    """Take the components of one class out of a larger one."""
    larger, smaller, length, where = plan.parts[part]
    ratio = plan.part_ratio[part]
    for place in range(length):
        packed[larger + place] -= ratio * packed[smaller + plan.maps[where + place]]


@njit(cache=True, fastmath=REORDERED)
def spread(plan: Plan, packed: Real, cells: Real) -> None:
    """Add components of classes to the cells; the packed vector is used up."""
    for one in range(len(plan.density)):
        for place in range(plan.start[one], plan.start[one + 1]):
            packed[place] *= plan.density[one]
    packed[plan.small :] = 0.0
    # Invariant: what was taken last is given back first, so a table is complete when it is read.
    for step in range(len(plan.steps) - 1, -1, -1):
        source, length, target_begin, where = plan.steps[step]
        for place in range(length):
            packed[source + place] += packed[target_begin + plan.maps[where + place]]
    columns = plan.columns
    for row in range(plan.rows):
        line = cells[row * columns : (row + 1) * columns]
        for sweep in range(len(plan.first)):
            kind, begin, width = plan.first[sweep]
            begin += plan.first_row[sweep, row] * width
            if kind == ROWS:
                more = packed[begin]
                for column in range(columns):
                    line[column] += more
            elif kind == COLUMNS:
                source_row = packed[begin : begin + columns]
                for column in range(columns):
                    line[column] += source_row[column]
            else:
                for column in range(columns):
                    line[column] += packed[begin + plan.first_column[sweep, column]]
