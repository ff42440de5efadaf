"""Prefect's pages of a run: whatever is wrong with them, the run itself goes on."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tasks import artifacts
from tasks.run import RunRef


class Unreachable(Exception):
    pass


def unreachable(*_args: object, **_options: object) -> None:
    raise Unreachable


def test_pages_that_cannot_be_made_never_stop_a_run(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home = bundle.parents[2] / ".pgsr"
    ref = RunRef(str(home), bundle.parent.name, bundle.name)
    made = ("create_markdown_artifact", "create_progress_artifact", "create_table_artifact")
    for name in made:
        monkeypatch.setattr(artifacts, name, unreachable)
    caplog.set_level(logging.WARNING, logger="pgsr.artifacts")
    with artifacts.shown(ref):
        artifacts.stage_done("noise")
    assert [record.args for record in caplog.records] == [("Unreachable",)]


def test_a_server_that_is_gone_is_asked_once_and_never_stops_a_run(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = bundle.parents[2] / ".pgsr"
    ref = RunRef(str(home), bundle.parent.name, bundle.name)
    moved: list[float] = []

    def update(_artifact: object, progress: float, *, description: str) -> None:
        moved.append(progress)
        raise Unreachable(description)

    for name in ("create_markdown_artifact", "create_progress_artifact", "create_table_artifact"):
        monkeypatch.setattr(artifacts, name, lambda *_args, **_options: None)
    monkeypatch.setattr(artifacts, "update_progress_artifact", update)

    def run() -> None:
        with artifacts.shown(ref):
            for stage in ("recall", "isotonic", "publish"):
                artifacts.stage_done(stage)
            raise KeyError("of the run itself")

    with pytest.raises(KeyError, match="of the run itself"):
        run()
    assert len(moved) == 1  # every further question would take until the client gives up


def test_a_run_without_a_plan_is_shown_nowhere_and_goes_on(tmp_path: Path) -> None:
    with artifacts.shown(RunRef(str(tmp_path), "product", "release")):
        artifacts.stage_done("ingest")
