"""What killed processes spilled goes away; what a living process uses is never touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from flows.cli.app import app
from pgsr_core.errors import PgsrError
from tasks.storage.duck import connect
from tasks.storage.temporary import SPILL, is_abandoned, remove_spill, temporary_folder
from tasks.storage.zones import Home

# Sorts more than fits into memory, says so in the middle of it, and stays there.
SPILLING = """
import sys, time
from pathlib import Path
from tasks.storage.duck import connect
with connect(Path(sys.argv[1]), memory_limit="50MB", threads=1) as connection:
    connection.execute("CREATE TABLE t AS SELECT range AS x, hash(range) AS h FROM range(2000000)")
    result = connection.execute("SELECT * FROM t ORDER BY h")
    result.fetchone()
    print("spilled", flush=True)
    time.sleep(600)
"""
STORE = "confidential.duckdb"


def spilling(store: Path) -> subprocess.Popen[bytes]:
    """A process in the middle of a query that spilled."""
    command = [sys.executable, "-c", SPILLING, str(store)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"spilled\n"
    return process


def spilled(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.startswith("duckdb_temp")]


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The folder of a run that was killed while it spilled."""
    run = tmp_path / "home" / "confidential" / "product" / "killed"
    process = spilling(run / STORE)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert sum(path.stat().st_size for path in spilled(run)) > 0
    return run


@pytest.fixture
def living(tmp_path: Path) -> Iterator[Path]:
    """The folder of a run that spilled and is not done."""
    run = tmp_path / "home" / "confidential" / "product" / "living"
    process = spilling(run / STORE)
    yield run
    assert process.poll() is None
    process.kill()
    process.wait()


def test_the_next_who_opens_a_store_removes_what_a_killed_process_spilled(killed: Path) -> None:
    with connect(killed / STORE):
        assert spilled(killed) == []
    assert [path.name for path in killed.iterdir()] == [STORE]


def test_any_next_run_of_the_home_removes_it_and_leaves_what_is_in_use(
    killed: Path, living: Path, tmp_path: Path
) -> None:
    used = spilled(living)
    assert remove_spill(Home(tmp_path / "home")) == 1
    assert spilled(killed) == []
    assert not list(killed.glob(f"{SPILL}*"))
    assert spilled(living) == used
    assert remove_spill(Home(tmp_path / "home")) == 0


@pytest.mark.parametrize("command", [("purge", "--due", "--yes"), ("doctor",)])
def test_purge_and_doctor_remove_it_and_leave_what_is_in_use(
    killed: Path, living: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    used = spilled(living)
    with suppress(PgsrError):  # this home has no ledger
        app([*command, "--home", str(tmp_path / "home")], standalone_mode=False)
    assert spilled(killed) == []
    assert spilled(living) == used


def test_what_an_older_version_spilled_beside_a_store_goes_when_the_store_is_opened(
    tmp_path: Path,
) -> None:
    (tmp_path / "spill").mkdir()
    (tmp_path / "spill" / "duckdb_temp_storage_DEFAULT-0.tmp").write_text("raw")
    with connect(tmp_path / STORE):
        assert not (tmp_path / "spill").exists()


def test_a_folder_of_somebody_else_that_is_called_spill_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "spill").mkdir()
    (tmp_path / "spill" / "my own").touch()
    with connect(tmp_path / STORE):
        pass
    assert (tmp_path / "spill" / "my own").is_file()


def test_a_reader_who_cannot_write_beside_a_store_reads_it_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(tmp_path / STORE) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS x")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with connect(tmp_path / STORE, read_only=True) as connection:
        assert connection.execute("SELECT x FROM t").fetchall() == [(1,)]


def test_a_lock_that_leads_elsewhere_creates_and_removes_nothing(tmp_path: Path) -> None:
    trap = tmp_path / f"{SPILL}00"
    trap.mkdir()
    (trap / "lock").symlink_to(tmp_path / "victim")
    with temporary_folder(tmp_path, SPILL):
        pass
    assert not (tmp_path / "victim").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_folder_of_another_user_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / f"{SPILL}00"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    with temporary_folder(tmp_path, SPILL) as ours:
        assert theirs.is_dir()
        assert not is_abandoned(ours)
    assert not ours.exists()
