"""Connections to the ledger: short write transactions that are durable when they return.

SQLite takes its write lock when a transaction begins; on PostgreSQL whoever writes locks the row
of the chain's head first. Either way, writers come one after another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from pgsr_core.errors import Unavailable
from tasks.ledger.disks import require_local
from tasks.storage.zones import PRIVATE_FILE, make_private_folder

BUSY_SECONDS = 60
CONNECT_SECONDS = 10
ENGINES = 8
SQLITE = frozenset({"sqlite", "sqlite+pysqlite"})
POSTGRESQL = "postgresql+psycopg"
_READS_ONLY = "pgsr_reads_only"


class LedgerUnavailable(Unavailable):
    """The ledger cannot be reached or is busy for too long; nothing was changed."""


def file_of(url: str) -> Path | None:
    """The SQLite file that a URL names; None for a ledger on a PostgreSQL server.

    A ledger in memory would forget every charge, and a relative path would be another ledger in
    another working folder: budgets could be spent twice.

    Raises:
        LedgerUnavailable: it is neither.
    """
    parsed = _parsed(url)
    if parsed.drivername == POSTGRESQL:
        return None
    if parsed.drivername not in SQLITE:
        raise _not_supported(f"the ledger's database {parsed.drivername} is not supported")
    path = Path(parsed.database or "")
    if not path.is_absolute() or parsed.query:
        raise _not_supported("the ledger must be a file named by its whole path, without options")
    return path


def identity_of(url: str) -> str:
    """What tells a ledger from every other one, and holds no secret: a path, or a server's name."""
    path = file_of(url)
    if path is not None:
        return str(path.resolve())
    parsed = _parsed(url)
    said = {name: str(value) for name, value in parsed.query.items()}
    host = parsed.host or said.get("host", "")
    database = parsed.database or said.get("dbname", "")
    return f"postgresql://{host}:{parsed.port or said.get('port', '5432')}/{database}"


def file_is_missing(url: str) -> bool:
    """Whether a URL names a SQLite file that is not there; looking creates nothing."""
    path = file_of(url)
    return path is not None and not os.path.isfile(path)  # noqa: PTH113 (is_file may raise)


def connect(url: str) -> Engine:
    """Make an engine; a SQLite file that is missing is made, empty and closed to others.

    Raises:
        LedgerUnavailable: the ledger is not one that can be used.
        LedgerOnNetwork: a SQLite file on a network file system.
    """
    path = file_of(url)
    return _postgresql(url) if path is None else _sqlite(path)


def _sqlite(path: Path) -> Engine:
    require_local(path.parent)
    make_private_folder(path.parent)
    try:
        path.touch(mode=PRIVATE_FILE)
    except OSError as error:
        raise LedgerUnavailable(
            f"the ledger's file cannot be made ({error.strerror}). "
            "Remedy: see that its disk is there and writable, and try again."
        ) from None
    return _sqlite_engine(path)


@lru_cache(maxsize=ENGINES)
def _sqlite_engine(path: Path) -> Engine:
    """One for each file: it keeps the statements that it compiled, and no connection."""
    # No pool: SQLite's locks belong to a process, so no connection may live across a fork.
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": BUSY_SECONDS},
        poolclass=NullPool,
    )
    event.listen(engine, "connect", _durable)
    event.listen(engine, "begin", _begin)
    return engine


def _postgresql(url: str) -> Engine:
    try:
        engine = create_engine(
            _parsed(url), poolclass=NullPool, connect_args={"connect_timeout": CONNECT_SECONDS}
        )
    except ImportError:
        raise LedgerUnavailable(
            "the ledger is on PostgreSQL, and its driver is not installed. "
            "Remedy: install pgsr[postgres]."
        ) from None
    event.listen(engine, "begin", _begin_on_server)
    return engine


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """One write transaction; a database error becomes one that says trying again is safe."""
    with errors_told(), engine.begin() as connection:
        yield connection


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """Read the ledger as it is at one moment, without holding up those who write."""
    on_server = engine.dialect.name == "postgresql"
    with errors_told(), engine.connect() as bare:
        connection = reading(bare, isolation_level="REPEATABLE READ" if on_server else None)
        with connection.begin():
            yield connection


def server_time(connection: Connection) -> float | None:
    """The clock of the ledger's server, in seconds since 1970; None where there is no server."""
    if connection.dialect.name != "postgresql":
        return None
    seconds = connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar()
    return None if seconds is None else float(seconds)


def reading(connection: Connection, *, isolation_level: str | None) -> Connection:
    """Mark a connection as one that changes nothing in the ledger."""
    options: dict[str, Any] = {_READS_ONLY: True}
    if isolation_level is not None:
        options["isolation_level"] = isolation_level
    return connection.execution_options(**options)


@contextmanager
def errors_told() -> Iterator[None]:
    """Turn an error of the database into one that says what to do.

    Raises:
        LedgerUnavailable: nothing was changed.
    """
    try:
        yield
    except DBAPIError as error:
        reason = type(error.orig).__name__
        raise LedgerUnavailable(
            f"the ledger did not take the transaction ({reason}); nothing was changed. Remedy: "
            "see that its disk or server is there, writable and not full, and try again."
        ) from None


def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError):  # the second for a port that is no number
        raise _not_supported("what PGSR_LEDGER_URL names is no address of a database") from None


def _not_supported(reason: str) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"{reason}. Remedy: unset PGSR_LEDGER_URL, or name a SQLite file "
        f"(sqlite:////path/ledger.sqlite) or a PostgreSQL database ({POSTGRESQL}://…)."
    )


def _durable(connection: Any, _record: Any) -> None:
    """FULL: a commit that returned survives a power cut. WAL: readers do not block the writer."""
    # The driver must not open transactions of its own: BEGIN IMMEDIATE is ours to say.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    """Take the write lock at once: look-up and insert are one step for all processes."""
    reads_only = connection.get_execution_options().get(_READS_ONLY, False)
    connection.exec_driver_sql("BEGIN" if reads_only else "BEGIN IMMEDIATE")


def _begin_on_server(connection: Connection) -> None:
    """A commit that returned is on disk, whatever the server's default; no wait is endless."""
    if connection.get_execution_options().get(_READS_ONLY, False):
        return
    connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{BUSY_SECONDS * 1000:.0f}ms'")
