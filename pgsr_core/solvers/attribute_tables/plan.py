"""How the cells of one region are summed to all classes, and how classes are spread over cells.

The full table is seen as rows × columns: the outer attributes by the inner ones. One sweep over it
fills a few *first* tables, each by sums of rows, by sums of columns, or by a map of the columns;
all others follow from those by short maps. Spreading goes the same way back. Everything that
belongs to the classes below the full table lies in one packed vector for each region.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pgsr_core.solvers.attribute_tables.schema import Int, Map, Real, Schema, Subset

ROWS, COLUMNS, MAPPED = 0, 1, 2
# What a step costs beside an addition of a vectorised sum: fitted by trying.
ROW_COST, MAPPED_COST, STEP_COST = 6, 4, 2
LARGEST_FIRST = 0.25


class Plan(NamedTuple):
    """Arrays for the kernels.

    Attributes:
        rows, columns: of the full table.
        packed: length of a region's packed vector; `small` of it are classes, then come tables
            that only serve as steps.
        start: where each class below the full table begins in the packed vector, and the end.
        first: for each sweep its kind, where its table begins, and the width of a row in it.
        first_row: sweeps × rows: which row of its table.
        first_column: sweeps × columns: which column of it (of mapped ones).
        steps: source's begin, source's length, target's begin, begin in `maps`.
        parts: pairs of classes, larger and smaller: their begins, length of the larger, begin in
            `maps`; in the order in which components are taken out.
        part_ratio: cells of the smaller over those of the larger.
        density: cells of the class over all cells, for each class below the full table.
        maps: all maps, one after the other.
    """

    rows: int
    columns: int
    packed: int
    small: int
    start: Int
    first: Int
    first_row: Map
    first_column: Map
    steps: Int
    parts: Int
    part_ratio: Real
    density: Real
    maps: Map


class _Maps:
    """Collects maps and says where each begins."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.found: list[Map] = []
        self.length = 0

    def add(self, source: Subset, target: Subset) -> int:
        begin = self.length
        self.found.append(self.schema.margin_map(source, target))
        self.length += len(self.found[-1])
        return begin

    def joined(self) -> Map:
        return np.concatenate([np.zeros(0, np.int32), *self.found]).astype(np.int32)


def make_plan(schema: Schema) -> Plan:
    """Choose the split into rows and columns, and lay everything out."""
    cut = min(_cuts(schema), key=lambda cut: (_cost(schema, cut), cut))
    small = schema.classes[:-1]
    firsts = _first_tables(schema, cut)
    helpers = [one for one in firsts if one not in small]
    begin: dict[Subset, int] = {}
    packed = 0
    for one in (*small, *helpers):
        begin[one] = packed
        packed += schema.size(one)
    maps = _Maps(schema)
    steps = _steps(schema, small, firsts, begin, maps)
    parts, ratios = _parts(schema, small, begin, maps)
    first, first_row, first_column = _sweeps(schema, cut, firsts, begin)
    ends = sum(schema.size(one) for one in small)
    return Plan(
        rows=math.prod(schema.domains[:cut]),
        columns=math.prod(schema.domains[cut:]),
        packed=packed,
        small=ends,
        start=np.array([*(begin[one] for one in small), ends], dtype=np.int64),
        first=first,
        first_row=first_row,
        first_column=first_column,
        steps=np.array(steps, dtype=np.int64).reshape(-1, 4),
        parts=np.array(parts, dtype=np.int64).reshape(-1, 4),
        part_ratio=np.array(ratios, dtype=np.float64),
        density=np.array([schema.size(one) / schema.cells for one in small], dtype=np.float64),
        maps=maps.joined(),
    )


def _cuts(schema: Schema) -> range:
    return range(len(schema.domains))


def _cost(schema: Schema, cut: int) -> float:
    rows = math.prod(schema.domains[:cut])
    cost = 0.0
    for one in _first_tables(schema, cut):
        mapped = _kind(schema, one, cut) == MAPPED
        cost += schema.cells * (MAPPED_COST if mapped else 1) + rows * ROW_COST
        cost += schema.size(one) * STEP_COST * len(schema.classes)
    return cost


def _kind(schema: Schema, one: Subset, cut: int) -> int:
    inner = sum(attribute >= cut for attribute in one)
    if inner == 0:
        return ROWS
    return COLUMNS if inner == len(schema.domains) - cut else MAPPED


def _first_tables(schema: Schema, cut: int) -> list[Subset]:
    """Tables to fill by sweeps, so that every class below the full table lies in one of them."""
    outer, inner = schema.full[:cut], schema.full[cut:]
    wanted: set[Subset] = set()
    for one in schema.classes[:-1]:
        outside = tuple(attribute for attribute in one if attribute < cut)
        if len(outside) == len(one):
            wanted.add(outer)
        elif schema.size((*outside, *inner)) <= LARGEST_FIRST * schema.cells:
            wanted.add((*outside, *inner))
        else:
            wanted.add(one)
    if wanted == {()} and cut > 0:
        wanted = {outer}
    return sorted(
        (one for one in wanted if not any(set(one) < set(other) for other in wanted)),
        key=lambda one: (len(one), one),
    )


def _steps(
    schema: Schema,
    small: tuple[Subset, ...],
    firsts: list[Subset],
    begin: dict[Subset, int],
    maps: _Maps,
) -> list[tuple[int, int, int, int]]:
    """Each class from the smallest table above it that is filled already, large ones first."""
    filled = list(firsts)
    steps = []
    for one in sorted(small, key=lambda one: (-len(one), one)):
        if one in firsts:
            continue
        source = min(
            (other for other in filled if set(one) < set(other)),
            key=lambda other: (schema.size(other), len(other), other),
        )
        steps.append((begin[source], schema.size(source), begin[one], maps.add(source, one)))
        filled.append(one)
    return steps


def _parts(
    schema: Schema, small: tuple[Subset, ...], begin: dict[Subset, int], maps: _Maps
) -> tuple[list[tuple[int, int, int, int]], list[float]]:
    parts, ratios = [], []
    for place, larger in enumerate(small):
        for smaller in small[:place]:
            if set(smaller) < set(larger):
                where = maps.add(larger, smaller)
                parts.append((begin[larger], begin[smaller], schema.size(larger), where))
                ratios.append(schema.size(smaller) / schema.size(larger))
    return parts, ratios


def _sweeps(
    schema: Schema, cut: int, firsts: list[Subset], begin: dict[Subset, int]
) -> tuple[Int, Map, Map]:
    outer, inner = schema.full[:cut], schema.full[cut:]
    table, rows, columns = [], [], []
    for one in firsts:
        inside = tuple(attribute for attribute in one if attribute >= cut)
        outside = tuple(attribute for attribute in one if attribute < cut)
        table.append((_kind(schema, one, cut), begin[one], schema.size(inside)))
        rows.append(schema.margin_map(outer, outside))
        columns.append(schema.margin_map(inner, inside))
    return (
        np.array(table, dtype=np.int64).reshape(-1, 3),
        _stacked(rows, schema.size(outer)),
        _stacked(columns, schema.size(inner)),
    )


def _stacked(maps: list[Map], width: int) -> NDArray[np.int32]:
    return np.array(maps, dtype=np.int32).reshape(-1, width)
