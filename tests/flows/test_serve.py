"""`pgsr serve`: one command from a configuration to releases on a schedule, and back to nothing."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from flows.cli.serve import NotToBeServed
from flows.server import (
    AlreadyServing,
    PortTaken,
    find_server,
    own_server,
    password_file,
    serving_alone,
)
from tasks.failpoints import VARIABLE
from tasks.ledger.ledger import Ledger
from tasks.ledger.owner import owner_of
from tasks.series import Series
from tasks.storage.zones import Home, make_private_folder
from tests.flows.commandline import edit

PRODUCT = "household-sizes"
EVERY_TWENTY_SECONDS = 'schedule: {cron: "* * * * * */20", timezone: Asia/Tokyo}\n'
PATIENCE = 240


@pytest.fixture
def daily(virginia: Path) -> Path:
    """The fixture's product: a release a day, and three attempts a minute."""
    configuration = virginia / "product.yaml"
    edit(configuration, "release: synthetic-1", 'release: "{date:%Y-%m-%d}"')
    with configuration.open("a") as file:
        file.write(EVERY_TWENTY_SECONDS)
    return configuration


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Served:
    """A `pgsr serve` in a process group of its own, and its server's interface."""

    process: subprocess.Popen[str]
    api: str
    home: Home

    def ask(self, method: str, path: str, document: Any = None) -> Any:
        """Ask the server as its pages do; again while its database is busy, as its clients do."""
        secret = base64.b64encode(password_file(self.home).read_bytes().strip()).decode()
        request = urllib.request.Request(  # noqa: S310  (our own server)
            f"{self.api}{path}",
            method=method,
            data=json.dumps(document or {}).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Basic {secret}"},
        )
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                    content = answer.read()
                return json.loads(content) if content else None
            except urllib.error.HTTPError as refused:
                if refused.code != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
                    raise
                time.sleep(1)

    def run_in(self, *states: str) -> dict[str, Any] | None:
        """A run of the schedule that is in one of these states."""
        wanted = {"flow_runs": {"state": {"name": {"any_": list(states)}}}}
        found: list[dict[str, Any]] = self.ask("POST", "/flow_runs/filter", wanted)
        return next((run for run in found if run["auto_scheduled"]), None)


