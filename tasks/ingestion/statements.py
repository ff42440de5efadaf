"""The one place that runs SQL on input tables: DuckDB's messages stop here.

DuckDB quotes values, lines and paths in its errors. They are turned into errors of this
package, of which the text holds nothing but a file's number and a line's.
"""

# ruff: noqa: S608 (the SQL is put together from roles, types and quoted names; values are bound)
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pgsr_core.errors import InputError, PgsrError
from tasks.ingestion import errors
from tasks.ingestion.files import TableFiles

if TYPE_CHECKING:
    import duckdb

_LINE = re.compile(r"CSV Error on Line: ([0-9]{1,18})\b")
_KINDS_OF_CSV_ERROR: tuple[tuple[str, type[InputError]], ...] = (
    ("not utf-8 encoded", errors.WrongEncoding),
    ("unterminated quote", errors.UnterminatedQuote),
    ("Expected Number of Columns", errors.RaggedRow),
)


def identifier(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def execute(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    reads: Sequence[TableFiles],
) -> list[tuple[Any, ...]]:
    """Run a statement and fetch its rows.

    Args:
        connection: a hardened connection.
        sql: holds no value: those are bound.
        parameters: the values.
        reads: the tables that the statement may read; an error is put down to one of them.

    Raises:
        PgsrError: whatever DuckDB said, without its words.
    """
    import duckdb

    # The new error is raised outside the handler, so that DuckDB's is not chained to it.
    try:
        return connection.execute(sql, dict(parameters or {})).fetchall()
    except (duckdb.Error, MemoryError) as caught:
        failure = _without_values(caught, reads)
    raise failure


def fetch_columns(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    reads: Sequence[TableFiles],
) -> dict[str, Any]:
    """Run a query and fetch its columns as numpy arrays; arguments as of `execute`."""
    import duckdb

    try:
        return dict(connection.execute(sql, dict(parameters or {})).fetchnumpy())
    except (duckdb.Error, MemoryError) as caught:
        failure = _without_values(caught, reads)
    raise failure


def result_types(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    reads: Sequence[TableFiles],
) -> dict[str, str]:
    """Say which columns a query has and DuckDB's names of their types; reads no rows."""
    import duckdb

    try:
        result = connection.execute(f"SELECT * FROM ({sql}) LIMIT 0", dict(parameters or {}))
        return {column[0]: str(column[1]) for column in result.description or ()}
    except (duckdb.Error, MemoryError) as caught:
        failure = _without_values(caught, reads)
    raise failure


def _without_values(caught: Exception, reads: Sequence[TableFiles]) -> PgsrError:
    import duckdb

    text = str(caught)
    if isinstance(caught, duckdb.OutOfMemoryException | MemoryError) or (
        isinstance(caught, duckdb.IOException) and "No space left" in text
    ):
        return errors.OutOfMemory()
    table, file = _file_at_fault(text, reads)
    line = _LINE.search(text)
    kind: type[InputError] = errors.UnreadableFile
    if line is not None:
        kind = next((kind for words, kind in _KINDS_OF_CSV_ERROR if words in text), kind)
    places = [f"line {line[1]}"] if line is not None else []
    if file is not None and len(table.files) > 1:
        places.append(f"file {file}")
    return kind(table=table.label, detail=" of ".join(places))


def _file_at_fault(text: str, reads: Sequence[TableFiles]) -> tuple[TableFiles, int | None]:
    # Only the first lines of the message and "file = …" name the file: a cell that happens to
    # spell another path could at worst mislead the number.
    for table in reads:
        for number, path in enumerate(table.files, start=1):
            if f"file = {path}\n" in text or f"'{path}'" in text or f'"{path}"' in text:
                return table, number
    return reads[0], None
