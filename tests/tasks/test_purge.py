"""Purging deletes all that is confidential of a published release, once, and says so."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from tasks import purge as module
from tasks.purge import CannotDelete, NotPublished, StillRunning, due_purges, plan_purge, purge
from tasks.run import NoSuchRun, RunRef
from tasks.stages.prepare import prepare

CONFIDENTIAL = ("confidential.duckdb", "confidential.duckdb.wal", "operator.log", "spill/one.tmp")


@pytest.fixture
def ref(virginia_population: Path, tmp_path: Path) -> RunRef:
    """A release with confidential files of every kind, not published yet."""
    folder = Path(shutil.copytree(virginia_population, tmp_path / "office"))
    ref = prepare(folder / "product.yaml", slot=date(2026, 1, 1))
    for name in CONFIDENTIAL:
        path = ref.folder.confidential / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("secret")
    return ref


def publish(ref: RunRef) -> None:
    ref.ledger().record("published", ref.product, ref.release, digests={}, files={})
    ref.note(state="published", stage="publish")


def purges(ref: RunRef) -> list[dict[str, object]]:
    events = ref.ledger().events(ref.product, ref.release)
    return [dict(facts) for kind, facts in events if kind == "purged"]


def test_everything_confidential_of_a_published_release_is_deleted_and_recorded(
    ref: RunRef,
) -> None:
    publish(ref)
    neighbour = ref.folder.confidential.parent / "another-release" / "confidential.duckdb"
    neighbour.parent.mkdir()
    neighbour.write_text("also secret")
    done = purge(ref)
    assert set(done.files) == set(CONFIDENTIAL)
    assert not ref.folder.confidential.exists()
    assert ref.folder.safe_store.is_file()
    assert ref.folder.plan.is_file()
    assert neighbour.is_file()
    assert purges(ref) == [{"files": sorted(CONFIDENTIAL)}]


def test_purging_again_deletes_and_records_nothing(ref: RunRef) -> None:
    publish(ref)
    purge(ref)
    assert purge(ref).files == ()
    assert len(purges(ref)) == 1


def test_a_log_written_after_a_purge_is_purged_too(ref: RunRef) -> None:
    publish(ref)
    purge(ref)
    ref.folder.confidential.mkdir()
    ref.folder.operator_log.write_text("a later failure")
    purge(ref)
    assert purges(ref)[-1] == {"files": ["operator.log"]}


def test_a_release_that_is_not_published_keeps_its_files(ref: RunRef) -> None:
    for action in (plan_purge, purge):
        with pytest.raises(NotPublished, match="Remedy: pgsr resume") as refused:
            action(ref)
        assert refused.value.exit_code == 1
    assert all((ref.folder.confidential / name).is_file() for name in CONFIDENTIAL)
    assert purges(ref) == []


def test_a_state_of_published_without_the_event_is_not_enough(ref: RunRef) -> None:
    ref.note(state="published", stage="publish")
    with pytest.raises(NotPublished):
        purge(ref)


def test_a_release_that_somebody_works_on_keeps_its_files(ref: RunRef) -> None:
    publish(ref)
    ref.note(state="running", stage="validate")  # this process
    with pytest.raises(StillRunning):
        purge(ref)
    assert ref.folder.operator_log.is_file()


def test_planning_a_purge_touches_nothing(ref: RunRef) -> None:
    publish(ref)
    assert set(plan_purge(ref).files) == set(CONFIDENTIAL)
    assert ref.folder.operator_log.is_file()
    assert purges(ref) == []


def test_links_are_removed_and_what_they_lead_to_is_not(ref: RunRef, tmp_path: Path) -> None:
    publish(ref)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (ref.folder.confidential / "link").symlink_to(precious)
    purge(ref)
    assert (precious / "file").is_file()
    assert not ref.folder.confidential.exists()


def test_a_purge_that_died_before_its_event_is_recorded_by_the_next(
    ref: RunRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(ref)

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tasks.ledger.ledger.Ledger.record", die)
        with pytest.raises(KeyboardInterrupt):
            purge(ref)
    assert purges(ref) == []
    assert purge(ref).files == ()
    assert purges(ref) == [{"files": []}]


def test_a_file_that_cannot_be_deleted_is_no_purge(
    ref: RunRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(ref)

    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module, "_delete", refuse)
    with pytest.raises(CannotDelete, match="Permission denied") as failed:
        purge(ref)
    assert failed.value.exit_code == 3
    assert purges(ref) == []


def test_a_release_that_was_never_started_has_nothing_to_purge(ref: RunRef) -> None:
    with pytest.raises(NoSuchRun):
        purge(RunRef(ref.home, "household-sizes", "another"))


def with_retention(ref: RunRef, days: int | None) -> None:
    """Decide it as a configuration with this retention would have been."""
    plan = json.loads(ref.folder.plan.read_text())
    plan["configuration"]["retention"] = None if days is None else {"confidential_days": days}
    ref.folder.plan.write_text(json.dumps(plan))


@pytest.mark.parametrize(("days", "age", "is_due"), [(30, 29, False), (30, 31, True), (0, 0, True)])
def test_a_release_is_due_so_many_days_after_it_was_published(
    ref: RunRef, days: int, age: int, is_due: bool
) -> None:
    publish(ref)
    with_retention(ref, days)
    now = datetime.now(UTC) + timedelta(days=age)
    due = due_purges(ref.installation, now=now)
    assert [purge.ref for purge in due] == [ref] * is_due
    for planned in due:
        purge(planned.ref)
    assert due_purges(ref.installation, now=now) == ()


def test_without_a_retention_or_a_publication_nothing_is_ever_due(ref: RunRef) -> None:
    later = datetime.now(UTC) + timedelta(days=36_500)
    with_retention(ref, 0)
    assert due_purges(ref.installation, now=later) == ()
    publish(ref)
    with_retention(ref, None)
    assert due_purges(ref.installation, now=later) == ()
    ref.folder.plan.write_text("not a plan")
    assert due_purges(ref.installation, now=later) == ()
