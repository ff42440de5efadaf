"""Durations, memory and spend as Prometheus text, JSON lines for machines; rows for nobody else."""

from __future__ import annotations

import json
import os
import shutil
from datetime import date
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tasks import logs
from tasks.boundary import StageFailed
from tasks.ledger.ledger import Ledger
from tasks.metrics import MetricsNotWritten, RowsAreConfidential, refuse_rows_outside, render, write
from tasks.observations import noted_rows, observations, observe
from tasks.run import RunRef
from tasks.stages.ingest import ingest
from tasks.stages.noise import recall
from tasks.stages.prepare import prepare
from tasks.storage.zones import Home

RELEASE = {"product": "household-sizes", "release": "synthetic-1"}


@pytest.fixture
def ref(virginia_population: Path, tmp_path: Path) -> RunRef:
    folder = Path(shutil.copytree(virginia_population, tmp_path / "office"))
    return prepare(folder / "product.yaml", slot=date(2026, 1, 1))


@pytest.fixture
def umask_kept() -> object:
    before = os.umask(0o022)
    yield
    os.umask(before)  # a stage closes it for its process


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels; the text must parse."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def home_of(ref: RunRef) -> Home:
    return Home(Path(ref.home))


@pytest.mark.usefixtures("umask_kept")
def test_a_stage_leaves_its_duration_and_memory_and_its_rows_where_they_are_confidential(
    ref: RunRef, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(logs.VARIABLE, "json")
    ingest.fn(ref)
    rows = noted_rows(ref.folder.confidential)
    assert rows is not None
    assert rows > 1000
    found = samples(render(home_of(ref), ref.ledger()))
    name = ("household-sizes", "synthetic-1", "ingest")
    assert found["pgsr_stage_duration_seconds", *name] > 0
    assert found["pgsr_stage_peak_memory_bytes", *name] > 1 << 20
    assert found["pgsr_stage_attempts", *name] == 1
    assert found["pgsr_releases", "household-sizes", "running"] == 1
    assert not any("rows" in key[0] for key in found)
    with_rows = samples(render(home_of(ref), ref.ledger(), rows=True))
    assert with_rows["pgsr_source_rows", "household-sizes", "synthetic-1"] == rows
    started, finished = map(json.loads, capsys.readouterr().err.splitlines())
    assert (started["event"], finished["event"]) == ("stage started", "stage finished")
    assert {**finished, **RELEASE, "stage": "ingest"} == finished
    assert finished["seconds"] >= 0
    for file in ref.folder.safe.glob("*.json"):
        assert str(rows) not in file.read_text()
        assert file.stat().st_mode & 0o777 == 0o600
    assert str(rows) not in json.dumps([started, finished])


@pytest.mark.usefixtures("umask_kept")
def test_a_stage_that_fails_is_counted_and_its_text_is_in_no_line(
    ref: RunRef, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> None:
        raise KeyError("canary-77")

    monkeypatch.setenv(logs.VARIABLE, "json")
    with monkeypatch.context() as patch:
        patch.setattr("tasks.stages.noise._recalled", explode)
        for _ in range(2):
            with pytest.raises(StageFailed):
                recall.fn(ref)
    recall.fn(ref)
    seen = observations(ref.folder.safe)["recall"]
    assert (seen.attempts, seen.failures, seen.error) == (3, 2, None)
    lines = capsys.readouterr().err
    assert "canary-77" not in lines
    failed = [json.loads(line) for line in lines.splitlines() if "stage failed" in line]
    assert [line["error"] for line in failed] == ["KeyError", "KeyError"]
    assert failed[0]["level"] == "error"


def test_without_being_asked_nothing_is_logged(
    ref: RunRef, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.say("stage started", stage="ingest")
    assert capsys.readouterr().err == ""


def test_spend_is_told_by_population_and_release(tmp_path: Path) -> None:
    from tests.tasks.ledger_requests import ask, measure

    ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    measure(ledger, ask(epsilon="1/4", budget="1"))
    found = samples(render(Home(tmp_path), ledger))
    assert found["pgsr_spent_epsilon", "residents"] == 0.25
    assert found["pgsr_remaining_epsilon", "residents"] == 0.75
    assert found["pgsr_charge_epsilon", "residents", "household-sizes", "2026-Q3"] == 0.25
    assert found["pgsr_ledger_events",] == ledger.head().sequence


def test_an_installation_without_a_release_has_metrics_without_samples(tmp_path: Path) -> None:
    assert samples(render(Home(tmp_path / "nowhere"), None)) == {}


def test_observations_that_are_damaged_or_cannot_be_written_stop_nothing(ref: RunRef) -> None:
    file = ref.folder.safe / "observations.json"
    for damage in (
        b"",
        b"[1]",
        b'{"ingest": {"seconds": 1}}',
        b'{"ingest": {"seconds": "x", "peak_bytes": 1, "ended": 1}}',
    ):
        file.write_bytes(damage)
        assert observations(ref.folder.safe) == {}
        assert observe(ref, "noise", seconds=1.0, error=None).attempts == 1
    shutil.rmtree(ref.folder.safe)
    ref.folder.safe.touch()
    observe(ref, "noise", seconds=1.0, error=None)


def test_a_metrics_file_is_closed_to_others_unless_somebody_opened_it(tmp_path: Path) -> None:
    file = tmp_path / "pgsr.prom"
    write(file, b"a 1\n")
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    write(file, b"a 2\n")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"a 2\n", 0o640)
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(MetricsNotWritten):
        write(tmp_path / "nowhere" / "pgsr.prom", b"")


def test_rows_do_not_leave_the_confidential_zone(tmp_path: Path) -> None:
    home = Home(tmp_path / ".pgsr")
    inside = home.root / "confidential"
    inside.mkdir(parents=True)
    refuse_rows_outside(home, inside / "metrics.prom")
    (inside / "link").symlink_to(tmp_path)
    for file in ("/tmp/x", home.root / "x", inside / ".." / "x", inside / "link" / "x"):  # noqa: S108
        with pytest.raises(RowsAreConfidential):
            refuse_rows_outside(home, Path(file))
