"""Connections to the ledger: short write transactions that are durable when they return."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, OperationalError

from pgsr_core.errors import Unavailable
from tasks.ledger.schema import metadata
from tasks.storage.zones import PRIVATE_FILE, make_private_folder

BUSY_SECONDS = 60


class LedgerUnavailable(Unavailable):
    """The ledger cannot be reached or is busy for too long; nothing was changed."""


def ledger_exists(url: str) -> bool:
    """Whether there is a ledger already; looking creates nothing."""
    return Path(make_url(url).database or "").is_file()


def open_engine(url: str) -> Engine:
    """Connect and create missing tables."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        raise LedgerUnavailable(
            f"the ledger's database {parsed.get_backend_name()} is not supported. "
            "Remedy: unset PGSR_LEDGER_URL or name a SQLite file (sqlite:////path/ledger.sqlite)."
        )
    path = Path(parsed.database or "")
    make_private_folder(path.parent)
    path.touch(mode=PRIVATE_FILE)
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS})
    event.listen(engine, "connect", _durable)
    event.listen(engine, "begin", _begin_immediate)
    with transaction(engine) as connection:
        metadata.create_all(connection)
    return engine


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """One write transaction; a database error becomes one that says trying again is safe."""
    try:
        with engine.begin() as connection:
            yield connection
    except (OperationalError, DBAPIError) as error:
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
