"""The doctor finds each ailment, names the cure, and leaves the patient as it was."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import sqlite3
import stat
from contextlib import closing
from datetime import date
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tasks.doctor import LEAST_FREE_BYTES, Finding, examine
from tasks.keys import create_key
from tasks.ledger.ledger import Ledger, MeasurementRequest
from tasks.ledger.owner import Owner
from tasks.stages.prepare import prepare
from tasks.storage.zones import Home
from tests.flows.commandline import edit

PLENTY = 10 * LEAST_FREE_BYTES


@pytest.fixture
def home(virginia_population: Path, tmp_path: Path) -> Home:
    """An installation with a release that was decided under a umask that closes nothing."""
    folder = Path(shutil.copytree(virginia_population, tmp_path / "office"))
    configuration = folder / "product.yaml"
    create_key(folder / "release.key")
    edit(configuration, "  to: public\n", "  to: public\n  signing_key: release.key\n")
    before = os.umask(0)
    try:
        home = Home(Path(prepare(configuration, slot=date(2026, 1, 1)).home))
        home.source_key()
    finally:
        os.umask(before)
    return home


def opened(home: Home) -> Ledger:
    return Ledger(home.ledger_url, witness=home.witness)


def problems(home: Home, **environment: str) -> list[Finding]:
    found = examine(home, environment=environment, free_bytes=lambda _: PLENTY)
    assert all(finding.remedy for finding in found if not finding.ok)
    return [finding for finding in found if not finding.ok]


def the_problem(home: Home, **environment: str) -> Finding:
    [problem] = problems(home, **environment)
    return problem


def snapshot(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    return {
        str(path): (
            path.lstat().st_mode,
            path.read_bytes() if path.is_file() else None,
        )
        for path in (folder, *folder.rglob("*"))
    }


def test_a_healthy_installation_made_under_umask_000_has_no_problem(home: Home) -> None:
    assert problems(home) == []
    areas = {finding.area for finding in examine(home, environment={})}
    assert areas == {"permissions", "ledger", "runs", "keys", "prefect", "leftovers", "disk"}


def test_looking_changes_nothing(home: Home) -> None:
    before = snapshot(home.root.parent)
    examine(home, environment={})
    assert snapshot(home.root.parent) == before


def test_a_missing_home_is_a_problem_and_is_not_made(tmp_path: Path) -> None:
    assert the_problem(Home(tmp_path / "nowhere")).area == "home"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_file_that_others_can_use_is_named_with_the_command_that_closes_it(
    home: Home, mode: int
) -> None:
    key = home.root / "confidential" / "source-digest.key"
    key.chmod(mode)
    problem = the_problem(home)
    assert problem.area == "permissions"
    assert problem.remedy == f"chmod 600 {key}"
    assert stat.S_IMODE(key.stat().st_mode) == mode


def test_an_open_folder_a_link_and_very_many_open_files_are_found(home: Home) -> None:
    confidential = home.root / "confidential"
    confidential.chmod(0o755)
    assert the_problem(home).remedy == f"chmod 700 {confidential}"
    confidential.chmod(0o700)
    (confidential / "link").symlink_to("/")
    assert "link" in the_problem(home).says
    (confidential / "link").unlink()
    for number in range(30):
        (confidential / str(number)).touch()
        (confidential / str(number)).chmod(0o644)
    assert the_problem(home).remedy == f"chmod -R go= {home.root}"


def test_files_that_prefect_keeps_behind_its_own_door_are_not_judged(home: Home) -> None:
    home.prefect.mkdir(mode=0o700)
    (home.prefect / "prefect.db").touch()
    (home.prefect / "prefect.db").chmod(0o644)
    assert problems(home) == []
    home.prefect.chmod(0o755)
    assert {problem.area for problem in problems(home)} == {"permissions", "prefect"}


def test_a_damaged_loose_or_missing_key_is_found(home: Home) -> None:
    (home.root / "confidential" / "source-digest.key").write_bytes(b"short")
    assert "backup" in the_problem(home).remedy
    signing = home.root.parent / "release.key"
    (home.root / "confidential" / "source-digest.key").write_bytes(bytes(32))
    signing.chmod(0o644)
    assert "chmod 600" in the_problem(home).remedy
    signing.unlink()
    assert the_problem(home).area == "keys"


def test_a_measured_release_without_the_source_key_is_a_problem(home: Home) -> None:
    key = home.root / "confidential" / "source-digest.key"
    key.unlink()
    assert problems(home) == []  # nothing was measured yet; the next run makes one
    import numpy as np

    ledger = opened(home)
    reservation = ledger.reserve(request_for("household-sizes", "synthetic-1"))
    ledger.commit(
        reservation,
        np.zeros((1, 1), dtype=np.int64),
        digest="d" * 64,
        sizes=range(1, 2),
        groups=1,
        sampler="none",
        simulation=False,
    )
    assert "recognised" in the_problem(home).says


def request_for(product: str, release: str) -> MeasurementRequest:
    return MeasurementRequest(
        key="k" * 64,
        population="people",
        budget=Fraction(4),
        product=product,
        release=release,
        epsilon=Fraction(1, 2),
        descriptor={},
    )


def test_a_ledger_that_is_missing_foreign_or_no_database_is_found_and_not_repaired(
    home: Home,
) -> None:
    path = home.root / "ledger.sqlite"
    path.unlink()
    assert the_problem(home).says == "there is no ledger"
    assert not path.exists()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (x)")
    path.chmod(0o600)
    assert the_problem(home).says == "there is no ledger"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("other",)]
    path.write_bytes(b"not a database " * 100)
    assert the_problem(home).area == "ledger"


def test_a_ledger_that_was_rolled_back_is_found(home: Home) -> None:
    ledger = home.root / "ledger.sqlite"
    old = ledger.read_bytes()
    opened(home).record("published", "household-sizes", "synthetic-1")
    ledger.write_bytes(old)
    assert "rolled back" in the_problem(home).says


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_ledger_that_cannot_be_written_is_found(home: Home) -> None:
    path = home.root / "ledger.sqlite"
    path.chmod(0o400)
    assert the_problem(home).remedy == f"chmod u+rw {path}"


def gone() -> str:
    return str(Owner(socket.gethostname(), 2**22 + 1, "1", "f" * 16))


def test_a_run_that_died_is_named_with_the_command_that_goes_on(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(home)
    ledger.set_state("household-sizes", "synthetic-1", state="running", stage="noise")
    assert problems(home) == []  # this process lives
    monkeypatch.setattr("tasks.ledger.runs.this_process", gone)
    ledger.set_state("household-sizes", "synthetic-1", state="running", stage="noise")
    assert the_problem(home).remedy == "pgsr resume household-sizes/synthetic-1"


def test_a_reservation_that_nobody_works_on_is_found(home: Home) -> None:
    ledger = opened(home)
    ledger.reserve(request_for("household-sizes", "synthetic-1"))
    problem = the_problem(home)
    assert problem.area == "ledger"
    assert "reserved" in problem.says
    ledger.set_state("household-sizes", "synthetic-1", state="running", stage="noise")
    assert problems(home) == []  # somebody does


def test_what_killed_processes_left_behind_is_found_and_what_is_in_use_is_not(home: Home) -> None:
    run = home.root / "confidential" / "household-sizes" / "synthetic-1"
    spill = run / "spill"
    spill.mkdir(mode=0o700)
    draft = run / ".plan.json.draft-0a1b2c3d"
    draft.touch(mode=0o600)
    staging = home.root.parent / "public" / "household-sizes" / ".staging-synthetic-1-ab12"
    staging.mkdir(parents=True)
    lock = os.open(staging / "lock", os.O_RDWR | os.O_CREAT)
    found = {problem.remedy for problem in problems(home)}
    assert found == {f"rm -r {path}" for path in (spill, draft, staging)}
    fcntl.flock(lock, fcntl.LOCK_EX)
    opened(home).set_state("household-sizes", "x", state="running", stage="noise")
    assert problems(home) == []
    os.close(lock)
    assert the_problem(home).remedy == f"rm -r {staging}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PREFECT_SERVER_ANALYTICS_ENABLED", "true"),
        ("PREFECT_RESULTS_PERSIST_BY_DEFAULT", "1"),
        ("DO_NOT_TRACK", "0"),
    ],
)
def test_a_prefect_setting_that_lets_something_out_is_found(
    home: Home, name: str, value: str
) -> None:
    problem = the_problem(home, **{name: value})
    assert problem.area == "prefect"
    assert problem.remedy.startswith(f"export {name}=")


def test_a_server_that_answers_is_fine_and_one_that_does_not_is_a_problem(home: Home) -> None:
    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/api/health" else 500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/api"
        assert problems(home, PREFECT_API_URL=address) == []
        server.shutdown()
    secret = "hunter2"  # noqa: S105 (a test's own)
    problem = the_problem(home, PREFECT_API_URL=address.replace("//", f"//me:{secret}@"))
    assert "does not answer" in problem.says
    assert secret not in problem.says + problem.remedy
    assert the_problem(home, PREFECT_API_URL="file:///etc/passwd").area == "prefect"


def test_an_open_prefect_folder_elsewhere_is_found(home: Home, tmp_path: Path) -> None:
    folder = tmp_path / "prefect home"
    folder.mkdir()
    folder.chmod(0o755)
    assert the_problem(home, PREFECT_HOME=str(folder)).remedy == f"chmod 700 '{folder}'"


def test_a_full_disk_is_found(home: Home) -> None:
    found = examine(home, environment={}, free_bytes=lambda _: LEAST_FREE_BYTES - 1)
    assert {finding.area for finding in found if not finding.ok} == {"disk"}


def test_a_plan_that_cannot_be_read_is_found(home: Home) -> None:
    (home.root / "runs" / "household-sizes" / "synthetic-1" / "plan.json").write_text("{}")
    assert the_problem(home).area == "runs"
