"""Another user of the machine, and a page of another site, go for the server of `pgsr serve`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from benchmarks.torture.commands import SECONDS, Office
from benchmarks.torture.rows import Effort, Row, Torture, Trials
from flows.server import find_server
from flows.server_process import Server
from tasks.storage.zones import Home
from tests.flows.intruder import FOREIGN, as_nobody, ask

FAULT = "answer_everybody"
SCHEDULE = 'schedule: {cron: "0 0 1 1 *"}\n'


@contextmanager
def serving(office: Office) -> Iterator[Server]:
    """`pgsr serve` of a product that comes due once a year."""
    text = office.configuration.read_text().replace("release: synthetic-1", 'release: "{date:%Y}"')
    office.configuration.write_text(text + SCHEDULE)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = office.start("serve", "product.yaml", "--port", str(port))
    try:
        yield _started(office, process)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=SECONDS)


def _started(office: Office, process: subprocess.Popen[str]) -> Server:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and process.poll() is None:
        server = find_server(Home(office.home))
        if server is not None and _deployment(server) is not None:
            return server
        time.sleep(0.5)
    raise TimeoutError("pgsr serve did not start")


def _deployment(server: Server) -> str | None:
    try:
        answer = ask(f"{server.address}/deployments/filter", "POST", {}, secret=server.secret)
        found = json.loads(answer[1])
    except (OSError, ValueError):
        return None
    return str(found[0]["id"]) if found else None


def attack(office: Office) -> Trials:
    """Try everything as an unprivileged user; what was done for them is a violation."""
    trials = Trials()
    with serving(office) as server:
        api, deployment = server.address, _deployment(server)
        runs = f"{api}/deployments/{deployment}/create_flow_run"
        foreign = {"configuration": "/foreign/product.yaml"}
        attempts: dict[str, tuple[str, str, Any]] = {
            "a run": ("POST", runs, {"state": {"type": "CANCELLED"}}),
            "a foreign configuration": ("POST", runs, {"parameters": foreign}),
            "another entry point": (
                *("PATCH", f"{api}/deployments/{deployment}"),
                {"entrypoint": "foreign.module:flow", "paused": True},
            ),
            "the settings": ("GET", f"{api}/admin/settings", None),
        }
        for name, (method, url, document) in attempts.items():
            status = as_nobody(lambda: ask(url, method, document)[0])  # noqa: B023 (called at once)
            done = status != HTTPStatus.UNAUTHORIZED
            trials.note(name, [f"answered {status}"] if done else [])
        asked = {"Origin": FOREIGN, "Access-Control-Request-Method": "POST"}
        headers = ask(runs, "OPTIONS", headers=asked)[2]
        allowed = headers.get("access-control-allow-origin")
        trials.note("a foreign page", [f"allowed {allowed}"] if allowed in {"*", FOREIGN} else [])
    return trials


def run(effort: Effort) -> Iterator[Row]:
    if os.geteuid() != 0:
        yield Row(
            "attacks on the scheduler by another user of the machine",
            "not tried: only root can become another user",
            "0 violations",
            False,
            "no secret: not tried",
            False,
        )
        return
    trials = attack(Office.open(effort.folder / "sound"))
    mutant = attack(Office.open(effort.folder / "broken", fault=FAULT))
    yield Row(
        "attacks on the scheduler by another user of the machine",
        trials.count("attacks"),
        "0 violations: nothing is done for them",
        not trials.violations,
        f"no secret: {mutant.count('attacks')}",
        bool(mutant.violations),
        trials.violations,
    )


TORTURE = Torture("intruders", run)
