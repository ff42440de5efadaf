"""Prefect's failures: told with a remedy and exit code 3, no traceback, and no release is lost."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from flows.server import find_server
from tasks.ledger.ledger import Ledger
from tasks.storage.zones import Home
from tests.flows.commandline import Pgsr
from tests.flows.intruder import ask, port_of, server_of

NAME = "household-sizes/synthetic-1"
PATIENCE = 300
AT_ONCE = 6
# Larger than what a release writes before Prefect comes in, smaller than Prefect's database.
ROOM_BYTES = 3_000_000


def plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if "PREFECT" not in name}


def start(
    *arguments: str, cwd: Path, prepare: Callable[[], None] | None = None, **environment: str
) -> subprocess.Popen[str]:
    """The command line without a server: it starts a temporary one."""
    return subprocess.Popen(
        [sys.executable, "-m", "flows", *arguments],
        cwd=cwd,
        env={**plain_environment(), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=prepare,  # noqa: PLW1509  (a limit of the child's own)
    )


def finish(process: subprocess.Popen[str], patience: int = PATIENCE) -> str:
    said, _ = process.communicate(timeout=patience)
    assert "Traceback" not in said
    return said


def eventually(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise TimeoutError(what)


def is_up(server: int) -> bool:
    port = port_of(server)
    try:
        return port is not None and ask(f"http://127.0.0.1:{port}/api/health")[0] == HTTPStatus.OK
    except OSError:
        return False


def ledger(folder: Path) -> Ledger:
    return Ledger(f"sqlite:///{folder / '.pgsr' / 'ledger.sqlite'}")


def is_published(folder: Path, name: str = NAME) -> bool:
    return (folder / "public" / name / "group_sizes.parquet").is_file()


def test_a_disk_that_is_full_at_prefects_start_is_told_and_the_release_is_resumed(
    virginia: Path,
) -> None:
    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES, ROOM_BYTES))

    release = start("release", "product.yaml", cwd=virginia, prepare=little_room)
    said = finish(release)
    assert release.returncode == 3, said
    assert "the Prefect server did not start. Remedy:" in said
    assert "not full" in said
    assert ledger(virginia).charges("virginia-2000") == ()
    resume = start("resume", NAME, cwd=virginia)
    assert finish(resume)
    assert resume.returncode == 0
    assert is_published(virginia)


def test_a_place_where_prefect_cannot_write_is_told(virginia: Path) -> None:
    (virginia / ".pgsr" / "prefect").touch()
    release = start("release", "product.yaml", cwd=virginia)
    said = finish(release)
    assert release.returncode == 3, said
    assert "Remedy:" in said


def test_a_server_that_is_killed_before_the_run_is_told_and_the_release_is_resumed(
    virginia: Path,
) -> None:
    release = start("release", "product.yaml", cwd=virginia)
    server = eventually(lambda: server_of(release.pid), "no server was started")
    eventually(lambda: is_up(server), "the server does not answer")
    os.kill(server, signal.SIGKILL)
    said = finish(release)
    assert release.returncode == 3, said
    assert f"then pgsr resume {NAME}" in said or "run the same again" in said
    resume = start("resume", NAME, cwd=virginia)
    said = finish(resume)
    assert resume.returncode == 0, said
    assert is_published(virginia)
    assert len(ledger(virginia).charges("virginia-2000")) == 1


def test_a_server_that_is_killed_in_the_middle_costs_neither_the_release_nor_minutes(
    virginia: Path,
) -> None:
    release = start("release", "product.yaml", cwd=virginia)
    server = eventually(lambda: server_of(release.pid), "no server was started")

    def is_at_work() -> bool:
        return any(state.stage != "recall" for state in ledger(virginia).run_states())

    eventually(is_at_work, "the release was not begun")
    os.kill(server, signal.SIGKILL)
    since = time.monotonic()
    said = finish(release)
    assert time.monotonic() - since < PATIENCE / 2
    assert release.returncode == 0, said
    assert "Prefect's server went away" in said
    assert is_published(virginia)
    assert len(ledger(virginia).charges("virginia-2000")) == 1


def test_a_server_whose_database_is_busy_is_told_and_the_release_is_resumed(
    pgsr: Pgsr, virginia: Path
) -> None:
    class Busy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(HTTPStatus.SERVICE_UNAVAILABLE)
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as busy:
        Thread(target=busy.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{busy.server_port}/api"
        release = start("release", "product.yaml", cwd=virginia, PREFECT_API_URL=address)
        said = finish(release)
        busy.shutdown()
    assert release.returncode == 3, said
    assert f"then pgsr resume {NAME}" in said
    resumed = pgsr("resume", NAME, cwd=virginia)
    assert resumed.returncode == 0, resumed.stderr
    assert is_published(virginia)


def test_releases_that_are_started_at_once_in_one_home_are_all_published(
    virginia: Path,
) -> None:
    text = (virginia / "product.yaml").read_text() + "margins: {repetitions: 0}\n"
    names = [f"product-{number}" for number in range(AT_ONCE)]
    for name in names:
        (virginia / f"{name}.yaml").write_text(
            text.replace("product: household-sizes", f"product: {name}")
        )
    releases = {name: start("release", f"{name}.yaml", cwd=virginia) for name in names}
    for name, release in releases.items():
        said = finish(release, AT_ONCE * PATIENCE)
        assert release.returncode in {0, 3}, said
        if release.returncode == 3:
            assert "Remedy:" in said
            resume = start("resume", f"{name}/synthetic-1", cwd=virginia)
            assert finish(resume)
            assert resume.returncode == 0
        assert is_published(virginia, f"{name}/synthetic-1")
    assert len(ledger(virginia).charges("virginia-2000")) == AT_ONCE


def test_serving_ends_with_a_remedy_when_its_server_is_killed(virginia: Path) -> None:
    with (virginia / "product.yaml").open("a") as file:
        file.write('schedule: {cron: "0 0 1 1 *"}\n')
    text = (virginia / "product.yaml").read_text()
    (virginia / "product.yaml").write_text(
        text.replace("release: synthetic-1", 'release: "{date:%Y}"')
    )
    home = Home(virginia / ".pgsr")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    serving = start("serve", "product.yaml", "--port", port, cwd=virginia)
    server = eventually(lambda: find_server(home), "pgsr serve did not start")

    def is_deployed() -> bool:
        found = ask(f"{server.address}/deployments/filter", "POST", {}, secret=server.secret)
        return "household-sizes" in found[1]

    eventually(is_deployed, "nothing was deployed")
    os.kill(server.process, signal.SIGKILL)
    said = finish(serving)
    assert serving.returncode == 3, said
    assert "the Prefect server has ended" in said
    assert find_server(home) is None
