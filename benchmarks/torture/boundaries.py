"""Every call that changes what is on a disk, as points at which a process dies or a disk fails.

Watched are the file-system calls of `os` and `pathlib`, every SQL statement and commit of the
ledger, the opening of a DuckDB file, the halves of its transactions and their commits, and the
named points of the driver. Installed in a
forked process that ends afterwards, so nothing is ever taken off again.
"""

from __future__ import annotations

import os
import pathlib
import signal
from collections.abc import Callable
from typing import Any

import duckdb
from sqlalchemy import Engine, event

from tasks.storage.tables import MatrixStore

Watcher = Callable[[str], None]
FILE_CALLS = ("fsync", "rename", "replace", "mkdir", "chmod", "link", "unlink", "rmdir")
# What may fail without a word: cleaning up, after which a leftover is removed by the next attempt.
CLEANING = frozenset({"unlink", "rmdir"})


def watch(watcher: Watcher) -> None:
    """Call the watcher with the kind of each boundary, right before it."""
    for name in FILE_CALLS:
        _before(os, name, watcher, name)
    _watch_open(watcher)
    _watch_fdopen(watcher)
    for name in ("write_text", "write_bytes"):
        _before(pathlib.Path, name, watcher, "write")
    _watch_duckdb(watcher)
    _before(MatrixStore, "_write_matrix", watcher, "duckdb")
    _before(MatrixStore, "_write_record", watcher, "duckdb")
    event.listen(Engine, "commit", lambda _connection: watcher("commit"))
    event.listen(Engine, "before_cursor_execute", lambda *_arguments: watcher("statement"))


def _before(owner: Any, name: str, watcher: Watcher, kind: str) -> None:
    original = getattr(owner, name)

    def watched(*arguments: Any, **options: Any) -> Any:
        watcher(kind)
        return original(*arguments, **options)

    setattr(owner, name, watched)


def _watch_open(watcher: Watcher) -> None:
    original = os.open

    def watched(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            watcher("create")
        return original(path, flags, *arguments, **options)

    os.open = watched  # type: ignore[assignment]


def _watch_fdopen(watcher: Watcher) -> None:
    original = os.fdopen

    class Watched:
        """A file whose every write is a boundary."""

        def __init__(self, file: Any) -> None:
            self._file = file

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_error: object) -> None:
            self._file.close()

        def write(self, content: Any) -> int:
            watcher("write")
            return self._file.write(content)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

    os.fdopen = lambda *arguments, **options: Watched(original(*arguments, **options))  # type: ignore[assignment]


def _watch_duckdb(watcher: Watcher) -> None:
    original = duckdb.connect

    class Watched:
        """A connection whose every commit is a boundary."""

        def __init__(self, connection: Any) -> None:
            self._connection = connection

        def commit(self) -> Any:
            watcher("duckdb commit")
            return self._connection.commit()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

    def watched(database: str, *, read_only: bool = False) -> Any:
        if not read_only:
            watcher("duckdb")
        return Watched(original(database, read_only=read_only))

    duckdb.connect = watched


class Counter:
    """Counts boundaries and acts at the n-th."""

    def __init__(self, at: int, act: Callable[[str], None], *, and_after: bool = False) -> None:
        self.kinds: list[str] = []
        self._at = at
        self._act = act
        self._and_after = and_after

    def __call__(self, kind: str) -> None:
        self.kinds.append(kind)
        passed = len(self.kinds) - 1
        if passed == self._at or (self._and_after and passed > self._at >= 0):
            self._act(kind)


def die(_kind: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
