"""The arithmetic behind the gates: DuckDB puts each number beside the one it must equal.

Every query starts from the public tree, never from the rows that happen to be there, so that
a missing row shows as a row with NULL. Sums are taken in 128 bits and leave DuckDB as 64-bit
integers, or as NULL where they do not fit, where an addend is missing or where one is not
whole: no number passes through a float, in which 2^53 and 2^53 + 1 are equal.
"""

# ruff: noqa: S608 (queries are put together from constants; numbers go in as parameters)
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from pgsr_core.hierarchy import RegionTree
from pgsr_core.margins import BOUNDS, HALF_WIDTHS
from pgsr_core.postprocessing.protocol import PublicFacts

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

ROWS_AT_ONCE = 4_000_000
"""Rows of one frame of cells: about 70 MB, whatever the size of the release."""

PUBLISHED_COLUMNS = ("region_index", "size", "value")


class View(StrEnum):
    """The tables on which expectations are stated."""

    CELLS = "cells"
    """One row for every public region and size."""

    COLUMNS = "columns"
    """One row for every column of the table to be published."""

    EXTENT = "extent"
    """One row: how many rows there are, and how many lie outside the public grid."""

    LEVELS = "levels"
    """One row for every level."""

    ROOT = "root"
    """One row: the root."""

    REGION_TOTALS = "region totals"
    """One row for every public region."""

    REGION_TABLE = "region table"
    """One row for every region, of the public tree or of the stored table."""

    MARGINS = "margins"
    """One row for every public region and size, where margins are stated."""

    MARGINS_EXTENT = "extent of margins"
    """One row: how many rows of margins there are, and how many lie outside the public grid."""

    TYPICAL_MARGINS = "typical margins"
    """One row for every level and public size, where margins are stated."""

    TYPICAL_MARGINS_EXTENT = "extent of typical margins"
    """One row: how many rows of typical margins there are, and how many lie outside."""


@dataclass(frozen=True)
class Part:
    """A view or a slice of one: the query, its parameters, and the rows it must yield."""

    query: str
    rows: int
    parameters: Mapping[str, int] = field(default_factory=dict)


def _exact(column: str) -> str:
    """The column as a 64-bit integer; NULL where it is anything but a whole number."""
    return (
        f"CASE WHEN TRY_CAST({column} AS BIGINT) = {column} THEN TRY_CAST({column} AS BIGINT) END"
    )


# A cell that stands twice shows the sum of both, which is what a reader who adds up would see;
# that it stands twice is told by `occurrences`. A sum of children is known only when every
# child is there with a whole count.
_CELLS = f"""
WITH counts AS (
  SELECT region_index, size, {_exact("value")} AS whole
  FROM group_sizes WHERE size BETWEEN $first AND $last
), cells AS (
  SELECT region_index, size, count(*) AS occurrences,
    CASE WHEN count(whole) = count(*) THEN TRY_CAST(sum(whole) AS BIGINT) END AS value
  FROM counts GROUP BY region_index, size
), families AS (
  SELECT promised.parent_index AS region_index, cells.size,
    count(cells.value) AS known, sum(cells.value) AS total
  FROM cells JOIN temp.promised_regions AS promised USING (region_index)
  WHERE promised.parent_index IS NOT NULL
  GROUP BY promised.parent_index, cells.size
)
SELECT
  CAST(least(coalesce(cells.occurrences, 0), 2) AS TINYINT) AS occurrences,
  cells.value AS value,
  CASE WHEN promised.children = 0 THEN cells.value
       WHEN families.known = promised.children THEN TRY_CAST(families.total AS BIGINT)
  END AS children_total
FROM temp.promised_regions AS promised
CROSS JOIN range($first, $last + 1) AS sizes(size)
LEFT JOIN cells ON cells.region_index = promised.region_index AND cells.size = sizes.size
LEFT JOIN families
  ON families.region_index = promised.region_index AND families.size = sizes.size
"""

_COLUMNS = 'SELECT column_name AS "column", column_type AS "type" FROM (DESCRIBE group_sizes)'

