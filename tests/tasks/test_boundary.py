"""The boundary of a stage: a failure is told by its class, also when nothing can be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.boundary import StageFailed, stage
from tasks.run import NoSuchRun, PlanDamaged, RunRef

CONFIDENTIAL = "row 4711"


@pytest.fixture
def unwritable(tmp_path: Path) -> RunRef:
    """A run whose home cannot be made, whoever tries."""
    (tmp_path / "file").write_text("where a folder should be")
    return RunRef(str(tmp_path / "file" / "home"), "sizes", "2026-Q3")


def failing(_run: RunRef) -> None:
    raise ValueError(CONFIDENTIAL)


def failure_of(ref: RunRef) -> StageFailed:
    with pytest.raises(StageFailed) as caught:
        stage("ingest", retry=False)(failing).fn(ref)
    return caught.value


def test_a_failure_is_told_by_its_class_and_nothing_is_chained_to_it(tmp_path: Path) -> None:
    ref = RunRef(str(tmp_path / "home"), "sizes", "2026-Q3")
    failure = failure_of(ref)
    assert (failure.error, failure.exit_code) == ("ValueError", None)
    assert failure.__context__ is None
    assert CONFIDENTIAL not in str(failure)
    assert CONFIDENTIAL in ref.folder.operator_log.read_text()
    assert ref.ledger().run_states()[0].error == "ValueError"


def test_a_stage_that_cannot_note_its_start_fails_with_a_typed_error(unwritable: RunRef) -> None:
    failure = failure_of(unwritable)
    assert (failure.error, failure.exit_code) == ("StateNotWritten", 3)


def test_a_full_disk_does_not_hide_why_a_stage_failed(
    unwritable: RunRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of the log must not take the place of the stage's, nor carry it to Prefect."""
    note = RunRef.note

    def only_fails(ref: RunRef, *, state: str, stage: str, error: str | None = None) -> None:
        if state != "running":
            note(ref, state=state, stage=stage, error=error)

    monkeypatch.setattr(RunRef, "note", only_fails)
    failure = failure_of(unwritable)
    assert (failure.error, failure.__context__) == ("ValueError", None)


@pytest.mark.parametrize("content", [b"", b"{}", b"{", b"\xff"])
def test_a_damaged_plan_is_told_with_its_remedy(tmp_path: Path, content: bytes) -> None:
    ref = RunRef(str(tmp_path), "sizes", "2026-Q3")
    ref.folder.create()
    ref.folder.plan.write_bytes(content)
    with pytest.raises(PlanDamaged, match="Remedy:"):
        ref.open()
    ref.folder.plan.unlink()
    with pytest.raises(NoSuchRun, match="Remedy:"):
        ref.open()
