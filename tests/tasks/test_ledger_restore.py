"""A backup that is put back: refused until every event that was seen is there again."""

from __future__ import annotations

import base64
import json
import stat
import zlib
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pgsr_core.canonical import table_digest
from pgsr_core.chain import Event, append
from pgsr_core.errors import PgsrError
from tasks.ledger import history
from tasks.ledger.backup import BackupRefused, back_up
from tasks.ledger.exports import EventsUnreadable, export_events, read_entries
from tasks.ledger.history import LedgerEdited, LedgerForked, LedgerRolledBack
from tasks.ledger.inspection import NoLedger, check_ledger
from tasks.ledger.ledger import Ledger, MeasurementDamaged, Reservation
from tasks.ledger.restoration import EventsMissing, RestoreRefused, restore
from tests.tasks.ledger_requests import PRODUCT, VALUES, ask, commit, reopened

TREE = "7" * 64
HALF = Fraction(1, 2)


def drawn(release: str) -> np.ndarray:
    return VALUES + np.int64(release[-1])


def measure(ledger: Ledger, release: str) -> None:
    """A measurement whose digest is that of its table, as the noise stage takes it."""
    request = ask(release, epsilon="1/2", budget="4")
    request = replace(request, descriptor={**request.descriptor, "regions": TREE})
    reservation = ledger.reserve(request)
    assert isinstance(reservation, Reservation)
    values = drawn(release)
    sizes = range(1, values.shape[1] + 1)
    digest = table_digest(values, table="measurements", tree_digest=TREE, sizes=sizes)
    commit(ledger, reservation, values=values, digest=digest)


