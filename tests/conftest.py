"""Fixtures that many tests share: a quiet environment, one Prefect server, small populations."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "pgsr",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("pgsr")

# Before any test module is imported: the command line's screen is as wide as it was at its import.
# No test, and no fixture of a module or of the session, finds the developer's own state folder.
USER_DATA = tempfile.TemporaryDirectory(prefix="pgsr-tests-")
os.environ["XDG_DATA_HOME"] = USER_DATA.name
os.environ["NO_COLOR"] = "1"
os.environ["COLUMNS"] = "200"

VIRGINIA = Path(__file__).parent / "fixtures" / "virginia2000" / "household_size_blockgroup.csv"
SERVER_SECONDS = 180


@pytest.fixture(scope="module", autouse=True)
def user_of_the_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Populations of one module's fixtures are not held by a ledger of another's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("user")))
        yield


@pytest.fixture(autouse=True)
def quiet_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the developer's own pgsr or Prefect."""
    for name in list(os.environ):
        if name.startswith("PGSR_") and name != "PGSR_DATA":
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path.with_name(f"{tmp_path.name}-user")))
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    monkeypatch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "false")


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A real Prefect server for the session: the environment that a run needs to use it."""
    home = tmp_path_factory.mktemp("prefect")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    server = subprocess.Popen(
        [sys.executable, "-m", "prefect", "server", "start", "--port", str(port), "--no-ui"],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}/api/health", server)
        yield environment
    finally:
        server.terminate()
        server.wait(timeout=30)


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SERVER_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"the Prefect server ended with {server.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310  (our own server)
                return
        except OSError:
            time.sleep(0.3)
    raise TimeoutError("the Prefect server did not answer in time")


@pytest.fixture(scope="session")
def virginia_population(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few places of Virginia in 2000, expanded to persons, ready to be released."""
    from tasks.synthesis import Product, read_histogram, write_population

    folder = tmp_path_factory.mktemp("virginia") / "population"
    population = read_histogram(VIRGINIA, level_columns=["state", "county", "tract", "bg"])
    write_population(
        population, folder, product=Product("household-sizes", "virginia-2000", "person")
    )
    return folder
