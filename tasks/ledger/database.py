"""Connections to the ledger: short write transactions that are durable when they return."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from pgsr_core.errors import Unavailable
from tasks.ledger.schema import metadata
from tasks.storage.zones import PRIVATE_FILE, make_private_folder

BUSY_SECONDS = 60


class LedgerUnavailable(Unavailable):
    """The ledger cannot be reached or is busy for too long; nothing was changed."""


def ledger_exists(url: str) -> bool:
    """Whether there is a ledger already; looking creates nothing."""
    return os.path.isfile(_file_of(url))  # noqa: PTH113 (Path.is_file raises where this does not)


def open_engine(url: str) -> Engine:
    """Connect and create missing tables.

    Raises:
        LedgerUnavailable: the ledger is not a file that can be used.
    """
    path = _file_of(url)
    try:
        make_private_folder(path.parent)
        path.touch(mode=PRIVATE_FILE)
    except OSError as error:
        raise LedgerUnavailable(
            f"the ledger's file cannot be made ({error.strerror}). "
            "Remedy: see that its disk is there and writable, and try again."
        ) from None
    # No pool: SQLite's locks belong to a process, so no connection may live across a fork.
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": BUSY_SECONDS},
        poolclass=NullPool,
    )
    event.listen(engine, "connect", _durable)
    event.listen(engine, "begin", _begin_immediate)
    with transaction(engine) as connection:
        metadata.create_all(connection)
    return engine


def _file_of(url: str) -> Path:
    """The SQLite file that a URL names.

    A ledger in memory would forget every charge, and a relative path would be another ledger in
    another working folder: budgets could be spent twice.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise _not_supported("what PGSR_LEDGER_URL names is no address of a database") from None
    if parsed.drivername not in {"sqlite", "sqlite+pysqlite"}:
        raise _not_supported(f"the ledger's database {parsed.get_backend_name()} is not supported")
    path = Path(parsed.database or "")
    if not path.is_absolute() or parsed.query:
        raise _not_supported("the ledger must be a file named by its whole path, without options")
    return path


def _not_supported(reason: str) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"{reason}. Remedy: unset PGSR_LEDGER_URL or name a SQLite file "
        "(sqlite:////path/ledger.sqlite)."
    )


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """One write transaction; a database error becomes one that says trying again is safe."""
    try:
        with engine.begin() as connection:
            yield connection
    except DBAPIError as error:
        reason = type(error.orig).__name__
        raise LedgerUnavailable(
            f"the ledger did not take the transaction ({reason}); nothing was changed. "
            "Remedy: see that its disk is there, writable and not full, and try again."
        ) from None


def _durable(connection: Any, _record: Any) -> None:
    """FULL: a commit that returned survives a power cut. WAL: readers do not block the writer."""
    # The driver must not open transactions of its own: BEGIN IMMEDIATE is ours to say.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_immediate(connection: Connection) -> None:
    """Take the write lock at once: look-up and insert are one step for all processes."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