class Office:
    """A ledger, a backup of it, and what was recorded since: another release, a raised budget."""

    def __init__(self, folder: Path) -> None:
        self.place = folder / "home" / "ledger.sqlite"
        self.url = f"sqlite:///{self.place}"
        self.witness = folder / "home" / "witness.json"
        self.backup = folder / "backup.sqlite"
        self.events = folder / "events.jsonl"
        ledger = Ledger(self.url)
        measure(ledger, "2026-Q1")
        ledger.reserve(ask("2026-Q2", epsilon="1/2"))  # open at the time of the backup
        back_up(self.url, self.backup)
        self.backed_up = ledger.head().sequence
        ledger._clock = lambda: 4e9  # long after that lease
        measure(ledger, "2026-Q2")
        ledger.raise_budget("residents", Fraction(5), reason="decided")
        ledger.set_state(PRODUCT, "2026-Q2", state="published", stage="publish")
        ledger.record("published", PRODUCT, "2026-Q2", digests={})
        self.before = ledger.timeline()
        self.states = ledger.run_states()

    def export(self, *, after: int = 0, to: Path | None = None) -> Path:
        export_events(self.url, to or self.events, after=after)
        return to or self.events

    def lose(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self.place.with_name(self.place.name + suffix).unlink(missing_ok=True)
        history._verified.pop(self.url, None)  # who restores it is a new process

    def restore(self, *supplied: Path) -> None:
        restore(self.url, self.witness, backup=self.backup, supplied=supplied)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def test_an_old_backup_is_refused_until_the_missing_events_are_supplied(office: Office) -> None:
    office.export()
    office.lose()
    with pytest.raises(LedgerRolledBack, match=r"--events") as caught:
        office.restore()
    assert (caught.value.found, caught.value.seen) == (office.backed_up, len(office.before))
    assert not office.place.exists()

    office.restore(office.events)
    ledger = reopened(office.url)
    assert ledger.timeline()[:-1] == office.before
    told = ledger.timeline()[-1]
    assert (told.kind, told.facts) == (
        "restored",
        {"supplied": len(office.before) - office.backed_up, "witnessed": True},
    )
    account = ledger.account("residents")
    assert (account.budget, account.spent, account.reserved) == (5, 2 * HALF, 0)
    again = ledger.measurement(PRODUCT, "2026-Q2")
    assert again is not None
    assert (ledger.values(again) == drawn("2026-Q2")).all()
    assert ledger.run_states() == office.states
    assert all(finding.passed for finding in check_ledger(office.url, office.witness))
    assert stat.S_IMODE(office.place.stat().st_mode) == 0o600


def test_increments_complete_a_backup_in_any_order_and_a_gap_is_named(
    office: Office, tmp_path: Path
) -> None:
    last = len(office.before)
    everything = office.export()
    late = office.export(after=last - 1, to=tmp_path / "late.jsonl")
    early = tmp_path / "early.jsonl"
    early.write_bytes(b"".join(everything.read_bytes().splitlines(keepends=True)[:last]))
    office.lose()
    with pytest.raises(EventsMissing) as caught:
        office.restore(late)
    assert (caught.value.first, caught.value.last) == (office.backed_up + 1, last - 1)
    with pytest.raises(LedgerRolledBack):
        office.restore(early)
    assert not office.place.exists()
    office.restore(late, early)
    assert reopened(office.url).timeline()[:-1] == office.before


def test_a_copy_that_was_put_back_by_hand_is_completed_in_place(office: Office) -> None:
    office.export(after=office.backed_up)
    office.lose()
    office.backup.rename(office.place)
    with pytest.raises(LedgerRolledBack):
        reopened(office.url)
    restore(office.url, office.witness, backup=None, supplied=[office.events])
    assert reopened(office.url).timeline()[:-1] == office.before
    restored = reopened(office.url).timeline()
    restore(office.url, office.witness, backup=None, supplied=[office.events])
    assert reopened(office.url).timeline() == restored  # nothing was missing any more


def test_without_a_witness_a_restored_ledger_says_that_nothing_vouched_for_it(
    office: Office,
) -> None:
    office.lose()
    office.witness.unlink()
    office.restore()
    assert reopened(office.url).timeline()[-1].facts == {"supplied": 0, "witnessed": False}


# --- what does not chain is refused, and nothing is put in place ----------------------------


def rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines[1:]:
        change(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def of_second(line: dict[str, Any]) -> bool:
    return line["event"]["kind"] == "measured" and line["event"]["release"] == "2026-Q2"


def cheaper(line: dict[str, Any]) -> None:
    """Lower a charge in the rows; the event still says what it was."""
    if of_second(line):
        line["measured"]["epsilon"] = "1/200"


def edited(line: dict[str, Any]) -> None:
    if of_second(line):
        line["event"]["facts"]["epsilon"] = "1/200"


def without_rows(line: dict[str, Any]) -> None:
    if of_second(line):
        line["measured"] = None


def other_table(line: dict[str, Any]) -> None:
    if of_second(line):
        line["measured"]["chunks"] = [base64.b64encode(b"x").decode()]


def swapped_table(line: dict[str, Any]) -> None:
    """The table of another measurement, of the same shape."""
    if of_second(line):
        other = zlib.compress(drawn("2026-Q1").tobytes())
        line["measured"]["chunks"] = [base64.b64encode(other).decode()]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (cheaper, LedgerEdited),
        (edited, LedgerForked),
        (without_rows, LedgerEdited),
        (other_table, MeasurementDamaged),
        (swapped_table, MeasurementDamaged),
    ],
)
def test_forged_events_are_refused(
    office: Office, change: Callable[[dict[str, Any]], None], error: type[PgsrError]
) -> None:
    rewrite(office.export(), change)
    office.lose()
    with pytest.raises(error, match="Remedy:"):
        office.restore(office.events)
    assert not office.place.exists()
    assert [path.name for path in office.place.parent.iterdir()] == ["witness.json", "witness.lock"]


