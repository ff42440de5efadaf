"""A second start, with another ε, while the first one draws: the bundle states what was drawn."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks.failpoints import STOPS, VARIABLE
from tests.flows.commandline import Pgsr, edit

NAME = "household-sizes/synthetic-1"
STOP_SECONDS = 120.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own."""
    monkeypatch.setenv("PGSR_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@contextmanager
def stopped_at(point: str, pgsr: Pgsr, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A release whose process stands still at a point, as on a machine that is very busy."""
    process = subprocess.Popen(
        [sys.executable, "-m", "flows", "release", "product.yaml"],
        cwd=folder,
        env={**os.environ, **pgsr.environment, VARIABLE: f"{point}{STOPS}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + STOP_SECONDS
        while _state(process.pid) != "T":
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


def _state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def stated(folder: Path) -> dict[str, object]:
    statement = json.loads((folder / "public" / NAME / "privacy.json").read_text())
    scales = {level["scale"]["exact"] for level in statement["levels"]}
    return {"epsilon": statement["epsilon"]["exact"], "scales": scales}


AS_DRAWN = {"epsilon": "1/2", "scales": {"8"}}


@pytest.mark.parametrize("point", ["noise.reserved", "noise.drawn", "noise.committed"])
def test_a_second_start_while_the_first_one_draws_changes_nothing_about_it(
    pgsr: Pgsr, virginia: Path, home: Path, point: str
) -> None:
    with stopped_at(point, pgsr, virginia) as first:
        plan = home / "runs" / NAME / "plan.json"
        before = plan.read_bytes()
        edit(virginia / "product.yaml", "epsilon: '0.5'", "epsilon: '0.025'")
        for command in (["release", "product.yaml"], ["resume", NAME]):
            second = pgsr(*command, cwd=virginia)
            assert second.returncode == 3, second.stderr
            assert "another process works on" in second.stderr
        assert plan.read_bytes() == before
        first.send_signal(signal.SIGCONT)
        _, said = first.communicate(timeout=STOP_SECONDS)
        assert first.returncode == 0, said
    assert stated(virginia) == AS_DRAWN
    refused = pgsr("release", "product.yaml", cwd=virginia)
    assert refused.returncode == 2
    assert "epsilon (1/2 then, 1/40 now)" in refused.stderr


def test_the_lock_of_a_killed_run_is_gone_and_another_epsilon_is_still_refused(
    pgsr: Pgsr, virginia: Path
) -> None:
    with stopped_at("noise.committed", pgsr, virginia):
        edit(virginia / "product.yaml", "epsilon: '0.5'", "epsilon: '0.025'")
    refused = pgsr("release", "product.yaml", cwd=virginia)
    assert refused.returncode == 2, refused.stderr
    assert "epsilon (1/2 then, 1/40 now)" in refused.stderr
    resumed = pgsr("resume", NAME, cwd=virginia)
    assert resumed.returncode == 0, resumed.stderr
    assert stated(virginia) == AS_DRAWN


def test_a_plan_that_was_swapped_before_a_resume_is_refused_and_can_be_put_right(
    pgsr: Pgsr, virginia: Path, home: Path
) -> None:
    with stopped_at("noise.committed", pgsr, virginia):
        plan = home / "runs" / NAME / "plan.json"
        plan.write_text(plan.read_text().replace('"epsilon": "1/2"', '"epsilon": "1/40"'))
    for command in (["resume", NAME], ["repost", NAME, "--as", "second"]):
        refused = pgsr(*command, cwd=virginia)
        assert refused.returncode == 2, refused.stderr
        assert "epsilon (1/2 then, 1/40 now)" in refused.stderr
    assert not (virginia / "public" / NAME).exists()
    assert pgsr("release", "product.yaml", cwd=virginia).returncode == 0
    assert stated(virginia) == AS_DRAWN