_EXTENT = """
SELECT
  count(*) AS "rows",
  $cells::BIGINT AS cells,
  count(*) FILTER (
    WHERE promised.region_index IS NULL OR coalesce(size NOT BETWEEN $first AND $last, true)
  ) AS outside
FROM group_sizes LEFT JOIN temp.promised_regions AS promised USING (region_index)
"""

_TOTALS = f"""
WITH sums AS (
  SELECT region_index, count(*) AS "rows", count(whole) AS known, sum(whole) AS total
  FROM (SELECT region_index, {_exact("value")} AS whole FROM group_sizes)
  GROUP BY region_index
), totals AS (
  SELECT promised.level, promised.children, promised.groups AS promised_groups,
    CASE WHEN sums.known = sums."rows" THEN TRY_CAST(sums.total AS BIGINT) END AS total
  FROM temp.promised_regions AS promised LEFT JOIN sums USING (region_index)
)
"""

_REGION_TOTALS = f"{_TOTALS} SELECT total, promised_groups FROM totals"

_ROOT = f"{_TOTALS} SELECT total, $groups::BIGINT AS groups FROM totals WHERE level = 1"

# In a ragged tree a level is the regions of that level together with the leaves above it.
_LEVELS = f"""
{_TOTALS}
SELECT
  CASE WHEN count(totals.total) = count(*) THEN TRY_CAST(sum(totals.total) AS BIGINT) END AS total,
  $groups::BIGINT AS groups
FROM range(1, $levels + 1) AS levels(level)
JOIN totals
  ON totals.level = levels.level OR (totals.children = 0 AND totals.level < levels.level)
GROUP BY levels.level
"""

_REGION_TABLE = f"""
SELECT
  found.region AS region, promised.region AS promised_region,
  coalesce(found.parent, '') AS parent, coalesce(promised.parent, '') AS promised_parent,
  {_exact("found.level")} AS level, promised.level AS promised_level,
  {_exact("found.groups")} AS exact_groups, promised.groups AS promised_groups,
  found.groups IS NOT NULL AS has_groups
FROM temp.promised_regions AS promised
FULL JOIN regions AS found ON found.region_index = promised.region_index
"""

_WHOLE_BOUNDS = ", ".join(f"{_exact(name)} AS {name}" for name in BOUNDS)

_MARGINS = f"""
WITH counts AS (
  SELECT region_index, size, {_exact("value")} AS value
  FROM group_sizes WHERE size BETWEEN $first AND $last
), bounds AS (
  SELECT region_index, size, count(*) AS occurrences,
    {", ".join(f"min({name}) AS {name}" for name in BOUNDS)}
  FROM (SELECT region_index, size, {_WHOLE_BOUNDS} FROM margins
        WHERE size BETWEEN $first AND $last)
  GROUP BY region_index, size
)
SELECT
  CAST(least(coalesce(bounds.occurrences, 0), 2) AS TINYINT) AS occurrences,
  counts.value AS value, {", ".join(f"bounds.{name} AS {name}" for name in BOUNDS)}
FROM temp.promised_regions AS promised
CROSS JOIN range($first, $last + 1) AS sizes(size)
LEFT JOIN counts ON counts.region_index = promised.region_index AND counts.size = sizes.size
LEFT JOIN bounds ON bounds.region_index = promised.region_index AND bounds.size = sizes.size
"""

_MARGINS_EXTENT = _EXTENT.replace("group_sizes", "margins")

_TYPICAL_MARGINS = f"""
WITH typical AS (
  SELECT level_index, size, count(*) AS occurrences,
    {", ".join(f"min({_exact(name)}) AS {name}" for name in HALF_WIDTHS)}
  FROM margins_by_level GROUP BY level_index, size
)
SELECT
  CAST(least(coalesce(typical.occurrences, 0), 2) AS TINYINT) AS occurrences,
  {", ".join(f"typical.{name} AS {name}" for name in HALF_WIDTHS)}
FROM range(0, $levels) AS levels(level_index)
CROSS JOIN range($first, $last + 1) AS sizes(size)
LEFT JOIN typical ON typical.level_index = levels.level_index AND typical.size = sizes.size
"""

