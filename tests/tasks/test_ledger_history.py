"""The ledger's history: chained, witnessed, and refused when it is not the one that was seen."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import stat
import threading
from fractions import Fraction
from pathlib import Path

import pytest

from pgsr_core.budget import BudgetExceeded
from pgsr_core.chain import GENESIS, Head, append, verify_chain
from pgsr_core.errors import Refused, Unavailable
from tasks.ledger import history
from tasks.ledger import witness as witness_module
from tasks.ledger.accounts import NoReason, NotARaise
from tasks.ledger.events import Writer
from tasks.ledger.history import LedgerEdited, LedgerForked, LedgerRolledBack
from tasks.ledger.inspection import check_ledger
from tasks.ledger.ledger import Ledger, Measurement, ReservedElsewhere
from tasks.ledger.owner import actor
from tasks.ledger.witness import Witness, WitnessDamaged, Witnessed, WitnessNotWritten
from tasks.storage.zones import StateNotWritten
from tests.tasks.ledger_requests import PRODUCT, ask, commit, measure, raw, reopened


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/home/ledger.sqlite"


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    return tmp_path / "home" / "witness.json"


@pytest.fixture
def ledger(url: str) -> Ledger:
    """A ledger with a measured release and a few events."""
    made = Ledger(url)
    measure(made, ask())
    for number in range(4):
        made.record("computed", PRODUCT, "2026-Q3", number=number)
    return made


def copied(url: str, to: Path) -> Path:
    with raw(url) as connection:
        connection.execute("VACUUM INTO ?", [str(to)])
    return to


def put_back(copy: Path, url: str) -> None:
    place = Path(url.removeprefix("sqlite:///"))
    for suffix in ("-wal", "-shm"):
        place.with_name(place.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(copy, place)


def wrong(url: str, witness: Path) -> set[str]:
    return {finding.name for finding in check_ledger(url, witness) if not finding.passed}


# --- the chain ------------------------------------------------------------------------------


def test_every_event_is_chained_and_the_head_is_the_last_one(ledger: Ledger) -> None:
    events = ledger.timeline()
    assert [event.kind for event in events] == ["population", "reserved", "measured"] + [
        "computed"
    ] * 4
    assert verify_chain(events, head=ledger.head()).intact
    assert ledger.head() == events[-1].head


def test_an_empty_ledger_has_the_head_before_the_first_event(url: str, witness: Path) -> None:
    assert Ledger(url).head() == GENESIS
    assert not witness.exists()
    assert wrong(url, witness) == set()


def test_a_timeline_is_of_all_or_of_one_release(ledger: Ledger) -> None:
    ledger.record("other", "p", "r")
    ledger.record("other", None, None)
    assert len(ledger.timeline()) == 9
    assert [event.sequence for event in ledger.timeline("p")] == [8]
    assert [event.sequence for event in ledger.timeline(PRODUCT, "2026-Q3")] == list(range(1, 8))
    assert ledger.timeline("p", "none") == ()


def test_a_refused_transaction_leaves_no_event_and_no_gap(ledger: Ledger) -> None:
    ledger.reserve(ask("held", epsilon="1/3"))
    before = ledger.head()
    with pytest.raises(ReservedElsewhere):
        ledger.reserve(ask("held", epsilon="1/3"))
    assert ledger.head() == before
    ledger.record("next", None, None)
    assert ledger.head().sequence == before.sequence + 1


def test_a_reservation_that_is_given_back_leaves_an_event(ledger: Ledger) -> None:
    ledger.give_back(ledger.reserve(ask("failed")))
    assert [kind for kind, _ in ledger.events(PRODUCT, "failed")] == ["reserved", "given-back"]


@pytest.mark.parametrize("year", [-1, 1])
def test_a_clock_that_is_moved_by_a_year_changes_neither_order_nor_verification(
    url: str, ledger: Ledger, year: int
) -> None:
    moved = Ledger(url, clock=lambda: 1_790_000_000 + year * 365.25 * 86_400)
    moved.record("moved", None, None)
    ledger.record("back", None, None)
    assert [event.kind for event in reopened(url).timeline()[-2:]] == ["moved", "back"]


# --- what was done to it by other means -----------------------------------------------------

EDITS = {
    "an event's facts": "UPDATE events SET facts = '{}' WHERE sequence = 3",
    "facts that are no JSON": "UPDATE events SET facts = '{' WHERE sequence = 3",
    "facts of another kind": "UPDATE events SET facts = '[1]' WHERE sequence = 3",
    "a number too large": "UPDATE events SET facts = '{\"n\":1e999}' WHERE sequence = 3",
    "an actor": "UPDATE events SET actor = 'somebody@else' WHERE sequence = 5",
    "a time": "UPDATE events SET at = '2020-01-01T00:00:00.000+00:00' WHERE sequence = 1",
    "a product": "UPDATE events SET product = NULL WHERE sequence = 2",
    "a deleted event": "DELETE FROM events WHERE sequence = 4",
    "the first event deleted": "DELETE FROM events WHERE sequence = 1",
    "the last event deleted": "DELETE FROM events WHERE sequence = 7",
    "all events deleted": "DELETE FROM events",
    "swapped numbers": "UPDATE events SET sequence = -1 WHERE sequence = 4;"
    "UPDATE events SET sequence = 4 WHERE sequence = 5;"
    "UPDATE events SET sequence = 5 WHERE sequence = -1",
    "the head row deleted": "DELETE FROM head",
    "an event beyond the head": "INSERT INTO events SELECT 8, at, actor, kind, product, release,"
    " facts, hash, previous FROM events WHERE sequence = 7",
    "a deleted charge": "DELETE FROM charges",
    "a smaller charge": "UPDATE charges SET epsilon = '1/300'",
    "a charge that is none": "UPDATE charges SET epsilon = 'much'",
    "a charge to others": "INSERT INTO populations VALUES ('others', '1');"
    "UPDATE charges SET population = 'others'",
    "a charge without an event": "INSERT INTO measurements (key, population, product, release,"
    " epsilon, descriptor, digest) SELECT 'k', population, product, 'r', epsilon, descriptor,"
    " digest FROM measurements; INSERT INTO charges VALUES ('k', 'residents', '1/3')",
    "another digest": f"UPDATE measurements SET digest = '{'e' * 64}'",
    "a measurement to be drawn again": "UPDATE measurements SET digest = NULL",
    "another number of groups": "UPDATE measurements SET groups = 18",
    "a simulation made a release": "UPDATE measurements SET simulation = 1",
    "a larger budget": "UPDATE populations SET budget = '100'",
    "another description": "UPDATE measurements SET descriptor = '{\"noise\":{}}'",
    "a description that is none": "UPDATE measurements SET descriptor = '[1]'",
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_ledger_is_refused_when_it_is_opened_and_check_says_why(
    ledger: Ledger, url: str, witness: Path, edit: str
) -> None:
    with raw(url) as connection:
        connection.executescript(EDITS[edit])
    with pytest.raises(LedgerEdited, match="Remedy:") as caught:
        reopened(url)
    assert isinstance(caught.value, Refused)
    assert wrong(url, witness) & {"chain", "books"}


def test_a_tail_cut_off_with_its_head_is_rolled_back(
    ledger: Ledger, url: str, witness: Path
) -> None:
    with raw(url) as connection:
        connection.execute("DELETE FROM events WHERE sequence > 5")
        connection.execute(
            "UPDATE head SET sequence = 5, hash = (SELECT hash FROM events WHERE sequence = 5)"
        )
    with pytest.raises(LedgerRolledBack, match="witness saw event 7") as caught:
        reopened(url)
    assert (caught.value.found, caught.value.seen) == (5, 7)
    assert wrong(url, witness) == {"witness"}


def test_an_old_backup_is_rolled_back_for_a_new_process_and_for_one_that_saw_more(
    ledger: Ledger, url: str, witness: Path, tmp_path: Path
) -> None:
    old = copied(url, tmp_path / "old.sqlite")
    measure(ledger, ask("2026-Q4"))
    put_back(old, url)
    with pytest.raises(LedgerRolledBack):
        ledger.reserve(ask("2027-Q1"))
    with pytest.raises(LedgerRolledBack):
        Ledger(url)
    with pytest.raises(LedgerRolledBack):
        reopened(url)
    assert wrong(url, witness) == {"witness"}


def test_a_new_ledger_in_the_place_of_a_lost_one_is_refused(ledger: Ledger, url: str) -> None:
    for path in Path(url.removeprefix("sqlite:///")).parent.glob("ledger.sqlite*"):
        path.unlink()
    with pytest.raises(LedgerRolledBack):
        reopened(url)


def test_a_rewritten_history_is_a_fork_even_if_it_is_longer(
    ledger: Ledger, url: str, witness: Path, tmp_path: Path
) -> None:
    """Whoever can compute hashes can chain anew from any point; the witness saw the first."""
    old = copied(url, tmp_path / "old.sqlite")
    ledger.record("first", None, None)
    forger = f"sqlite:///{old}"
    other = Ledger(forger, witness=tmp_path / "other.json")
    for _ in range(3):
        other.record("second", None, None)
    copy = copied(forger, tmp_path / "forged.sqlite")
    put_back(copy, url)
    with pytest.raises(LedgerForked, match="event 8"):
        reopened(url)
    with pytest.raises(LedgerForked):
        ledger.record("third", None, None)
    assert wrong(url, witness) == {"witness"}


def test_a_ledger_older_than_a_published_head_says_so(
    ledger: Ledger, url: str, tmp_path: Path
) -> None:
    old = copied(url, tmp_path / "old.sqlite")
    ledger.record("computed", None, None)
    ledger.remember_published(ledger.head())
    put_back(old, url)
    with pytest.raises(LedgerRolledBack, match="a published release carries event 8"):
        reopened(url)


def test_an_event_that_another_wrote_is_verified_before_the_next_is_added(
    ledger: Ledger, url: str
) -> None:
    forged = append(
        Head(7, "f" * 64), at="", actor="", kind="x", product=None, release=None, facts={}
    )
    with raw(url) as connection:
        connection.execute(
            "INSERT INTO events VALUES (8, '', '', 'x', NULL, NULL, '{}', ?, ?)",
            [forged.previous, forged.hash],
        )
        connection.execute("UPDATE head SET sequence = 8, hash = ?", [forged.hash])
    with pytest.raises(LedgerForked):
        ledger.reserve(ask("2026-Q4"))
    assert ledger.measurement(PRODUCT, "2026-Q4") is None


def test_a_fork_that_only_the_witness_can_tell_never_moves_the_witness(
    ledger: Ledger, url: str, witness: Path, tmp_path: Path
) -> None:
    """A process that is open, and behind, must not add to a history that others did not see."""
    seen = history._verified[url]
    old = copied(url, tmp_path / "old.sqlite")
    ledger.record("first", None, None)
    witnessed = witness.read_bytes()
    Ledger(f"sqlite:///{old}", witness=tmp_path / "other.json").record("second", None, None)
    put_back(copied(f"sqlite:///{old}", tmp_path / "forged.sqlite"), url)
    history._verified[url] = seen
    with pytest.raises(LedgerForked):
        ledger.record("third", None, None)
    assert witness.read_bytes() == witnessed


def test_later_opens_read_only_what_is_new(
    ledger: Ledger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def spy(events, **options):
        kept = list(events)
        read.append(len(kept))
        return verify_chain(kept, **options)

    monkeypatch.setattr(history, "verify_chain", spy)
    reopened(url)
    Ledger(url)
    Ledger(url)
    assert read == [7]
    seen = history._verified[url]
    ledger.record("new", None, None)
    history._verified[url] = seen  # as another process wrote it
    Ledger(url)
    assert read == [7, 1]


# --- the witness ----------------------------------------------------------------------------


def test_the_witness_has_the_head_after_every_event_and_is_closed_to_others(
    ledger: Ledger, witness: Path
) -> None:
    for _ in range(3):
        ledger.record("computed", None, None)
        assert Witness(witness).read() == Witnessed(ledger.head(), GENESIS)
    for path in witness.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert not list(witness.parent.glob(".*draft*"))


def test_a_ledger_newer_than_its_witness_is_what_a_crash_leaves_and_is_fine(
    ledger: Ledger, url: str, witness: Path
) -> None:
    before = witness.read_bytes()
    measure(ledger, ask("2026-Q4"))
    witness.write_bytes(before)
    again = reopened(url)
    assert isinstance(again.reserve(ask("2026-Q4")), Measurement)
    again.record("computed", None, None)
    assert Witness(witness).read() == Witnessed(again.head(), GENESIS)


def test_a_witness_that_is_gone_is_made_again_by_the_next_event(
    ledger: Ledger, url: str, witness: Path
) -> None:
    witness.unlink()
    again = reopened(url)
    assert not witness.exists()
    again.record("computed", None, None)
    assert witness.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"format":"other"}',
        b'{"format":"pgsr-witness-1","head":{"sequence":true,"hash":"0"},"published":null}',
    ],
)
def test_a_damaged_witness_is_refused(
    ledger: Ledger, url: str, witness: Path, content: bytes
) -> None:
    witness.write_bytes(content)
    with pytest.raises(WitnessDamaged, match="Remedy:") as caught:
        Ledger(url)
    assert caught.value.exit_code == 1
    assert wrong(url, witness) == {"witness"}


def test_a_witness_moves_forward_only(witness: Path) -> None:
    kept = Witness(witness)
    kept.move(head=Head(5, "5" * 64), published=Head(4, "4" * 64))
    kept.move(head=Head(3, "3" * 64), published=Head(2, "2" * 64))
    assert kept.read() == Witnessed(Head(5, "5" * 64), Head(4, "4" * 64))
    kept.move(head=Head(6, "6" * 64))
    assert kept.read() == Witnessed(Head(6, "6" * 64), Head(4, "4" * 64))


def test_threads_that_move_a_witness_at_once_leave_the_newest_head(witness: Path) -> None:
    heads = [Head(number, f"{number:064}") for number in range(1, 41)]
    threads = [
        threading.Thread(target=lambda part=part: [Witness(witness).move(head=h) for h in part])
        for part in (heads[::4], heads[1::4], heads[2::4], heads[3::4])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert Witness(witness).read() == Witnessed(heads[-1], GENESIS)


def test_a_witness_that_cannot_be_written_stops_the_run_and_a_rerun_draws_nothing_again(
    ledger: Ledger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reservation = ledger.reserve(ask("2026-Q4"))

    def full(*_: object) -> None:
        raise StateNotWritten(Path("witness.json"), "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(witness_module, "write_private", full)
        with pytest.raises(WitnessNotWritten, match="No space left") as caught:
            commit(ledger, reservation)
    assert isinstance(caught.value, Unavailable)
    ledger.give_back(reservation)
    again = reopened(url)
    assert isinstance(again.reserve(ask("2026-Q4")), Measurement)
    assert len(again.charges("residents")) == 2


# --- many at once ---------------------------------------------------------------------------

WRITERS, EACH = 4, 8


def write_events(url: str) -> None:
    for number in range(EACH):
        Ledger(url).record("computed", "p", "r", number=number)


def test_processes_that_write_at_once_make_one_chain_without_gaps(url: str, witness: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_events, args=(url,)) for _ in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=120)
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    ledger = reopened(url)
    assert ledger.head().sequence == WRITERS * EACH
    assert Witness(witness).read() == Witnessed(ledger.head(), GENESIS)
    assert wrong(url, witness) == set()


# --- budgets --------------------------------------------------------------------------------


def test_a_raised_budget_is_an_event_with_its_reason_and_the_books_agree(
    ledger: Ledger, url: str, witness: Path
) -> None:
    before = ledger.raise_budget("residents", Fraction(3, 2), reason="decided by the board")
    assert before == 1
    assert ledger.account("residents").budget == Fraction(3, 2)
    event = ledger.timeline()[-1]
    assert event.actor == actor()
    facts = event.facts
    assert facts["reason"] == "decided by the board"
    assert (facts["before"], facts["budget"]) == ("1", "3/2")
    reopened(url)
    assert wrong(url, witness) == set()


@pytest.mark.parametrize("budget", ["1", "1/2", "0", "-1"])
def test_a_budget_is_never_lowered(ledger: Ledger, budget: str) -> None:
    before = ledger.head()
    with pytest.raises(NotARaise, match=r"1/3 .*is spent and 0 reserved.*Remedy:"):
        ledger.raise_budget("residents", Fraction(budget), reason="none")
    assert ledger.head() == before


@pytest.mark.parametrize("reason", ["", "  ", "two\nlines", "\x1b[2J", "x" * 1001])
def test_a_budget_is_not_raised_without_a_reason_that_can_be_read(
    ledger: Ledger, reason: str
) -> None:
    before = ledger.head()
    with pytest.raises(NoReason, match="Remedy:"):
        ledger.raise_budget("residents", Fraction(2), reason=reason)
    assert ledger.head() == before


def test_a_raised_budget_admits_exactly_what_was_added_to_it(ledger: Ledger) -> None:
    measure(ledger, ask("q4", epsilon="1/3"))
    ledger.reserve(ask("open", epsilon="1/3"))
    assert ledger.account("residents").remaining == 0
    ledger.raise_budget("residents", Fraction(4, 3), reason="a third more")
    with pytest.raises(BudgetExceeded):
        ledger.reserve(ask("too-much", epsilon="333333333334/1000000000000", budget="100"))
    measure(ledger, ask("fits", epsilon="1/3"))
    assert ledger.account("residents").remaining == 0


def test_events_hold_the_bytes_that_were_hashed(ledger: Ledger, url: str) -> None:
    ledger.record("odd", None, None, z=1, a={"ü": [1.5, 1e21, "\x00", True, None]}, t=(1, 2))
    with raw(url) as connection:
        (text,) = connection.execute("SELECT facts FROM events WHERE kind = 'odd'").fetchone()
    assert text == '{"a":{"ü":[1.5,1e+21,"\\u0000",true,null]},"t":[1,2],"z":1}'
    assert ledger.timeline()[-1].facts == json.loads(text)
    assert reopened(url).timeline()[-1].is_intact()


def test_a_writer_notes_an_event_only_with_the_transaction(ledger: Ledger, url: str) -> None:
    def fail(writer: Writer) -> None:
        writer.append("never", None, None)
        raise KeyboardInterrupt

    before = ledger.head()
    with pytest.raises(KeyboardInterrupt), ledger._writing() as writer:
        fail(writer)
    assert ledger.head() == before == reopened(url).head()
