"""The tables of a bundle: how DuckDB writes them, in order.

Rows are ordered by region and size; regions are numbered level by level, so that is also the
order by level. The order is asked for in SQL, never assumed, and rows stream to the file: what
does not fit in memory is spilled by DuckDB, not held by Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pgsr_core.documents.tables import published_tables
from pgsr_core.hierarchy import SHOWN_ROWS
from pgsr_core.margins import BOUNDS, HALF_WIDTHS, MARGINS, MARGINS_BY_LEVEL
from pgsr_core.scales import float_at_least
from tasks.publication.errors import FormulaLikeName, InconsistentFacts
from tasks.publication.facts import SIMULATION_NOTICE, BundleFacts

if TYPE_CHECKING:
    import duckdb

# What spreadsheets take for the start of a formula, full-width forms and leading blanks included.
FORMULA_START = r"^[\s]*[=+\-@＝＋－＠]"

# Options of DuckDB's COPY.
FORMATS = {
    "parquet": "FORMAT parquet, COMPRESSION zstd",
    "csv": "FORMAT csv, HEADER true, DELIMITER ',', QUOTE '\"'",
}
_LEVELS = '(SELECT DISTINCT "level" - 1 AS level_index FROM regions)'
QUERIES = {
    "regions": """
        SELECT region, nullif(parent, '') AS parent, "level", "name", groups
        FROM regions ORDER BY region_index
    """,
    "group_sizes": """
        SELECT r."level", r.region, t.size, t.value AS "count"
        FROM group_sizes AS t JOIN regions AS r USING (region_index)
        ORDER BY t.region_index, t.size
    """,
    MARGINS: """
        SELECT r."level", r.region, t.size, t.lower_90, t.upper_90, t.lower_95, t.upper_95
        FROM margins AS t JOIN regions AS r USING (region_index)
        ORDER BY t.region_index, t.size
    """,
    MARGINS_BY_LEVEL: """
        SELECT level_index + 1 AS "level", size, half_width_90, half_width_95
        FROM margins_by_level ORDER BY level_index, size
    """,
    "measurements": """
        SELECT r."level", r.region, t.size, t.value, s.scale
        FROM measurements AS t
        JOIN regions AS r USING (region_index)
        JOIN level_scales AS s USING ("level")
        ORDER BY t.region_index, t.size
    """,
}


def write_tables(
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    facts: BundleFacts,
    *,
    formats: Sequence[str],
) -> None:
    """Write every table in every format; the same store gives the same bytes.

    Raises:
        InconsistentFacts: a table has other rows than the facts imply.
        FormulaLikeName: a region's id or name could run as a formula in a spreadsheet.
    """
    _refuse_formulas(connection)
    _refuse_other_rows(connection, facts)
    # A temporary table: the store itself may be open read-only.
    connection.execute(
        'CREATE OR REPLACE TEMP TABLE level_scales ("level" INTEGER PRIMARY KEY, scale DOUBLE)'
    )
    try:
        for level in facts.levels:
            connection.execute(
                "INSERT INTO level_scales VALUES ($level, $scale)",
                {"level": level.level, "scale": float_at_least(level.scale)},
            )
        for table in published_tables(facts):
            for name in formats:
                _copy(connection, table.name, folder, name, simulation=facts.simulation)
    finally:
        connection.execute("DROP TABLE level_scales")


def _copy(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    folder: Path,
    form: str,
    *,
    simulation: bool,
) -> None:
    options = FORMATS[form]
    if simulation and form == "parquet":
        options += f", KV_METADATA {{notice: '{SIMULATION_NOTICE}'}}"
    path = folder / f"{table}.{form}"
    # Queries and options are constants of this module; the path alone varies, and is bound.
    connection.execute(f"COPY ({QUERIES[table]}) TO $path ({options})", {"path": str(path)})


def _refuse_formulas(connection: duckdb.DuckDBPyConnection) -> None:
    for column in ("region", "name"):
        rows = connection.execute(
            f"""
            SELECT region_index + 1 FROM regions
            WHERE regexp_matches("{column}", $pattern) ORDER BY region_index
            """,  # noqa: S608 (the column is one of two constants)
            {"pattern": FORMULA_START},
        ).fetchall()
        if rows:
            shown = tuple(int(row) for (row,) in rows[:SHOWN_ROWS])
            raise FormulaLikeName(
                table="regions",
                column=column,
                rows=shown,
                count=len(rows),
                detail="rows are counted level by level",
            )


def _refuse_other_rows(connection: duckdb.DuckDBPyConnection, facts: BundleFacts) -> None:
    """Refuse a store whose tables are not complete; a join would drop such rows in silence."""
    found = connection.execute(
        'SELECT "level", count(*) FROM regions GROUP BY "level" ORDER BY "level"'
    ).fetchall()
    if found != [(level.level, level.regions) for level in facts.levels]:
        raise InconsistentFacts("the table regions has other levels than the facts")
    wanted = [
        ("group_sizes", "value", facts.sizes),
        ("measurements", "value", facts.measured_sizes),
    ]
    if facts.states_margins:
        wanted.append((MARGINS, " + ".join(BOUNDS), facts.sizes))
        wanted.append((MARGINS_BY_LEVEL, " + ".join(HALF_WIDTHS), facts.sizes))
    for table, values, sizes in wanted:
        key, known, rows = ("region_index", "regions", facts.regions)
        if table == MARGINS_BY_LEVEL:
            key, known, rows = ("level_index", _LEVELS, len(facts.levels))
        row = connection.execute(
            f"""
            SELECT count(*), count({values}), count(known.{key}), min(size), max(size)
            FROM {table} LEFT JOIN {known} AS known USING ({key})
            """  # noqa: S608 (all parts are constants)
        ).fetchone()
        cells = rows * len(sizes)
        if row != (cells, cells, cells, sizes.start, sizes.stop - 1):
            raise InconsistentFacts(f"the table {table} has other cells than the facts")
