"""What the report reads: public-safe tables of the run's store, and nothing else.

Sums over all regions are DuckDB's; numbers of single regions are read for as many whole levels,
from the root down, as a page can hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pgsr_core.margins import MARGINS, MARGINS_BY_LEVEL
from tasks.publication.facts import BundleFacts
from tasks.storage.tables import LAYOUTS, MATRIX

if TYPE_CHECKING:
    import duckdb

Int = NDArray[np.int64]
MOST_CELLS = 5_000_000
"""Regions × sizes that a page holds: more would make a file that no browser likes to open."""
MOST_REGIONS = 100_000
"""Regions whose names a page holds, for the same reason."""
FITTED = "isotonic"


@dataclass(frozen=True)
class LevelSizes:
    """One level: its groups by size, summed over its regions.

    Attributes:
        level: from 1, the root's.
        regions: how many it has.
        counts: groups of each size in all of them.
        groups: in all, together with the regions that end above the level.
        half_widths: the typical margins of error of one region, for each of HALF_WIDTHS and by
            size; None where the release states none.
    """

    level: int
    regions: int
    counts: tuple[int, ...]
    groups: int
    half_widths: Int | None


@dataclass(frozen=True)
class ReportTables:
    """The numbers of a report.

    Attributes:
        ids: of the regions that the page holds, level by level.
        names: theirs; None where a region has none.
        parents: index of the region above, −1 for the root.
        region_levels: theirs, from 1.
        public_groups: the public number of groups, None where it is not public.
        released: groups of each size (regions × sizes).
        measured: the noisy measurements (regions × measured sizes).
        fitted: after the local isotonic fix; None where the mechanism has no such step.
        bounds: the margins of error of every count, for each of BOUNDS; None where the release
            states none.
        levels: every level, also those whose regions the page does not hold.
    """

    ids: tuple[str, ...]
    names: tuple[str | None, ...]
    parents: Int
    region_levels: Int
    public_groups: tuple[int | None, ...]
    released: Int
    measured: Int
    fitted: Int | None
    bounds: Int | None
    levels: tuple[LevelSizes, ...]

    def title(self, region: int) -> str:
        """What a region is called."""
        return self.names[region] or self.ids[region]

    @property
    def held_levels(self) -> int:
        """How many levels the page holds, from the root down."""
        return int(self.region_levels.max())


def read_report_tables(
    connection: duckdb.DuckDBPyConnection, facts: BundleFacts, *, most_cells: int = MOST_CELLS
) -> ReportTables:
    """Read what a report shows from a store whose tables are complete."""
    regions = _regions_to_hold(facts, most_cells)
    rows = connection.execute(
        """
        SELECT r.region, nullif(r."name", r.region), coalesce(p.region_index, -1), r."level",
               r.groups
        FROM regions AS r LEFT JOIN regions AS p ON r.parent = p.region
        WHERE r.region_index < $regions ORDER BY r.region_index
        """,
        {"regions": regions},
    ).fetchall()
    ids, names, parents, levels, groups = zip(*rows, strict=True)
    return ReportTables(
        ids=ids,
        names=names,
        parents=np.array(parents, dtype=np.int64),
        region_levels=np.array(levels, dtype=np.int64),
        public_groups=groups,
        released=_matrices(connection, "group_sizes", regions)[0],
        measured=_matrices(connection, "measurements", regions)[0],
        # A store may hold the table of a mechanism that was tried before.
        fitted=_matrices(connection, FITTED, regions)[0] if FITTED in facts.certificates else None,
        bounds=_matrices(connection, MARGINS, regions) if facts.states_margins else None,
        levels=_read_levels(connection, facts),
    )


def _regions_to_hold(facts: BundleFacts, most_cells: int) -> int:
    """Whole levels, the root always: regions are numbered level by level."""
    held = 0
    for level in facts.levels:
        regions = held + level.regions
        if held and (regions > MOST_REGIONS or regions * len(facts.sizes) > most_cells):
            break
        held = regions
    return held


def _matrices(connection: duckdb.DuckDBPyConnection, table: str, rows: int) -> Int:
    """The first rows of a table, a matrix for each of its values."""
    layout = LAYOUTS.get(table, MATRIX)
    (index, _), *_ = layout.columns
    found = connection.execute(
        f"""
        SELECT {", ".join(layout.values)} FROM {table}
        WHERE {index} < $rows ORDER BY {index}, size
        """,  # noqa: S608 (table and columns are constants)
        {"rows": rows},
    ).fetchnumpy()
    return np.stack([np.asarray(found[name], np.int64).reshape(rows, -1) for name in layout.values])


def _read_levels(
    connection: duckdb.DuckDBPyConnection, facts: BundleFacts
) -> tuple[LevelSizes, ...]:
    rows = connection.execute(
        """
        SELECT r."level", t.size, CAST(sum(t.value) AS BIGINT),
               CAST(coalesce(sum(t.value) FILTER (NOT r.has_children), 0) AS BIGINT)
        FROM group_sizes AS t
        JOIN (
            SELECT region_index, "level",
                   region IN (SELECT parent FROM regions WHERE parent IS NOT NULL) AS has_children
            FROM regions
        ) AS r USING (region_index)
        GROUP BY r."level", t.size ORDER BY r."level", t.size
        """
    ).fetchall()
    here: Mapping[int, list[int]] = {level.level: [] for level in facts.levels}
    in_leaves = {level.level: 0 for level in facts.levels}
    for level, _, count, leaves in rows:
        here[level].append(count)
        in_leaves[level] += leaves
    margins = None
    if facts.states_margins:
        margins = _matrices(connection, MARGINS_BY_LEVEL, len(facts.levels))
    found = []
    ended_above = 0
    for index, level in enumerate(facts.levels):
        counts = tuple(here[level.level])
        groups = sum(counts) + ended_above
        half_widths = None if margins is None else margins[:, index]
        found.append(LevelSizes(level.level, level.regions, counts, groups, half_widths))
        ended_above += in_leaves[level.level]
    return tuple(found)
