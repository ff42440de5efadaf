"""Running the command line as its users do, against a real Prefect server."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.flows.commandline import Pgsr


@pytest.fixture
def pgsr(prefect_server: dict[str, str]) -> Pgsr:
    """The command line, with the session's Prefect server."""
    return Pgsr(prefect_server, warm=True)


@pytest.fixture
def virginia(virginia_population: Path, tmp_path: Path) -> Path:
    """A copy of the Virginia fixture that a test may spend and spoil."""
    return Path(shutil.copytree(virginia_population, tmp_path / "virginia"))


@pytest.fixture
def release_in_process(
    prefect_server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Path], None]]:
    """`pgsr release CONFIG` inside this process: errors come out as they are raised."""
    from flows.cli.app import app

    for name, value in prefect_server.items():
        monkeypatch.setenv(name, value)
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

    updates = {
        PREFECT_API_URL: prefect_server["PREFECT_API_URL"],
        PREFECT_HOME: prefect_server["PREFECT_HOME"],
    }
    with temporary_settings(updates=updates):
        yield lambda configuration: app(["release", str(configuration)], standalone_mode=False)