def eventually(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            found = look()
        except OSError:  # the server is not up yet
            found = None
        if found:
            return found
        time.sleep(1)
    raise TimeoutError(what)


@pytest.fixture
def served(daily: Path, port: int) -> Iterator[Served]:
    """Serves the product; the first process to commit measurements is killed at that point."""
    environment = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
    process = subprocess.Popen(
        [sys.executable, "-m", "flows", "serve", "product.yaml", "--port", str(port)],
        cwd=daily.parent,
        env={
            **environment,
            VARIABLE: "noise.committed",
            "PREFECT_RUNNER_POLL_FREQUENCY": "1",
            "PREFECT_SERVER_UI_ENABLED": "false",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield Served(process, f"http://127.0.0.1:{port}/api", Home(daily.parent / ".pgsr"))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(timeout=60)


def test_a_schedule_fires_a_killed_run_is_retried_from_prefect_and_ctrl_c_stops_everything(
    daily: Path, served: Served, port: int
) -> None:
    def ledger() -> Ledger:
        return Ledger(f"sqlite:///{daily.parent / '.pgsr' / 'ledger.sqlite'}")

    # The schedule fires; the run is killed right after its draw, and Prefect notices.
    crashed = eventually(lambda: served.run_in("Crashed"), "no run was started and killed")
    [deployment] = served.ask("POST", "/deployments/filter")
    assert deployment["name"] == PRODUCT
    served.ask("PATCH", f"/deployments/{deployment['id']}", {"paused": True})
    [state] = ledger().run_states()
    drawn = ledger().measurement(PRODUCT, state.release)
    assert drawn is not None
    found = find_server(served.home)
    assert found is not None
    assert found.address == served.api

    # "Retry" on Prefect's page of the run.
    retry = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}}
    served.ask("POST", f"/flow_runs/{crashed['id']}/set_state", retry)
    completed = eventually(lambda: served.run_in("Completed"), "the retried run did not end")

    assert completed["id"] == crashed["id"]
    assert completed["name"] == f"{PRODUCT}/{state.release}"
    assert (daily.parent / "public" / completed["name"] / "group_sizes.parquet").is_file()
    assert ledger().measurement(PRODUCT, state.release) == drawn
    assert len(ledger().charges("virginia-2000")) == 1

    os.killpg(served.process.pid, signal.SIGINT)  # what Ctrl-C on a terminal does
    said, _ = served.process.communicate(timeout=60)
    assert served.process.returncode == 0, said
    assert PRODUCT in said
    assert "Asia/Tokyo" in said
    assert "Traceback" not in said
    assert f"it is in {password_file(served.home)}" in said
    assert not password_file(served.home).exists()
    assert find_server(Home(daily.parent / ".pgsr")) is None
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


# --- what is refused before anything is started ---------------------------------------------


def serve(*arguments: str | Path) -> None:
    from flows.cli.app import app

    app(["serve", *map(str, arguments)], standalone_mode=False)


def test_a_product_without_a_schedule_or_given_twice_is_not_served(
    daily: Path, virginia: Path
) -> None:
    again = virginia / "again.yaml"
    again.write_text(daily.read_text())
    with pytest.raises(NotToBeServed, match="more than one configuration"):
        serve(daily, again)
    edit(daily, EVERY_TWENTY_SECONDS, "")
    with pytest.raises(NotToBeServed, match="has no schedule"):
        serve(daily)
    assert [path.name for path in (virginia / ".pgsr").iterdir()] == ["example.json"]


def test_products_with_state_in_different_folders_are_not_served_together(
    daily: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    text = daily.read_text().replace(f"product: {PRODUCT}", "product: other")
    (elsewhere / "other.yaml").write_text(text)
    with pytest.raises(NotToBeServed, match="PGSR_HOME"):
        serve(daily, elsewhere / "other.yaml")


def test_one_state_folder_is_served_once_at_a_time(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with serving_alone(home), pytest.raises(AlreadyServing, match="Remedy"), serving_alone(home):
        pass
    with serving_alone(home):
        pass


def test_a_port_that_is_in_use_is_told_and_a_server_left_behind_is_stopped(
    tmp_path: Path, port: int
) -> None:
    home = Home(tmp_path)
    make_private_folder(home.prefect)
    left = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    note = {"address": "http://127.0.0.1/api", "owner": str(owner_of(left.pid))}
    (home.prefect / "server.json").write_text(json.dumps(note))
    assert find_server(home) is None  # nobody knows its secret
    password_file(home).write_text("pgsr:word\n")
    found = find_server(home)
    assert found is not None
    assert (found.address, found.secret) == ("http://127.0.0.1/api", "pgsr:word")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(PortTaken, match="--port"), own_server(home, port=port):
            pass
    assert left.wait(timeout=30) == -signal.SIGTERM
    assert find_server(home) is None


def test_deployments_for_a_work_pool_are_written_without_starting_anything(
    daily: Path, tmp_path: Path
) -> None:
    serve(daily, "--prefect-yaml", tmp_path / "prefect.yaml")
    assert "cron: '* * * * * */20'" in (tmp_path / "prefect.yaml").read_text()
    assert not (daily.parent / ".pgsr" / "prefect").exists()
    with pytest.raises(NotToBeServed, match="cannot be written"):
        serve(daily, "--prefect-yaml", tmp_path / "no-folder" / "prefect.yaml")


def test_slots_before_the_first_run_of_a_work_pool_are_missed_and_not_forgotten(
    daily: Path, tmp_path: Path
) -> None:
    serve(daily, "--prefect-yaml", tmp_path / "prefect.yaml")
    minute_later = datetime.now(UTC) + timedelta(minutes=1)
    assert len(Series.open(daily).missed(minute_later)) == 1  # the latest
