"""FGMC, region by region (You, Cai and Sun 2024): the paper's iteration, as the reference.

A region has a total t, one-way tables s¹ … sᵏ and the full table m. For one attribute they form a
tree of three levels, and formula (32) projects it onto consistent values. Each attribute in turn,
until a whole round changes nothing by TOLERANCE. Equal weights; values are real, and some negative.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, prange

from pgsr_core.solvers.attribute_tables.closed_form import Measured
from pgsr_core.solvers.attribute_tables.integers import one_way_maps
from pgsr_core.solvers.attribute_tables.schema import Int, Map, Real, Schema, TablesDoNotFit
from pgsr_core.solvers.attribute_tables.threads import threads_for
from pgsr_core.solvers.isotonic import read_only

TOLERANCE = 1e-6
MOST_ROUNDS = 100_000


class Fgmc(NamedTuple):
    """Cells of every region, and the rounds that each needed."""

    cells: Real
    rounds: Int


def paper_tables(attributes: int) -> list[list[int]]:
    """The total, every one-way table, and the full one."""
    tables = [[], *([attribute] for attribute in range(attributes)), list(range(attributes))]
    return tables if attributes > 1 else tables[:-1]


def fgmc(schema: Schema, measured: Measured, *, tolerance: float = TOLERANCE) -> Fgmc:
    """The paper's estimate in each region on its own.

    Raises:
        TablesDoNotFit: the tables are not the paper's.
    """
    wanted = [tuple(table) for table in paper_tables(len(schema.domains))]
    if set(wanted) != set(schema.tables):
        raise TablesDoNotFit(
            "FGMC is for the total, all one-way tables and the full table. "
            "Remedy: measure these, or choose another mechanism."
        )
    of = {table: np.asarray(values) for table, values in zip(schema.tables, measured, strict=True)}
    cells = of[schema.full].astype(np.float64)
    total = of[()][:, 0].astype(np.float64)
    one_way = np.concatenate([of[(a,)] for a in schema.full], axis=1).astype(np.float64)
    begin = np.concatenate([[0], np.cumsum(schema.domains)]).astype(np.int64)
    rounds = np.zeros(len(cells), dtype=np.int64)
    maps = one_way_maps(schema)
    if len(schema.domains) == 1:
        # The full table is the one-way table, measured once: one step is the projection.
        lack = (total - cells.sum(axis=1)) / (1 + schema.cells)
        return Fgmc(cells + lack[:, None], rounds + 1)
    with threads_for(cells.size):
        _fit(begin, read_only(maps), tolerance, total, one_way, cells, rounds)
    return Fgmc(cells, rounds)


@njit(cache=True, parallel=True)
def _fit(
    begin: Int, maps: Map, tolerance: float, total: Real, one_way: Real, cells: Real, rounds: Int
) -> None:
    for region in prange(len(cells)):
        for _ in range(MOST_ROUNDS):
            change = 0.0
            for one in range(len(maps)):
                here = one_way[region, begin[one] : begin[one + 1]]
                moved, total[region] = _project(
                    begin[one], maps[one], total[region], here, cells[region]
                )
                change = max(change, moved)
            rounds[region] += 1
            if change < tolerance:
                break


@njit(cache=True)
def _project(
    begin: int, places: Map, total: float, one_way: Real, cells: Real
) -> tuple[float, float]:
    """Formula (32) for one attribute; the largest change, and the new total."""
    values = len(one_way)
    each = len(cells) // values
    lack = one_way.copy()
    for cell in range(len(cells)):
        lack[places[cell] - begin] -= cells[cell]
    lack_total = total - one_way.sum()
    w, r = 1.0 + each, 1.0 + each + values * each
    common = lack_total / r + lack.sum() / (w * r)
    moved = abs((lack_total * w + lack.sum()) / r)
    total -= (lack_total * w + lack.sum()) / r
    for value in range(values):
        step = lack[value] / w - each * common
        one_way[value] -= step
        moved = max(moved, abs(step))
        lack[value] = lack[value] / w + common
        moved = max(moved, abs(lack[value]))
    for cell in range(len(cells)):
        cells[cell] += lack[places[cell] - begin]
    return moved, total
