"""Hardened DuckDB connections: no extension is fetched, no file is read that was not named."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pgsr_core.errors import PgsrError, Unavailable
from tasks.storage.temporary import SPILL, remove_unlocked_spill, temporary_folder
from tasks.storage.zones import (
    PRIVATE_FILE,
    PRIVATE_UMASK,
    StateNotWritten,
    disk_told,
    make_private_folder,
    one_at_a_time,
)

if TYPE_CHECKING:
    import duckdb

DEFAULT_MEMORY_LIMIT = "4GB"
LOGS = (".wal", ".wal.checkpoint", ".wal.recovery")


class StoreUnavailable(Unavailable):
    """Another run of the release has a store open."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} of this release cannot be opened; another run of it is under way. "
            "Remedy: follow it with pgsr status, and try again when it has ended."
        )


class StoreUnusable(Unavailable):
    """DuckDB can no longer read or write a store; what was not committed is not in it."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} of this release cannot be read or written. Remedy: see that its disk is "
            "there, writable and not full, and run the same again; if that does not help, delete "
            "the file and run pgsr release: its tables are made again, and no noise is drawn."
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
            hold (the database's own folder if not given; in memory nothing spills). What killed
            processes spilled there is removed.
        memory_limit: as DuckDB spells it, such as 4GB.
        threads: how many; None leaves it to DuckDB.

    Raises:
        StoreUnavailable: another process has it open.
        StoreUnusable: its disk fails, now or while it is open, or it is damaged.
        StoreMissing: it is to be read, and is not there.
        StateNotWritten: it cannot be made.
    """
    import duckdb

    folder = writable_folder or (database.parent if database is not None else None)
    if database is not None and not read_only:
        make_private_folder(database.parent)
    try:
        with (
            _private_umask(),
            closing(_open(database, read_only=read_only)) as connection,
            _spill_folder(folder, read_only=read_only) as spill,
        ):
            if database is not None and not read_only:
                with disk_told(database):  # one that came back from a backup may be open to others
                    database.chmod(PRIVATE_FILE)
                remove_unlocked_spill(database.parent)
            _harden(
                connection,
                readable=readable,
                folder=folder,
                spill=spill,
                memory_limit=memory_limit,
                threads=threads,
            )
            yield connection
    except (duckdb.IOException, duckdb.TransactionException, duckdb.FatalException):
        if database is None:
            raise
        # DuckDB's message names files, and may quote what is in them.
        raise StoreUnusable(database.name) from None


def _open(database: Path | None, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    import duckdb

    if database is None:
        return duckdb.connect(":memory:")
    if not database.exists():
        if read_only:
            raise StoreMissing(database.name)
        _create(database)
    try:
        return duckdb.connect(str(database), read_only=read_only)
    except duckdb.IOException as error:
        if "Could not set lock" in str(error):
            raise StoreUnavailable(database.name) from None
        raise


def _create(database: Path) -> None:
    """Make an empty store that appears whole or not at all.

    DuckDB writes its headers into the file in place; one whose process was killed meanwhile
    would never open again.
    """
    import duckdb

    lock = database.with_name(f".{database.name}.lock")
    with one_at_a_time(lock), disk_told(database):
        if not database.exists():
            draft = database.with_name(f".{database.name}.draft-{secrets.token_hex(4)}")
            try:
                duckdb.connect(str(draft)).close()
                for leftover in LOGS:  # of a store that was deleted: it fits no other
                    database.with_name(database.name + leftover).unlink(missing_ok=True)
                draft.replace(database)
            finally:
                draft.unlink(missing_ok=True)
        lock.unlink(missing_ok=True)  # whoever waited for it finds the store


@contextmanager
def _spill_folder(folder: Path | None, *, read_only: bool) -> Iterator[Path | None]:
    """Where a connection spills, if anywhere: a reader may be a guest who cannot write there."""
    with ExitStack() as stack:
        spill = None
        if folder is not None:
            try:
                spill = stack.enter_context(temporary_folder(folder, SPILL))
            except OSError as error:
                if not read_only:
                    raise StateNotWritten(folder, error.strerror) from None
        yield spill


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
    spill: Path | None,
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
    execute("SET temp_directory = $path", {"path": "" if spill is None else str(spill)})
    if folder is not None:
        execute("SET allowed_directories = $paths", {"paths": [str(folder)]})
    if readable:
        execute("SET allowed_paths = $paths", {"paths": [str(path) for path in readable]})
    execute("SET enable_external_access = false")
    execute("SET lock_configuration = true")
