"""The boundary of a stage: what is told of a failure, also when nothing can be written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

from pgsr_core.errors import InputError
from tasks import stages
from tasks.boundary import StageFailed, _worth_retrying, stage
from tasks.ingestion import errors
from tasks.ledger.database import LedgerUnavailable
from tasks.ledger.measurements import ReleaseHasOtherMeasurements
from tasks.observations import observations
from tasks.outside import INPUT_STOPPED, LEFT_OF_THE_BARRIER, recorded_name
from tasks.run import NoSuchRun, PlanDamaged, RunRef
from tasks.stages.noise import SourceChanged
from tasks.storage.duck import StoreUnavailable
from tasks.storage.zones import StateNotWritten

CONFIDENTIAL = "row 4711"


@dataclass
class Completed:
    """A state of Prefect's, as far as it is asked for its result."""

    failure: Exception

    def result(self, *, raise_on_failure: bool) -> Exception:
        assert not raise_on_failure
        return self.failure


@pytest.fixture
def unwritable(tmp_path: Path) -> RunRef:
    """A run whose home cannot be made, whoever tries."""
    (tmp_path / "file").write_text("where a folder should be")
    return RunRef(str(tmp_path / "file" / "home"), "sizes", "2026-Q3")


def failure_of(ref: RunRef, *, name: str = "cpwl", error: Exception | None = None) -> StageFailed:
    def failing(_run: RunRef) -> None:
        raise error or ValueError(CONFIDENTIAL)

    with pytest.raises(StageFailed) as caught:
        stage(name, retry=False)(failing).fn(ref)
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


def instances(kind: type[InputError]) -> list[InputError]:
    """One of every kind of error of the input."""
    below = [each for sub in kind.__subclasses__() for each in instances(sub)]
    return [kind(table="persons", rows=(4711,)), *below]


@pytest.mark.parametrize("name", sorted(LEFT_OF_THE_BARRIER))
def test_left_of_the_barrier_all_that_depends_on_data_is_one_word_with_one_exit_code(
    name: str, tmp_path: Path
) -> None:
    ref = RunRef(str(tmp_path / "home"), "sizes", "2026-Q3")
    unforeseen = [ValueError(CONFIDENTIAL), MemoryError(), duckdb.IOException(CONFIDENTIAL)]
    changed = ReleaseHasOtherMeasurements(product="a", release="b", differs={"source": (1, 2)})
    broken = instances(InputError)
    assert len(broken) > 25
    for error in (*broken, errors.OutOfMemory(), SourceChanged("…"), changed, *unforeseen):
        failure = failure_of(ref, name=name, error=error)
        assert (failure.error, failure.exit_code) == (INPUT_STOPPED, 2), type(error)
        assert not _worth_retrying(None, None, Completed(failure)), type(error)
        [state] = ref.ledger().run_states()
        assert state.error == INPUT_STOPPED
        assert observations(ref.folder.safe)[name].error == INPUT_STOPPED
        assert type(error).__name__ in ref.folder.operator_log.read_text()


@pytest.mark.parametrize("name", sorted(LEFT_OF_THE_BARRIER))
def test_what_no_record_decides_keeps_its_name_and_exit_code(name: str, tmp_path: Path) -> None:
    ref = RunRef(str(tmp_path / "home"), "sizes", "2026-Q3")
    public = [
        StateNotWritten(tmp_path, "No space left on device"),
        StoreUnavailable("confidential.duckdb"),
        LedgerUnavailable("…"),
        PlanDamaged(ref),
    ]
    for error in public:
        failure = failure_of(ref, name=name, error=error)
        assert (failure.error, failure.exit_code) == (type(error).__name__, error.exit_code)
        assert recorded_name(name, failure.error) == failure.error


def test_a_class_that_an_earlier_version_recorded_is_shown_only_where_it_may_be() -> None:
    for error in ("DuplicatePerson", "MemoryError", "OutOfMemory", "SourceChanged", "NoGroups"):
        assert recorded_name("ingest", error) == INPUT_STOPPED
        assert recorded_name("cpwl", error) == error
    assert recorded_name("noise", "BudgetExceeded") == "BudgetExceeded"
    assert recorded_name("ingest", None) is None


def test_every_stage_that_can_reach_the_records_is_left_of_the_barrier() -> None:
    reaching = ("confidential(", "measurement_request(", "source_files(", "prepare(")
    found = set()
    for path in Path(stages.__path__[0]).glob("*.py"):
        text = path.read_text()
        if any(word in text for word in reaching) and "@stage(" in text:
            found |= set(re.findall(r'^STAGE = "(.*)"', text, flags=re.MULTILINE))
    assert found == LEFT_OF_THE_BARRIER


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
