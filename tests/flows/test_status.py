"""`pgsr status`: stage, age, owner, last error and the command to run next, also while it runs."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.cli.status import NoSuchRelease
from tasks.ledger import runs
from tasks.ledger.ledger import Ledger
from tasks.ledger.owner import owner_of

PRODUCT = "household-sizes"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(f"sqlite:///{tmp_path / 'ledger.sqlite'}")


@pytest.fixture
def status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`pgsr status …` inside this process: what it prints."""
    from flows.cli.app import app

    def run(*arguments: str) -> str:
        capsys.readouterr()
        app(["status", *arguments, "--home", str(tmp_path)], standalone_mode=False)
        return capsys.readouterr().out

    return run


def die_in(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, release: str, stage: str) -> int:
    """Note a running stage in the name of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = owner_of(process.pid)
    with monkeypatch.context() as patch:
        patch.setattr(runs, "this_process", lambda: owner)
        ledger.set_state(PRODUCT, release, state="running", stage=stage)
    process.communicate(b"\n")
    return process.pid


def test_status_says_of_each_release_where_it_stands_and_what_to_run(
    ledger: Ledger,
    status: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    ledger.set_state(PRODUCT, "a", state="published", stage="publish")
    ledger.set_state(PRODUCT, "b", state="running", stage="cpwl")
    ledger.set_state(PRODUCT, "c", state="failed", stage="ingest", error="DuplicatePerson")
    ledger.set_state(PRODUCT, "d", state="failed", stage="validate", error="GateFailed")
    gone = die_in(ledger, monkeypatch, "e", "noise")
    found = {each["release"]: each for each in json.loads(status("--json"))}
    home = f" --home {tmp_path}"
    assert {name: (each["state"], each["next"]) for name, each in found.items()} == {
        "a": ("published", ""),
        "b": ("running", f"pgsr status {PRODUCT}/b --watch{home}"),
        "c": ("failed", f"pgsr resume {PRODUCT}/c{home}"),
        "d": ("failed", f"pgsr audit log {PRODUCT}/d{home}"),
        "e": ("dead", f"pgsr resume {PRODUCT}/e{home}"),
    }
    assert (found["e"]["stage"], found["e"]["process"]) == ("noise", gone)
    assert 0 <= found["e"]["age_seconds"] < 600
    assert (found["c"]["stage"], found["c"]["error"]) == ("ingest", "InputStopped")
    assert found["d"]["error"] == "GateFailed"
    for said in (status(f"{PRODUCT}/c"), status(f"{PRODUCT}/c", "--json")):
        assert "DuplicatePerson" not in said  # an earlier version noted the class
    shown = status()
    assert "stopped on its input in ingest" in shown
    assert f"/{gone}" in shown
    assert f"pgsr resume {PRODUCT}/e{home}\n" in shown  # whole, however narrow the terminal


def test_status_of_one_release_shows_that_one_and_an_unknown_name_is_an_error(
    ledger: Ledger, status: Callable[..., str]
) -> None:
    ledger.set_state(PRODUCT, "a", state="published", stage="publish")
    ledger.set_state(PRODUCT, "b", state="published", stage="publish")
    [only] = json.loads(status(f"{PRODUCT}/b", "--json"))
    assert only["release"] == "b"
    with pytest.raises(NoSuchRelease, match="Remedy"):
        status(f"{PRODUCT}/c")


def test_watching_shows_every_change_and_ends_with_the_run(
    ledger: Ledger, status: Callable[..., str]
) -> None:
    ledger.set_state(PRODUCT, "a", state="running", stage="noise")

    def go_on() -> None:
        for state, stage in (("running", "cpwl"), ("failed", "publish"), ("published", "publish")):
            time.sleep(1.2)
            error = "OSError" if state == "failed" else None
            ledger.set_state(PRODUCT, "a", state=state, stage=stage, error=error)

    process = threading.Thread(target=go_on)
    process.start()
    lines = status(f"{PRODUCT}/a", "--watch").splitlines()
    process.join()
    # A failure of a process that lives may be tried again, so it is not the end.
    assert [line.split("  ")[2:] for line in lines] == [
        ["running", "noise"],
        ["running", "cpwl"],
        ["failed", "OSError in publish"],
        ["published", "publish"],
    ]


def test_watching_on_a_terminal_shows_the_table_in_place(
    ledger: Ledger, status: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    from flows.cli import screen

    ledger.set_state(PRODUCT, "a", state="published", stage="publish")
    terminal = Console(force_terminal=True, file=io.StringIO(), width=120)
    monkeypatch.setattr(screen, "out", terminal)
    status("--watch")
    assert isinstance(terminal.file, io.StringIO)
    assert f"{PRODUCT}/a" in terminal.file.getvalue()


def test_watching_ends_at_once_when_the_process_is_gone(
    ledger: Ledger, status: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    die_in(ledger, monkeypatch, "a", "noise")
    [only] = json.loads(status("--watch", "--json"))
    assert only["state"] == "dead"
