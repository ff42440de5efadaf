"""One run of a release at a time: a lock that ends with the process, however it ends.

Beside a SQLite ledger it is a locked file; on a PostgreSQL server it is an advisory lock, which
lives as long as the connection that took it, so it holds between machines as well. The lock keeps
runs out of each other's way; that noise is drawn once rests on the reservation alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from pgsr_core.errors import Unavailable
from tasks.ledger.database import errors_told, reading
from tasks.storage.zones import PRIVATE_FILE, disk_told, make_private_folder

LOCKS_FOLDER = "locks"


class ReleaseInUse(Unavailable):
    """Another process works on the release; nothing was changed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"another process works on {name} at the moment; nothing was changed. Remedy: wait "
            "for it (pgsr status shows it), then run the same again."
        )


class Lock(Protocol):
    """The lock of one release."""

    def take(self) -> bool:
        """Take it, or take it again if it was lost; say whether it is ours now."""

    def release(self) -> None:
        """Give it back."""


# What this process holds, so that a command and the flow that it runs can both ask for it.
_held: dict[tuple[int, str, str], Lock] = {}


@contextmanager
def alone(engine: Engine, ledger: Path | None, name: str) -> Iterator[None]:
    """Hold the lock of a release; a process that holds it already goes on.

    Args:
        engine: of the ledger.
        ledger: the ledger's file; None on a server.
        name: PRODUCT/RELEASE.

    Raises:
        ReleaseInUse: another process holds it.
    """
    mine = (os.getpid(), str(engine.url), name)
    if mine in _held:
        still_alone(engine, name)
        yield
        return
    lock: Lock = _ServerLock(engine, name) if ledger is None else _FileLock(ledger, name)
    if not lock.take():
        raise ReleaseInUse(name)
    _held[mine] = lock
    try:
        yield
    finally:
        del _held[mine]
        lock.release()


def still_alone(engine: Engine, name: str) -> None:
    """See that a lock that this process holds was not lost with its connection.

    Raises:
        ReleaseInUse: it was, and another process has it now.
    """
    lock = _held.get((os.getpid(), str(engine.url), name))
    if lock is not None and not lock.take():
        raise ReleaseInUse(name)


class _FileLock:
    """A file that the operating system keeps locked for as long as its process lives."""

    def __init__(self, ledger: Path, name: str) -> None:
        self._file = ledger.with_name(LOCKS_FOLDER) / f"{name}.lock"
        self._descriptor: int | None = None

    def take(self) -> bool:
        if self._descriptor is not None:
            return True
        make_private_folder(self._file.parent)
        with disk_told(self._file):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(self._file, flags, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class _ServerLock:
    """An advisory lock of a PostgreSQL server, on a connection of its own."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        digest = hashlib.sha256(f"pgsr run {name}".encode()).digest()
        self._number = int.from_bytes(digest[:8], "big", signed=True)
        self._connection: Connection | None = None

    def take(self) -> bool:
        if self._connection is not None:
            try:
                self._connection.execute(text("SELECT 1"))
            except DBAPIError:  # the server was gone, and the lock with it
                self.release()
            else:
                return True
        with errors_told():
            connection = reading(self._engine.connect(), isolation_level="AUTOCOMMIT")
            question = text("SELECT pg_try_advisory_lock(:number)")
            taken = bool(connection.scalar(question, {"number": self._number}))
        if not taken:
            connection.close()
            return False
        self._connection = connection
        return True

    def release(self) -> None:
        if self._connection is not None:
            self._connection.invalidate()  # its end ends the lock
            self._connection.close()
            self._connection = None
