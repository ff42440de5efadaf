"""The command line as a process of its own, and an independent look at what it published."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from tests.flows.warm_process import run_warm

CHECKS = (Path(__file__).parent / "independent_checks.sql").read_text()
PROCESS_SECONDS = 300


@dataclass(frozen=True)
class Pgsr:
    """The `pgsr` command in a process of its own.

    Attributes:
        environment: what is added to this process's.
        warm: whether it starts with the libraries imported, with the settings of the session.
    """

    environment: dict[str, str]
    warm: bool = False

    def __call__(
        self, *arguments: str | Path, cwd: Path, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        command = [str(argument) for argument in arguments]
        everything = {**os.environ, **self.environment, **environment}
        if self.warm:
            return run_warm(command, cwd=cwd, environment=everything, timeout=PROCESS_SECONDS)
        return subprocess.run(
            [sys.executable, "-m", "flows", *command],
            cwd=cwd,
            env=everything,
            capture_output=True,
            text=True,
            timeout=PROCESS_SECONDS,
            check=False,
        )

    def json(self, *arguments: str | Path, cwd: Path, **environment: str) -> Any:
        """Run a command that must succeed and return what it printed as JSON."""
        done = self(*arguments, "--json", cwd=cwd, **environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def edit(configuration: Path, old: str, new: str) -> None:
    """Change a configuration; the text to change must be there."""
    text = configuration.read_text()
    assert old in text
    configuration.write_text(text.replace(old, new))


def broken_promises(bundle: Path, *, groups: int, sizes: int) -> list[tuple[str, int]]:
    """What an independent script finds wrong with a bundle: nothing, one hopes."""
    query = (
        CHECKS.replace("$folder", str(bundle))
        .replace("$groups", str(groups))
        .replace("$sizes", str(sizes))
    )
    with duckdb.connect() as connection:
        return connection.sql(query).fetchall()
