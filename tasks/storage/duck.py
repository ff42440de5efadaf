"""Hardened DuckDB connections: no extension is fetched, no file is read that was not named."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

DEFAULT_MEMORY_LIMIT = "4GB"


@contextmanager
def connect(
    database: Path | None,
    *,
    read_only: bool = False,
    readable: Sequence[Path] = (),
    writable_folder: Path | None = None,
    memory_limit: str = DEFAULT_MEMORY_LIMIT,
    threads: int | None = None,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a store (None: in memory), closed again on leaving.

    Args:
        database: the file; created with mode 0600 whatever the umask.
        read_only: refuse to write.
        readable: files that SQL may read besides the database.
        writable_folder: a folder in which SQL may write files, and spill what memory cannot
            hold (the database's own folder if not given; in memory nothing spills).
        memory_limit: as DuckDB spells it, such as 4GB.
        threads: how many; None leaves it to DuckDB.
    """
    import duckdb

    if database is not None and not read_only:
        _create_private(database.parent)
    previous = os.umask(0o077)
    try:
        connection = duckdb.connect(
            ":memory:" if database is None else str(database), read_only=read_only
        )
    finally:
        os.umask(previous)
    try:
        _harden(
            connection,
            readable=readable,
            folder=writable_folder or (database.parent if database is not None else None),
            memory_limit=memory_limit,
            threads=threads,
        )
        yield connection
    finally:
        connection.close()
        if database is not None and not read_only and database.exists():
            database.chmod(0o600)


def _create_private(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def _harden(
    connection: duckdb.DuckDBPyConnection,
    *,
    readable: Sequence[Path],
    folder: Path | None,
    memory_limit: str,
    threads: int | None,
) -> None:
    execute = connection.execute
    execute("SET autoinstall_known_extensions = false")
    execute("SET autoload_known_extensions = false")
    execute("SET allow_community_extensions = false")
    execute("SET enable_progress_bar = false")
    # Statistics in a Parquet file are whatever its writer claims; a check must read the values.
    execute("SET disabled_optimizers = 'statistics_propagation'")
    execute("SET memory_limit = $limit", {"limit": memory_limit})
    if threads is not None:
        execute("SET threads = $threads", {"threads": threads})
    if folder is not None:
        execute("SET temp_directory = $path", {"path": str(folder / "spill")})
        execute("SET allowed_directories = $paths", {"paths": [str(folder)]})
    else:
        execute("SET temp_directory = ''")
    if readable:
        execute("SET allowed_paths = $paths", {"paths": [str(path) for path in readable]})
    execute("SET enable_external_access = false")
    execute("SET lock_configuration = true")
