"""Hardened DuckDB connections: no extension is fetched, no file is read that was not named."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pgsr_core.errors import PgsrError, Unavailable
from tasks.storage.zones import PRIVATE_FILE, PRIVATE_UMASK, make_private_folder

if TYPE_CHECKING:
    import duckdb

DEFAULT_MEMORY_LIMIT = "4GB"


class StoreUnavailable(Unavailable):
    """A store cannot be opened: another run of the release has it, or its disk does not answer."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} of this release cannot be opened; another run of it is probably under way. "
            "Remedy: follow it with pgsr status, and try again when it has ended."
        )


class StoreMissing(PgsrError):
    """A store that should be read is not there."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} of this release is missing. Remedy: run pgsr release again; tables are "
            "rebuilt from what the ledger holds."
        )


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

    Raises:
        StoreUnavailable: another process has it open.
        StoreMissing: it is to be read, and is not there.
    """
    if database is not None and not read_only:
        make_private_folder(database.parent)
    with _private_umask(), closing(_open(database, read_only=read_only)) as connection:
        if database is not None and not read_only:
            database.chmod(PRIVATE_FILE)  # one that came back from a backup may be open to others
        _harden(
            connection,
            readable=readable,
            folder=writable_folder or (database.parent if database is not None else None),
            memory_limit=memory_limit,
            threads=threads,
        )
        yield connection


def _open(database: Path | None, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    import duckdb

    if database is None:
        return duckdb.connect(":memory:")
    if read_only and not database.exists():
        raise StoreMissing(database.name)
    try:
        return duckdb.connect(str(database), read_only=read_only)
    except duckdb.IOException:
        # DuckDB's message names the file and the process that holds it.
        raise StoreUnavailable(database.name) from None


@contextmanager
def _private_umask() -> Iterator[None]:
    """As long as a store is open: DuckDB makes its log and its spill files when it needs them."""
    previous = os.umask(PRIVATE_UMASK)
    try:
        yield
    finally:
        os.umask(previous)


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
