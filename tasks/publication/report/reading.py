"""What the report reads: public-safe tables of the run's store, and nothing else.

Sums over all regions, and over the sizes of a range, are DuckDB's; numbers of single regions are
read for as many whole levels, from the root down, as a page can hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pgsr_core.margins import MARGINS, MARGINS_BY_LEVEL
from pgsr_core.postprocessing.protocol import Query
from tasks.publication.facts import BundleFacts
from tasks.publication.report.bins import Range, size_bins
from tasks.storage.tables import LAYOUTS, MATRIX

if TYPE_CHECKING:
    import duckdb

Int = NDArray[np.int64]
MOST_CELLS = 5_000_000
"""Regions × sizes that a page holds: more would make a file that no browser likes to open."""
MOST_REGIONS = 100_000
"""Regions whose names a page holds, for the same reason."""
MEASURED, FITTED = "measurements", "isotonic"
_BINS = "(SELECT unnest($firsts) AS first, unnest($lasts) AS last) AS b"
_IN_BIN = "t.size BETWEEN b.first AND b.last"


@dataclass(frozen=True)
class LevelSizes:
    """One level: its groups by size, summed over its regions.

    Attributes:
        level: from 1, the root's.
        regions: how many it has.
        counts: groups of each size, or range of sizes, in all of them.
        groups: in all, together with the regions that end above the level.
        half_widths: the typical margins of error of one region, for each of HALF_WIDTHS and by
            size, of a range the widest of its sizes; None where the release states none.
    """

    level: int
    regions: int
    counts: tuple[int, ...]
    groups: int
    half_widths: Int | None


@dataclass(frozen=True)
class ReportTables:
    """The numbers of a report.

    Where sizes are shown in ranges (see bins.py), a column is a range: of counts it holds the
    sum; of measurements of "at least k" the one of the range's first size.

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
            states none, and where sizes are shown in ranges, whose sums have other margins.
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
    regions = regions_to_hold(facts, most_cells)
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
        released=_numbers(connection, "group_sizes", regions, facts),
        measured=_numbers(connection, MEASURED, regions, facts),
        # A store may hold the table of a mechanism that was tried before.
        fitted=_numbers(connection, FITTED, regions, facts)
        if FITTED in facts.certificates
        else None,
        bounds=_matrices(connection, MARGINS, regions)
        if facts.states_margins and size_bins(facts.sizes) is None
        else None,
        levels=_read_levels(connection, facts),
    )


def regions_to_hold(facts: BundleFacts, most_cells: int = MOST_CELLS) -> int:
    """Whole levels, the root always: regions are numbered level by level."""
    columns = len(size_bins(facts.sizes) or facts.sizes)
    held = 0
    for level in facts.levels:
        regions = held + level.regions
        if held and (regions > MOST_REGIONS or regions * columns > most_cells):
            break
        held = regions
    return held


def _numbers(
    connection: duckdb.DuckDBPyConnection, table: str, rows: int, facts: BundleFacts
) -> Int:
    """The first rows of a plain table, a column for each size or range of sizes."""
    bins = size_bins(facts.sizes)
    if bins is None:
        single: Int = _matrices(connection, table, rows)[0]
        return single
    picked = table in {MEASURED, FITTED} and facts.query == Query.CUMULATIVE
    found = connection.execute(
        f"""
        SELECT CAST(sum(t.value) AS BIGINT) AS value
        FROM {table} AS t JOIN {_BINS} ON {"t.size = b.first" if picked else _IN_BIN}
        WHERE t.region_index < $rows
        GROUP BY t.region_index, b.first ORDER BY t.region_index, b.first
        """,  # noqa: S608 (all parts are constants)
        {"rows": rows, **_bounds_of(bins)},
    ).fetchnumpy()
    numbers: Int = np.asarray(found["value"], np.int64).reshape(rows, -1)
    return numbers


def _bounds_of(bins: Sequence[Range]) -> dict[str, list[int]]:
    return {"firsts": [first for first, _ in bins], "lasts": [last for _, last in bins]}


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
    bins = size_bins(facts.sizes)
    column, join = ("t.size", "") if bins is None else ("b.first", f"JOIN {_BINS} ON {_IN_BIN}")
    rows = connection.execute(
        f"""
        SELECT r."level", {column}, CAST(sum(t.value) AS BIGINT),
               CAST(coalesce(sum(t.value) FILTER (NOT r.has_children), 0) AS BIGINT)
        FROM group_sizes AS t
        JOIN (
            SELECT region_index, "level",
                   region IN (SELECT parent FROM regions WHERE parent IS NOT NULL) AS has_children
            FROM regions
        ) AS r USING (region_index)
        {join}
        GROUP BY r."level", {column} ORDER BY r."level", {column}
        """,  # noqa: S608 (all parts are constants)
        {} if bins is None else _bounds_of(bins),
    ).fetchall()
    here: Mapping[int, list[int]] = {level.level: [] for level in facts.levels}
    in_leaves = {level.level: 0 for level in facts.levels}
    for level, _, count, leaves in rows:
        here[level].append(count)
        in_leaves[level] += leaves
    margins = _half_widths(connection, facts)
    found = []
    ended_above = 0
    for index, level in enumerate(facts.levels):
        counts = tuple(here[level.level])
        groups = sum(counts) + ended_above
        half_widths = None if margins is None else margins[:, index]
        found.append(LevelSizes(level.level, level.regions, counts, groups, half_widths))
        ended_above += in_leaves[level.level]
    return tuple(found)


def _half_widths(connection: duckdb.DuckDBPyConnection, facts: BundleFacts) -> Int | None:
    """Half-widths × levels × sizes, or ranges of sizes: of these the widest."""
    if not facts.states_margins:
        return None
    widths = _matrices(connection, MARGINS_BY_LEVEL, len(facts.levels))
    bins = size_bins(facts.sizes)
    if bins is None:
        return widths
    starts = [first - facts.smallest_size for first, _ in bins]
    widest: Int = np.maximum.reduceat(widths, starts, axis=2)
    return widest
