"""Purging deletes all that is confidential of a published release, once, and says so."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from flows.cli.app import app
from pgsr_core.chain import Event
from pgsr_core.errors import PgsrError
from tasks import purge as module
from tasks.ledger.ledger import Ledger
from tasks.purge import (
    CannotDelete,
    CannotLook,
    DateUnknown,
    Due,
    LedgerGone,
    NotPublished,
    StillRunning,
    due_purges,
    plan_purge,
    purge,
)
from tasks.run import NoSuchRun, RunRef
from tasks.stages.prepare import prepare
from tasks.storage.zones import Home

NOTHING = Due((), ())
LATER = datetime.now(UTC) + timedelta(days=36_500)
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
    assert [purge.ref for purge in due.purges] == [ref] * is_due
    assert due.undecided == ()
    for planned in due.purges:
        purge(planned.ref)
    assert due_purges(ref.installation, now=now) == NOTHING


def test_without_a_retention_or_a_publication_nothing_is_ever_due(ref: RunRef) -> None:
    with_retention(ref, 0)
    assert due_purges(ref.installation, now=LATER) == NOTHING
    publish(ref)
    with_retention(ref, None)
    assert due_purges(ref.installation, now=LATER) == NOTHING


def another(ref: RunRef, release: str) -> RunRef:
    """A second release of the product, published and due."""
    other = RunRef(ref.home, ref.product, release)
    other.folder.create()
    other.folder.plan.write_bytes(ref.folder.plan.read_bytes())
    (other.folder.confidential / "confidential.duckdb").write_text("secret")
    publish(other)
    return other


def break_plan(ref: RunRef) -> None:
    ref.folder.plan.write_text("not a plan")


def lose_plan(ref: RunRef) -> None:
    ref.folder.plan.unlink()


def work_on_it(ref: RunRef) -> None:
    ref.note(state="running", stage="validate")


def lose_the_disk(ref: RunRef) -> None:
    shutil.rmtree(ref.folder.confidential)
    ref.folder.confidential.symlink_to("/nowhere")


@pytest.mark.parametrize("spoil", [break_plan, lose_plan, work_on_it, lose_the_disk])
def test_a_release_that_cannot_be_judged_is_named_and_the_others_are_purged(
    ref: RunRef, capsys: pytest.CaptureFixture[str], spoil: Callable[[RunRef], None]
) -> None:
    publish(ref)
    with_retention(ref, 0)
    other = another(ref, "another")
    spoil(ref)
    with pytest.raises(PgsrError, match=ref.name) as told:
        app(["purge", "--due", "--yes", "--home", ref.home], standalone_mode=False)
    assert told.value.exit_code == 3
    assert "Remedy:" in str(told.value)
    assert "Nothing is due" not in capsys.readouterr().out
    assert not other.folder.confidential.exists()
    assert ref.folder.confidential.is_symlink() or ref.folder.operator_log.is_file()


def test_scripts_are_told_which_releases_cannot_be_judged(
    ref: RunRef, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(ref)
    break_plan(ref)
    with pytest.raises(PgsrError):
        app(["purge", "--due", "--yes", "--json", "--home", ref.home], standalone_mode=False)
    [told] = json.loads(capsys.readouterr().out)
    assert told["release"] == ref.name
    assert told["deleted"] == []
    assert "the plan of" in told["problem"]


def test_a_release_whose_plan_is_damaged_can_still_be_purged_by_name(ref: RunRef) -> None:
    publish(ref)
    break_plan(ref)
    assert set(purge(ref).files) == set(CONFIDENTIAL)
    assert due_purges(ref.installation, now=LATER) == NOTHING  # nothing is left to be judged


def test_one_that_cannot_be_deleted_does_not_keep_the_others(
    ref: RunRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(ref)
    with_retention(ref, 0)
    other = another(ref, "another")
    delete = module._delete

    def refuse(folder: Path) -> None:
        if folder == other.folder.confidential:
            raise PermissionError(13, "Permission denied")
        delete(folder)

    monkeypatch.setattr(module, "_delete", refuse)
    with pytest.raises(PgsrError, match=f"(?s){other.name}.*Permission denied") as told:
        app(["purge", "--due", "--yes", "--home", ref.home], standalone_mode=False)
    assert told.value.exit_code == 3
    assert not ref.folder.confidential.exists()


@pytest.mark.parametrize("at", ["2999-01-01T00:00:00+00:00", "2020-01-01T00:00:00", "yesterday"])
def test_a_date_of_publication_that_cannot_be_is_told(
    ref: RunRef, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    publish(ref)
    with_retention(ref, 0)
    timeline = Ledger.timeline

    def wrong(ledger: Ledger, *names: str) -> tuple[Event, ...]:
        return tuple(replace(event, at=at) for event in timeline(ledger, *names))

    monkeypatch.setattr(Ledger, "timeline", wrong)
    due = due_purges(ref.installation, now=datetime.now(UTC))
    assert due.purges == ()
    [undecided] = due.undecided
    assert isinstance(undecided.error, DateUnknown)
    assert at in str(undecided.error)


def test_confidential_files_without_a_ledger_are_not_passed_over(ref: RunRef) -> None:
    publish(ref)
    (ref.installation.root / "ledger.sqlite").unlink()
    with pytest.raises(LedgerGone, match="Remedy:"):
        due_purges(ref.installation, now=LATER)
    with pytest.raises(LedgerGone):
        plan_purge(ref)
    assert not (ref.installation.root / "ledger.sqlite").exists()


def test_a_home_that_is_not_there_is_not_one_in_which_nothing_is_due(tmp_path: Path) -> None:
    with pytest.raises(CannotLook, match="Remedy:") as told:
        due_purges(Home(tmp_path / "typo"), now=LATER)
    assert told.value.exit_code == 3
    (tmp_path / "new").mkdir()
    assert due_purges(Home(tmp_path / "new"), now=LATER) == NOTHING


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, as only root can")
@pytest.mark.parametrize("closed", ["", "confidential", "confidential/household-sizes"])
def test_a_home_of_another_user_is_told_and_not_taken_for_empty(ref: RunRef, closed: str) -> None:
    publish(ref)
    home = ref.installation
    for path in (home.root, *home.root.rglob("*"), *home.root.parents):
        if path.is_dir():
            path.chmod(path.stat().st_mode | 0o055)
        else:
            path.chmod(0o666)
    (home.root / closed).chmod(0o700)
    os.seteuid(65534)
    try:
        with pytest.raises(PgsrError, match="cannot be read") as told:
            due_purges(home, now=LATER)
    finally:
        os.seteuid(0)
    assert told.value.exit_code == 3