def test_a_history_that_was_written_anew_does_not_reach_the_witness(office: Office) -> None:
    """Chained events of one's own are no substitute for those that the witness saw."""
    office.export()
    rechained: list[Event] = []

    def forge(line: dict[str, Any]) -> None:
        event = line["event"]
        if event["sequence"] <= office.backed_up:
            rechained[:] = [Event(**event)]
            return
        if event["kind"] == "budget-raised":
            event["facts"]["budget"] = "500"
        told = {k: event[k] for k in ("at", "actor", "kind", "product", "release", "facts")}
        rechained.append(append(rechained[-1].head, **told))
        line["event"] = vars(rechained[-1])

    rewrite(office.events, forge)
    office.lose()
    with pytest.raises(LedgerForked):
        office.restore(office.events)
    assert not office.place.exists()


def test_the_events_of_another_ledger_are_refused(office: Office, tmp_path: Path) -> None:
    other = Ledger(f"sqlite:///{tmp_path}/other/ledger.sqlite")
    for number in range(20):
        other.record("odd", None, None, number=number)
    export_events(f"sqlite:///{tmp_path}/other/ledger.sqlite", office.events)
    office.lose()
    with pytest.raises(LedgerForked):
        office.restore(office.events)


@pytest.mark.parametrize("text", ["", "{}", "no JSON", '{"format": "other"}', "[1]\n", "\x00"])
def test_a_file_of_something_else_is_told(office: Office, tmp_path: Path, text: str) -> None:
    office.lose()
    file = tmp_path / "other.jsonl"
    file.write_text(text)
    with pytest.raises(EventsUnreadable, match=r"other\.jsonl"):
        office.restore(file)
    with pytest.raises(EventsUnreadable):
        office.restore(tmp_path / "none.jsonl")


def test_an_event_that_says_no_budget_is_told(office: Office) -> None:
    head = None
    lines = office.export().read_text().splitlines()
    for line in lines[1 : office.backed_up + 1]:
        head = Event(**json.loads(line)["event"]).head
    assert head is not None
    odd = {"at": "", "actor": "", "product": None, "release": None, "facts": {"population": "p"}}
    event = append(head, kind="population", **odd)
    kept = [lines[0], json.dumps({"event": vars(event), "measured": None})]
    office.events.write_text("\n".join(kept))
    office.lose()
    with pytest.raises(EventsUnreadable):
        office.restore(office.events)


# --- nothing is overwritten -----------------------------------------------------------------


def test_a_ledger_or_its_log_that_is_in_place_is_not_overwritten(office: Office) -> None:
    content = office.place.read_bytes()
    with pytest.raises(RestoreRefused, match="move it away"):
        office.restore()
    assert office.place.read_bytes() == content
    office.lose()
    log = office.place.with_name("ledger.sqlite-wal")
    log.write_bytes(b"of another ledger")
    with pytest.raises(RestoreRefused, match="sqlite-wal"):
        office.restore()


def test_what_is_no_backup_is_told(office: Office, tmp_path: Path) -> None:
    office.lose()
    with pytest.raises(NoLedger):
        restore(office.url, office.witness, backup=None, supplied=())
    with pytest.raises(RestoreRefused, match="no file"):
        restore(office.url, office.witness, backup=tmp_path / "none", supplied=())
    office.backup.write_text("something else, of more than a few bytes" * 100)
    with pytest.raises(RestoreRefused, match="no copy of a ledger"):
        office.restore()
    office.backup.unlink()
    office.backup.touch()
    with pytest.raises(RestoreRefused, match="schema empty"):
        office.restore()
    assert not office.place.exists()


def test_an_export_is_closed_to_others_and_overwrites_nothing(office: Office) -> None:
    office.export(after=office.backed_up)
    assert stat.S_IMODE(office.events.stat().st_mode) == 0o600
    first = next(read_entries(office.events)).event
    assert first == office.before[office.backed_up]
    with pytest.raises(BackupRefused):
        office.export()
    with pytest.raises(NoLedger):
        export_events(f"sqlite:///{office.events}-none", office.events.with_name("other"))
