"""An input table opened for SQL: its columns found and typed, its rows never fetched.

CSV cells stay text, so that no cast can fail inside DuckDB with a value in its message; names
of CSV columns never reach SQL. A DuckDB file is attached read only, which streams and spills as
the other kinds do.
"""

# ruff: noqa: S608 (the SQL is put together from roles, types and quoted names; values are bound)
from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pgsr_core.errors import InputError
from tasks.ingestion.errors import (
    DuplicateColumn,
    MissingColumn,
    MissingHeader,
    MissingTable,
    UnreadableFile,
    WrongEncoding,
    WrongType,
)
from tasks.ingestion.files import TableFiles
from tasks.ingestion.statements import execute, identifier, result_types

if TYPE_CHECKING:
    import duckdb

_ATTACHED = "pgsr_source"
_LONGEST_HEADER_LINE = 1_000_000
_HEADER_LINES = 100
_CSV_OPTIONS = (
    "auto_detect = false, header = true, delim = ',', quote = '\"', escape = '\"', "
    "nullstr = '', strict_mode = true, null_padding = false, ignore_errors = false, "
    "compression = 'none'"
)
_SMALL_INTEGERS = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
)
INTEGERS = _SMALL_INTEGERS | {"UBIGINT", "HUGEINT", "UHUGEINT"}
FLOATS = frozenset({"FLOAT", "DOUBLE"})
_WHOLE_DECIMAL = re.compile(r"DECIMAL\([0-9]+,\s*0\)")


@dataclass(frozen=True)
class _Part:
    """Files that one reader call can take together."""

    reader: str
    cells: Mapping[str, str]
    files: tuple[int, ...]


@dataclass(frozen=True)
class OpenTable:
    """A table that queries can scan, by roles instead of the columns' own names.

    Attributes:
        connection: the connection that may read the files.
        files: where the table is.
        columns: role → the column's name, for messages.
        types: role → DuckDB's name of the type.
    """

    connection: duckdb.DuckDBPyConnection
    files: TableFiles
    columns: Mapping[str, str]
    types: Mapping[str, str]
    parts: tuple[_Part, ...]

    @property
    def parameters(self) -> dict[str, list[str]]:
        """What `scan` binds: the paths."""
        if self.files.table is not None:
            return {}
        return {
            self._parameter(number): [str(self.files.files[file]) for file in part.files]
            for number, part in enumerate(self.parts)
        }

    def scan(self) -> str:
        """Write a query that gives all rows, one column a role."""
        return " UNION ALL ".join(
            _select(part, self._parameter(number)) for number, part in enumerate(self.parts)
        )

    def numbered_scans(self) -> Iterator[tuple[int, str, dict[str, list[str]]]]:
        """Give for each file its number, a query with a column ``row``, and what it binds.

        DuckDB numbers the rows of an unordered window in the order of the file.
        """
        parts = sorted((file, part) for part in self.parts for file in part.files)
        for file, part in parts:
            sql = _select(part, "file", extra='row_number() OVER () AS "row", ')
            bound = {} if self.files.table else {"file": [str(self.files.files[file])]}
            yield file + 1, sql, bound

    def key(self, role: str, *, integer: bool) -> str:
        """Write an id's value for comparison: BIGINT, or else text with empty as null.

        Neither can be taken for non-null on the word of a Parquet file's statistics.
        """
        if integer:
            return f"CAST({role} AS BIGINT) | 0"
        return f"NULLIF(CAST({role} AS VARCHAR), '')"

    def is_integer(self, role: str) -> bool:
        """Say whether every value of an id fits BIGINT by its type (comparing is cheaper then)."""
        return self.types[role] in _SMALL_INTEGERS

    def _parameter(self, number: int) -> str:
        return f"{self.files.label}_{number}"


@contextmanager
def open_table(
    connection: duckdb.DuckDBPyConnection,
    files: TableFiles,
    *,
    columns: Mapping[str, str],
    optional: Mapping[str, str] | None = None,
) -> Iterator[OpenTable]:
    """Find the columns of a table in each of its files.

    Args:
        connection: a connection that may read ``files.readable``.
        files: where the table is.
        columns: role → name of a column that must be there.
        optional: role → name of a column that may be missing from all the files.

    Raises:
        InputError: a file cannot be read, or a column is missing, doubled or of a type that
            cannot hold an id (a column of role ``quantity``: a number).
    """
    if files.table is not None:
        _attach(connection, files)
    try:
        headers = [_header(connection, files, number) for number in range(len(files.files))]
        wanted = dict(columns)
        for role, name in (optional or {}).items():
            if any(name in header for header in headers):
                wanted[role] = name
        for number, header in enumerate(headers, start=1):
            _check_header(header, wanted, files, number)
        parts = _parts(headers, wanted, files)
        table = OpenTable(connection, files, wanted, {}, parts)
        types = result_types(connection, table.scan(), table.parameters, reads=[files])
        for role, type_name in types.items():
            _check_type(role, type_name, wanted[role], files)
        yield OpenTable(connection, files, wanted, types, parts)
    finally:
        if files.table is not None:
            execute(connection, f"DETACH DATABASE IF EXISTS {_ATTACHED}", reads=[files])


