"""The tables of a bundle: what their columns mean, and how DuckDB writes them, in order.

Rows are ordered by region and size; regions are numbered level by level, so that is also the
order by level. The order is asked for in SQL, never assumed, and rows stream to the file: what
does not fit in memory is spilled by DuckDB, not held by Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pgsr_core.hierarchy import SHOWN_ROWS
from pgsr_core.margins import BOUNDS, HALF_WIDTHS, MARGINS, MARGINS_BY_LEVEL
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.scales import float_at_least
from tasks.publication.errors import FormulaLikeName, InconsistentFacts
from tasks.publication.facts import SIMULATION_NOTICE, BundleFacts

if TYPE_CHECKING:
    import duckdb

# What spreadsheets take for the start of a formula, full-width forms and leading blanks included.
FORMULA_START = r"^[\s]*[=+\-@＝＋－＠]"


@dataclass(frozen=True)
class Column:
    """A published column: its type in Data Package words and what it means."""

    name: str
    type: str
    description: str
    required: bool = True
    minimum: int | None = None


@dataclass(frozen=True)
class Table:
    """A published table: a query on the run's store, and what the columns mean."""

    name: str
    title: str
    description: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    query: str


@dataclass(frozen=True)
class Format:
    """A file format of tables, with its options for DuckDB's COPY."""

    name: str
    mediatype: str
    options: str


FORMATS = {
    "parquet": Format(
        "parquet", "application/vnd.apache.parquet", "FORMAT parquet, COMPRESSION zstd"
    ),
    "csv": Format("csv", "text/csv", "FORMAT csv, HEADER true, DELIMITER ',', QUOTE '\"'"),
}

_LEVEL = Column("level", "integer", "Level of the region; 1 is the root's.", minimum=1)
_REGION = Column("region", "string", "Id of the region.")
_LEVELS = '(SELECT DISTINCT "level" - 1 AS level_index FROM regions)'


def published_tables(facts: BundleFacts) -> tuple[Table, ...]:
    """Describe every table of a bundle, in the order in which they are listed."""
    tables = (_regions(facts), _group_sizes(facts), _measurements(facts))
    return (*tables, _margins(facts), _margins_by_level(facts)) if facts.states_margins else tables


def _regions(facts: BundleFacts) -> Table:
    known = "not public here, hence empty" if facts.units_from_data else "from the unit table"
    return Table(
        name="regions",
        title="The region tree",
        description="One row for every region.",
        columns=(
            _REGION,
            Column("parent", "string", "Id of the region above; empty for the root.", False),
            _LEVEL,
            Column("name", "string", "Name of the region, where it has one.", False),
            Column("groups", "integer", f"The public number of groups, {known}.", False, minimum=0),
        ),
        key=("region",),
        query="""
            SELECT region, nullif(parent, '') AS parent, "level", "name", groups
            FROM regions ORDER BY region_index
        """,
    )


def _group_sizes(facts: BundleFacts) -> Table:
    return Table(
        name="group_sizes",
        title="Groups by size in each region",
        description="The released counts; one row for every region and size.",
        columns=(
            _LEVEL,
            _REGION,
            _size(facts),
            Column("count", "integer", "Number of groups of that size.", minimum=0),
        ),
        key=("region", "size"),
        query="""
            SELECT r."level", r.region, t.size, t.value AS "count"
            FROM group_sizes AS t JOIN regions AS r USING (region_index)
            ORDER BY t.region_index, t.size
        """,
    )


def _size(facts: BundleFacts) -> Column:
    top = facts.largest_size
    words = f"Size of the groups; {top} stands for {top} and more."
    return Column("size", "integer", words, minimum=facts.smallest_size)


def _margins(facts: BundleFacts) -> Table:
    bounds = [
        Column(
            f"{side}_{percent}",
            "integer",
            f"{words} end of the {percent}% interval for the true number of groups.",
            minimum=0,
        )
        for percent in (90, 95)
        for side, words in (("lower", "Lower"), ("upper", "Upper"))
    ]
    return Table(
        name=MARGINS,
        title="Margins of error",
        description=(
            "For every released count an interval that holds the true number of groups with 90% "
            "and with 95% confidence, whatever that number is: of all releases that could have "
            "been drawn, at least so many have an interval that holds it. Computed from the "
            "measurements and the law of their noise, at no cost to privacy; one row for every "
            "region and size."
        ),
        columns=(_LEVEL, _REGION, _size(facts), *bounds),
        key=("region", "size"),
        query="""
            SELECT r."level", r.region, t.size, t.lower_90, t.upper_90, t.lower_95, t.upper_95
            FROM margins AS t JOIN regions AS r USING (region_index)
            ORDER BY t.region_index, t.size
        """,
    )


def _margins_by_level(facts: BundleFacts) -> Table:
    half_widths = [
        Column(
            f"half_width_{percent}",
            "integer",
            f"{percent}% of the level's counts of that size are at most so far from the truth.",
            minimum=0,
        )
        for percent in (90, 95)
    ]
    return Table(
        name=MARGINS_BY_LEVEL,
        title="Typical margins of error",
        description=(
            "How far counts of a level and size typically are from the truth, by simulating noise "
            f"and steps like those of the release {facts.margin_repetitions} times on its result; "
            "one row for every level and size."
        ),
        columns=(_LEVEL, _size(facts), *half_widths),
        key=("level", "size"),
        query="""
            SELECT level_index + 1 AS "level", size, half_width_90, half_width_95
            FROM margins_by_level ORDER BY level_index, size
        """,
    )


def _measurements(facts: BundleFacts) -> Table:
    if facts.query == Query.CUMULATIVE:
        size = "A size k; the value counts groups of size at least k."
        value = "Noisy number of groups of size at least k; may be negative."
    else:
        size = "Size of the groups."
        value = "Noisy number of groups of that size; may be negative."
    return Table(
        name="measurements",
        title="Noisy measurements",
        description=(
            "The differentially private measurements from which the released counts were "
            "computed; one row for every region and measured size."
        ),
        columns=(
            _LEVEL,
            _REGION,
            Column("size", "integer", size, minimum=facts.measured_sizes.start),
            Column("value", "integer", value),
            Column(
                "scale",
                "number",
                "Scale of the double-geometric noise, P(X = v) ∝ exp(−|v| / scale); exact in "
                "privacy.json.",
            ),
        ),
        key=("region", "size"),
        query="""
            SELECT r."level", r.region, t.size, t.value, s.scale
            FROM measurements AS t
            JOIN regions AS r USING (region_index)
            JOIN level_scales AS s USING ("level")
            ORDER BY t.region_index, t.size
        """,
    )


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
                _copy(connection, table, folder, FORMATS[name], simulation=facts.simulation)
    finally:
        connection.execute("DROP TABLE level_scales")


def _copy(
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    folder: Path,
    form: Format,
    *,
    simulation: bool,
) -> None:
    options = form.options
    if simulation and form.name == "parquet":
        options += f", KV_METADATA {{notice: '{SIMULATION_NOTICE}'}}"
    path = folder / f"{table.name}.{form.name}"
    # Queries and options are constants of this module; the path alone varies, and is bound.
    connection.execute(f"COPY ({table.query}) TO $path ({options})", {"path": str(path)})


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