_TYPICAL_MARGINS_EXTENT = """
SELECT
  count(*) AS "rows",
  $cells::BIGINT AS cells,
  count(*) FILTER (WHERE coalesce(
    size NOT BETWEEN $first AND $last OR level_index NOT BETWEEN 0 AND $levels - 1, true
  )) AS outside
FROM margins_by_level
"""


def parts(view: View, facts: PublicFacts) -> tuple[Part, ...]:
    """The queries that together make up a view; only cells and margins come in slices."""
    tree, sizes = facts.tree, facts.sizes
    grid = {"first": facts.smallest_size, "last": facts.largest_size}
    groups, levels = {"groups": int(facts.groups)}, {"levels": tree.levels}
    typical = tree.levels * len(sizes)
    whole = {
        View.COLUMNS: Part(_COLUMNS, rows=len(PUBLISHED_COLUMNS)),
        View.EXTENT: Part(_EXTENT, 1, grid | {"cells": tree.regions * len(sizes)}),
        View.LEVELS: Part(_LEVELS, tree.levels, groups | levels),
        View.ROOT: Part(_ROOT, 1, groups),
        View.REGION_TOTALS: Part(_REGION_TOTALS, tree.regions),
        View.REGION_TABLE: Part(_REGION_TABLE, tree.regions),
        View.MARGINS_EXTENT: Part(_MARGINS_EXTENT, 1, grid | {"cells": tree.regions * len(sizes)}),
        View.TYPICAL_MARGINS: Part(_TYPICAL_MARGINS, typical, grid | levels),
        View.TYPICAL_MARGINS_EXTENT: Part(
            _TYPICAL_MARGINS_EXTENT, 1, grid | levels | {"cells": typical}
        ),
    }
    if view in whole:
        return (whole[view],)
    query = _CELLS if view is View.CELLS else _MARGINS
    step = max(1, ROWS_AT_ONCE // tree.regions)
    # Sizes never meet in a sum over children, so a slice of sizes can be judged on its own.
    slices = [sizes[start : start + step] for start in range(0, len(sizes), step)]
    return tuple(
        Part(query, tree.regions * len(part), {"first": part[0], "last": part[-1]})
        for part in slices
    )


def read(connection: duckdb.DuckDBPyConnection, part: Part) -> pd.DataFrame:
    """Run a query; integers stay integers, those with NULL in pandas' nullable type."""
    import pandas as pd

    columns = connection.execute(part.query, dict(part.parameters)).fetchnumpy()
    return pd.DataFrame({name: _column(values) for name, values in columns.items()}, copy=False)


def _column(values: np.ndarray | pd.Categorical) -> object:
    import pandas as pd

    if not isinstance(values, np.ma.MaskedArray):
        return values
    mask = np.ma.getmaskarray(values)
    if values.dtype.kind == "i":
        return pd.Series(pd.arrays.IntegerArray(values.data, mask))
    return pd.Series(values.data).mask(mask)


@contextmanager
def promised_regions(connection: duckdb.DuckDBPyConnection, facts: PublicFacts) -> Iterator[None]:
    """Show the public tree to DuckDB, as a view of this connection alone, for a while."""
    connection.register("promised_regions", _region_rows(facts.tree, facts))
    try:
        yield
    finally:
        connection.unregister("promised_regions")


def _region_rows(tree: RegionTree, facts: PublicFacts) -> object:
    import pyarrow as pa

    without_parent = tree.parent < 0
    return pa.table(
        {
            "region_index": pa.array(np.arange(tree.regions)),
            "region": pa.array(tree.names, pa.string()),
            "parent_index": pa.array(tree.parent, mask=without_parent),
            "parent": pa.array(
                [None if parent < 0 else tree.names[parent] for parent in tree.parent], pa.string()
            ),
            "level": pa.array(tree.level + 1),
            "children": pa.array(np.diff(tree.first_child)),
            "groups": pa.nulls(tree.regions, pa.int64())
            if facts.groups_by_region is None
            else pa.array(facts.groups_by_region, pa.int64()),
        }
    )
