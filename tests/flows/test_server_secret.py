"""The scheduler obeys its owner only: attacks by another user of the machine, and by a web page."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from flows.server import find_server, own_server, password_file
from tasks.doctor import examine
from tasks.ledger.ledger import Ledger
from tasks.storage.zones import Home, make_private_folder
from tests.flows.commandline import edit
from tests.flows.intruder import (
    FOREIGN,
    as_nobody,
    ask,
    can_listen,
    command_lines,
    environment_of,
    hears_events,
    needs_root,
    port_of,
    server_of,
)

PATIENCE = 240
GUESS = "pgsr:guess"
NEW_YEAR = 'schedule: {cron: "0 0 1 1 *"}\n'


def eventually(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.2)
    raise TimeoutError(what)


def plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if "PREFECT" not in name}


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def serving(virginia: Path, port: int) -> Iterator[Home]:
    """`pgsr serve` of a product that comes due once a year; the home that it works in."""
    configuration = virginia / "product.yaml"
    edit(configuration, "release: synthetic-1", 'release: "{date:%Y}"')
    with configuration.open("a") as file:
        file.write(NEW_YEAR)
    process = subprocess.Popen(
        [sys.executable, "-m", "flows", "serve", "product.yaml", "--port", str(port)],
        cwd=virginia,
        env={**plain_environment(), "PREFECT_RUNNER_POLL_FREQUENCY": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    home = Home(virginia / ".pgsr")
    try:
        eventually(lambda: find_server(home), "pgsr serve did not start")
        yield home
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=60)


def attacks(api: str, deployment: str, foreign: str) -> dict[str, tuple[str, str, Any]]:
    """What an intruder would have the scheduler do."""
    runs = f"{api}/deployments/{deployment}/create_flow_run"
    return {
        "a run": ("POST", runs, {"state": {"type": "CANCELLED"}}),
        "a foreign configuration": ("POST", runs, {"parameters": {"configuration": foreign}}),
        "other code": (
            *("PATCH", f"{api}/deployments/{deployment}"),
            {"entrypoint": "flows.scheduled.release_product", "paused": False},
        ),
        "the runs": ("POST", f"{api}/flow_runs/filter", {}),
        "the version": ("GET", f"{api}/admin/version", None),
        "the settings": ("GET", f"{api}/admin/settings", None),
    }


def statuses(
    asked: dict[str, tuple[str, str, Any]], *, secret: str | None = None, **headers: str
) -> dict[str, int]:
    return {
        name: ask(url, method, document, secret=secret, headers=headers)[0]
        for name, (method, url, document) in asked.items()
    }


@needs_root
def test_another_user_cannot_make_a_served_scheduler_do_anything(
    serving: Home, virginia: Path, tmp_path: Path
) -> None:
    server = find_server(serving)
    assert server is not None
    foreign = tmp_path / "theirs" / "product.yaml"
    foreign.parent.mkdir()
    foreign.write_text((virginia / "product.yaml").read_text())

    def deployed() -> str | None:
        found = ask(f"{server.address}/deployments/filter", "POST", {}, secret=server.secret)
        return str(json.loads(found[1])[0]["id"]) if json.loads(found[1]) else None

    asked = attacks(server.address, eventually(deployed, "nothing was deployed"), str(foreign))
    refused = dict.fromkeys(asked, HTTPStatus.UNAUTHORIZED)
    assert as_nobody(lambda: statuses(asked)) == refused
    assert as_nobody(lambda: statuses(asked, secret=GUESS)) == refused
    # A name that was made to lead here (DNS rebinding) opens nothing.
    assert as_nobody(lambda: statuses(asked, Host="foreign.example")) == refused
    assert as_nobody(lambda: hears_events(server.address, None)) is False
    assert as_nobody(lambda: hears_events(server.address, GUESS)) is False
    assert "PermissionError" in as_nobody(lambda: password_file(serving).read_text())
    # Not even the schema of the interface, and nothing but a sign of life, without the secret.
    assert as_nobody(lambda: ask(f"{server.address}/openapi.json")[0]) == HTTPStatus.UNAUTHORIZED
    assert as_nobody(lambda: ask(f"{server.address}/health")[:2]) == [HTTPStatus.OK, "true"]

    # The same with the secret: what was refused is refused for the lack of it alone.
    answers = statuses(asked, secret=server.secret)
    assert all(HTTPStatus.OK <= code < HTTPStatus.BAD_REQUEST for code in answers.values()), answers
    assert hears_events(server.address, server.secret)

    # And even the owner's run of a configuration that was not served is refused.
    def failed() -> bool:
        filtered = {"flow_runs": {"state": {"type": {"any_": ["FAILED"]}}}}
        found = ask(f"{server.address}/flow_runs/filter", "POST", filtered, secret=server.secret)
        return any("NotServed" in run["state"]["message"] for run in json.loads(found[1]))

    eventually(failed, "the run of a foreign configuration did not fail")
    assert not (foreign.parent / ".pgsr").exists()
    assert not (foreign.parent / "public").exists()
    assert Ledger(serving.ledger_url).charges("virginia-2000") == ()
    assert f"{foreign} was not served" in serving.operator_log.read_text()


def preflight(url: str, origin: str) -> tuple[int, str | None]:
    asking = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    code, _, headers = ask(url, "OPTIONS", headers=asking)
    return code, headers.get("access-control-allow-origin")


def test_pages_of_other_sites_are_not_answered_and_its_own_are(tmp_path: Path, port: int) -> None:
    home = Home(tmp_path)
    make_private_folder(home.prefect)
    with own_server(home, port=port) as server:
        own = f"http://127.0.0.1:{port}"
        runs = f"{server.address}/flow_runs/filter"
        assert preflight(runs, own) == (HTTPStatus.OK, own)
        for origin in (FOREIGN, "null", "http://localhost:1", "http://127.0.0.1"):
            code, allowed = preflight(runs, origin)
            assert (code, allowed) == (HTTPStatus.BAD_REQUEST, None)
            answer = ask(runs, "POST", {}, secret=server.secret, headers={"Origin": origin})
            assert "access-control-allow-origin" not in answer[2]
        # The pages themselves, which hold no data, and where they ask for theirs.
        code, said, _ = ask(f"{own}/ui-settings")
        assert (code, json.loads(said)["auth"]) == (HTTPStatus.OK, "BASIC")
        assert json.loads(said)["api_url"] == server.address
        assert [finding for finding in examine(home, environment={}) if not finding.ok] == []


def test_the_doctor_finds_a_server_that_answers_anybody(
    prefect_server: dict[str, str], tmp_path: Path
) -> None:
    home = Home(tmp_path / "home")
    home.create()
    environment = {"PREFECT_API_URL": prefect_server["PREFECT_API_URL"]}
    found = [each for each in examine(home, environment=environment) if not each.ok]
    assert ["without a secret" in found[0].says, "any other site" in found[1].says] == [True, True]
    assert "PREFECT_SERVER_API_AUTH_STRING" in found[0].remedy
    assert "PREFECT_SERVER_CORS_ALLOWED_ORIGINS" in found[1].remedy


@needs_root
def test_nobody_can_listen_in_the_place_of_a_server_that_was_killed(
    tmp_path: Path, port: int
) -> None:
    home = Home(tmp_path)
    make_private_folder(home.prefect)
    assert as_nobody(lambda: can_listen(port)) is True
    with own_server(home, port=port) as server:
        assert as_nobody(lambda: can_listen(port)) is False
        os.kill(server.process, signal.SIGKILL)
        assert server.gone.wait(timeout=30)
        assert as_nobody(lambda: can_listen(port)) is False


@needs_root
def test_the_temporary_server_of_a_plain_release_obeys_it_alone(
    virginia: Path, tmp_path: Path
) -> None:
    release = subprocess.Popen(
        [sys.executable, "-m", "flows", "release", "product.yaml"],
        cwd=virginia,
        env=plain_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    server = eventually(lambda: server_of(release.pid), "no server was started")
    port = eventually(lambda: port_of(server), "the server does not listen")
    api = f"http://127.0.0.1:{port}/api"
    secret = environment_of(server)["PREFECT_SERVER_API_AUTH_STRING"]

    def owner_sees() -> bool:
        try:
            return ask(f"{api}/admin/version", secret=secret)[0] == HTTPStatus.OK
        except OSError:
            return False

    eventually(owner_sees, "the server does not answer its owner")
    os.kill(release.pid, signal.SIGSTOP)  # long enough for an attack
    try:
        asked = attacks(api, "00000000-0000-0000-0000-000000000000", "/tmp/theirs.yaml")  # noqa: S108
        refused = dict.fromkeys(asked, HTTPStatus.UNAUTHORIZED)
        assert as_nobody(lambda: statuses(asked)) == refused
        assert as_nobody(lambda: hears_events(api, None)) is False
        assert "PermissionError" in as_nobody(lambda: environment_of(server))
        assert preflight(f"{api}/flow_runs/filter", FOREIGN)[1] is None
        owned = statuses(asked, secret=secret)
        assert HTTPStatus.UNAUTHORIZED not in owned.values()
        assert owned["the runs"] == HTTPStatus.OK
        assert secret.encode() not in command_lines()
    finally:
        os.kill(release.pid, signal.SIGCONT)
    said, _ = release.communicate(timeout=PATIENCE)
    assert release.returncode == 0, said
    word = secret.partition(":")[2]
    assert word not in said
    written = [path for path in virginia.rglob("*") if path.is_file()]
    assert any(path.name == "prefect.db" for path in written)
    assert [path for path in written if word.encode() in path.read_bytes()] == []


def test_a_server_ends_with_the_process_that_started_it(virginia: Path) -> None:
    release = subprocess.Popen(
        [sys.executable, "-m", "flows", "release", "product.yaml"],
        cwd=virginia,
        env=plain_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    server = eventually(lambda: server_of(release.pid), "no server was started")
    release.kill()
    release.wait(timeout=30)
    eventually(lambda: not Path(f"/proc/{server}/environ").exists(), "the server lives on")