def _attach(connection: duckdb.DuckDBPyConnection, files: TableFiles) -> None:
    execute(
        connection,
        f"ATTACH $path AS {_ATTACHED} (TYPE duckdb, READ_ONLY)",
        {"path": str(files.files[0])},
        reads=[files],
    )


def _header(
    connection: duckdb.DuckDBPyConnection, files: TableFiles, number: int
) -> tuple[str, ...]:
    path = files.files[number]
    if files.kind == "csv":
        return _csv_header(path, files.label, _where(number + 1, files))
    if files.kind == "parquet":
        elements = execute(
            connection,
            "SELECT name, num_children FROM parquet_schema($path)",
            {"path": str(path)},
            reads=[files],
        )
        return tuple(_top_level([(name, children or 0) for name, children in elements]))
    rows = execute(
        connection,
        "SELECT column_name FROM duckdb_columns() JOIN duckdb_tables() "
        "USING (database_name, schema_name, table_name) WHERE database_name = $database "
        "AND schema_name = 'main' AND table_name = $table ORDER BY column_index",
        {"database": _ATTACHED, "table": files.table},
        reads=[files],
    )
    if not rows:
        raise MissingTable(table=files.label)
    return tuple(name for (name,) in rows)


def _top_level(elements: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Give the names of a Parquet file's columns: its schema is a tree, written depth first."""
    position = 1
    while position < len(elements):
        yield elements[position][0]
        # Invariant: `open_elements` of the elements from `position` on belong to this column.
        open_elements = 1
        while open_elements and position < len(elements):
            open_elements += elements[position][1] - 1
            position += 1


def _csv_header(path: Path, label: str, where: str) -> tuple[str, ...]:
    # Raised outside the handlers: their errors hold bytes of the file.
    failure: InputError
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            lines = iter(lambda: stream.readline(_LONGEST_HEADER_LINE), "")
            header = next(csv.reader(itertools.islice(lines, _HEADER_LINES), strict=True), None)
        if header is not None and not any("\0" in name for name in header):
            return tuple(header)
        failure = (MissingHeader if header is None else WrongEncoding)(table=label, detail=where)
    except UnicodeDecodeError:
        failure = WrongEncoding(table=label, detail=where)
    except (OSError, csv.Error):
        failure = UnreadableFile(table=label, detail=where)
    raise failure


def _check_header(
    header: tuple[str, ...], wanted: Mapping[str, str], files: TableFiles, number: int
) -> None:
    for name in wanted.values():
        alike = [other for other in header if other.lower() == name.lower()]
        if name not in alike:
            error: type[InputError] = MissingColumn
        elif len(alike) > 1:
            error = DuplicateColumn
        else:
            continue
        raise error(table=files.label, column=name, detail=_where(number, files))


def _parts(
    headers: Sequence[tuple[str, ...]], wanted: Mapping[str, str], files: TableFiles
) -> tuple[_Part, ...]:
    everything = tuple(range(len(files.files)))
    by_name = {role: identifier(name) for role, name in wanted.items()}
    if files.table is not None:
        return (_Part(f"{_ATTACHED}.main.{identifier(files.table)}", by_name, everything),)
    if files.kind == "parquet":
        options = "union_by_name = true, hive_partitioning = false"
        return (_Part(f"read_parquet($files, {options})", by_name, everything),)
    same_header: dict[tuple[str, ...], list[int]] = {}
    for number, header in enumerate(headers):
        same_header.setdefault(header, []).append(number)
    return tuple(
        _csv_part(header, wanted, tuple(numbers)) for header, numbers in same_header.items()
    )


def _csv_part(header: tuple[str, ...], wanted: Mapping[str, str], files: tuple[int, ...]) -> _Part:
    columns = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(len(header)))
    return _Part(
        f"read_csv($files, {_CSV_OPTIONS}, columns = {{{columns}}})",
        {role: f"c{header.index(name)}" for role, name in wanted.items()},
        files,
    )


def _select(part: _Part, parameter: str, *, extra: str = "") -> str:
    cells = ", ".join(f"{cell} AS {role}" for role, cell in part.cells.items())
    return f"SELECT {extra}{cells} FROM {part.reader.replace('$files', '$' + parameter)}"


def _check_type(role: str, type_name: str, column: str, files: TableFiles) -> None:
    # A column of which no value was ever seen: some writers give it no type.
    text = type_name in {"VARCHAR", "NULL", '"NULL"'} or type_name.startswith("ENUM")
    if role == "quantity":
        fits = text or type_name in INTEGERS | FLOATS or type_name.startswith("DECIMAL")
    else:
        fits = text or type_name in INTEGERS | {"UUID"} or bool(_WHOLE_DECIMAL.match(type_name))
    if not fits:
        raise WrongType(table=files.label, column=column)


def _where(number: int, files: TableFiles) -> str:
    return f"file {number}" if len(files.files) > 1 else ""
