"""The ledger on real files: one charge, one draw, whatever dies and whoever comes second."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from pgsr_core.budget import BudgetExceeded
from pgsr_core.errors import PgsrError
from tasks.ledger import measurements as measurements_module
from tasks.ledger.database import LedgerUnavailable, transaction
from tasks.ledger.ledger import (
    LEASE_SECONDS,
    Ledger,
    Measurement,
    MeasurementDamaged,
    MeasurementRequest,
    ReleaseHasOtherMeasurements,
    Reservation,
    ReservationLost,
    ReservedElsewhere,
)
from tasks.ledger.owner import Owner, this_process
from tasks.ledger.versions import ledger_exists

SIZES = range(1, 5)
VALUES = np.array([[5, -3, 0, 2**62], [-(2**62), 1, 1, 1], [9, 8, 7, 6]], dtype=np.int64)


class Clock:
    """A clock that a test moves."""

    def __init__(self, now=1_000_000.0):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/home/ledger.sqlite"


@pytest.fixture
def ledger(url, clock):
    return Ledger(url, clock=clock)


def ask(release="2026-Q3", *, epsilon="1/3", budget="1", population="residents", **differences):
    descriptor = {
        "population": population,
        "product": "household-sizes",
        "release": release,
        "epsilon": epsilon,
        "source": "digest",
        **differences,
    }
    return MeasurementRequest(
        key="|".join(map(str, descriptor.values())),
        population=population,
        budget=Fraction(budget),
        product="household-sizes",
        release=release,
        epsilon=Fraction(epsilon),
        descriptor=descriptor,
    )


def commit(ledger, reservation, values=VALUES, digest="d" * 64):
    return ledger.commit(
        reservation,
        values,
        digest=digest,
        sizes=range(1, values.shape[1] + 1),
        groups=17,
        sampler="opendp",
        simulation=False,
    )


def measure(ledger, request, **facts):
    return commit(ledger, ledger.reserve(request), **facts)


def kinds(ledger, release="2026-Q3"):
    return [kind for kind, _ in ledger.events("household-sizes", release)]


@contextlib.contextmanager
def raw(url):
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        yield connection
        connection.commit()


# --- reserve, commit, recall ----------------------------------------------------------------


def test_a_measurement_is_reserved_committed_and_recalled(ledger):
    reservation = ledger.reserve(ask())
    assert isinstance(reservation, Reservation)
    assert ledger.measurement("household-sizes", "2026-Q3") is None
    committed = commit(ledger, reservation)
    assert committed == ledger.measurement("household-sizes", "2026-Q3")
    assert committed.sizes == SIZES
    assert (committed.groups, committed.sampler, committed.simulation) == (17, "opendp", False)
    assert committed.epsilon == Fraction(1, 3)
    assert committed.descriptor == ask().descriptor
    assert (ledger.values(committed) == VALUES).all()
    assert kinds(ledger) == ["population", "reserved", "measured"]


def test_a_second_reserve_returns_the_committed_measurement_and_charges_nothing(ledger):
    first = measure(ledger, ask())
    again = ledger.reserve(ask())
    assert isinstance(again, Measurement)
    assert again == first
    [charge] = ledger.charges("residents")
    assert (charge.product, charge.release) == ("household-sizes", "2026-Q3")
    assert (charge.epsilon, charge.sampler) == (Fraction(1, 3), "opendp")
    assert charge.descriptor == ask().descriptor
    assert ledger.account("residents").remaining == Fraction(2, 3)


def test_a_measurement_survives_the_process_that_made_it(ledger, url):
    first = measure(ledger, ask())
    reopened = Ledger(url)
    assert reopened.reserve(ask()) == first
    assert (reopened.values(first) == VALUES).all()


def test_another_key_for_a_measured_release_is_refused_and_told_what_differs(ledger):
    measure(ledger, ask())
    with pytest.raises(ReleaseHasOtherMeasurements) as caught:
        ledger.reserve(ask(epsilon="1/2", source="other digest", extra=1))
    assert caught.value.differs == ("epsilon", "extra", "source")
    assert "epsilon (1/3 then, 1/2 now)" in str(caught.value)
    assert "other digest now" in str(caught.value)
    assert "Remedy:" in str(caught.value)
    assert caught.value.exit_code == 2
    assert len(ledger.charges("residents")) == 1


def test_another_key_while_a_release_is_being_measured_waits_for_it(ledger):
    ledger.reserve(ask())
    with pytest.raises(ReservedElsewhere) as caught:
        ledger.reserve(ask(source="other digest"))
    assert caught.value.exit_code == 3


def test_a_live_reservation_is_not_given_twice_even_to_the_same_process(ledger):
    ledger.reserve(ask())
    with pytest.raises(ReservedElsewhere, match="Remedy:"):
        ledger.reserve(ask())


def test_a_commit_can_be_made_once_only(ledger):
    reservation = ledger.reserve(ask())
    first = commit(ledger, reservation)
    with pytest.raises(ReservationLost):
        commit(ledger, reservation, values=VALUES + 1, digest="e" * 64)
    assert ledger.measurement("household-sizes", "2026-Q3") == first
    assert (ledger.values(first) == VALUES).all()


def test_a_reservation_given_back_frees_release_and_budget(ledger):
    ledger.give_back(ledger.reserve(ask(epsilon="1")))
    assert ledger.account("residents").remaining == 1
    assert ledger.charges("residents") == ()
    assert isinstance(ledger.reserve(ask(epsilon="1", source="corrected")), Reservation)


def test_giving_back_after_the_commit_changes_nothing(ledger):
    reservation = ledger.reserve(ask())
    committed = commit(ledger, reservation)
    ledger.give_back(reservation)
    assert ledger.measurement("household-sizes", "2026-Q3") == committed


def test_giving_back_what_another_took_over_changes_nothing(ledger, clock):
    stale = ledger.reserve(ask())
    clock.now += LEASE_SECONDS + 1
    current = ledger.reserve(ask())
    ledger.give_back(stale)
    commit(ledger, current)
    assert len(ledger.charges("residents")) == 1


def test_a_simulation_is_recorded_as_one_and_charged_nothing(ledger):
    reservation = ledger.reserve(ask(epsilon="0"))
    committed = ledger.commit(
        reservation,
        VALUES,
        digest="d",
        sizes=SIZES,
        groups=1,
        sampler="seeded-simulation",
        simulation=True,
    )
    assert committed.simulation is True
    assert ledger.account("residents").spent == 0


# --- leases ---------------------------------------------------------------------------------


def test_a_lease_holds_until_its_end_and_no_longer(ledger, clock):
    ledger.reserve(ask())
    clock.now += LEASE_SECONDS - 1
    with pytest.raises(ReservedElsewhere):
        ledger.reserve(ask())
    clock.now += 2
    assert isinstance(ledger.reserve(ask()), Reservation)


def test_a_renewed_lease_holds_longer(ledger, clock):
    reservation = ledger.reserve(ask())
    clock.now += LEASE_SECONDS - 1
    ledger.renew(reservation)
    clock.now += LEASE_SECONDS - 1
    with pytest.raises(ReservedElsewhere):
        ledger.reserve(ask())


def test_after_a_takeover_the_first_draw_is_refused_and_the_second_is_the_only_one(ledger, clock):
    first = ledger.reserve(ask())
    clock.now += LEASE_SECONDS + 1
    second = ledger.reserve(ask())
    assert second.owner != first.owner
    with pytest.raises(ReservationLost):
        ledger.renew(first)
    with pytest.raises(ReservationLost) as caught:
        commit(ledger, first, values=VALUES + 1)
    assert caught.value.exit_code == 1
    assert ledger.charges("residents") == ()
    committed = commit(ledger, second)
    with pytest.raises(ReservationLost):
        commit(ledger, first, values=VALUES + 1)
    assert (ledger.values(committed) == VALUES).all()
    assert len(ledger.charges("residents")) == 1


def test_a_late_commit_that_nobody_took_over_is_still_taken(ledger, clock):
    reservation = ledger.reserve(ask())
    clock.now += 100 * LEASE_SECONDS
    assert commit(ledger, reservation).digest == "d" * 64


def test_a_late_commit_is_refused_when_its_budget_went_elsewhere(ledger, clock):
    late = ledger.reserve(ask("2026-Q3", epsilon="2/3"))
    clock.now += LEASE_SECONDS + 1
    measure(ledger, ask("2026-Q4", epsilon="2/3"))
    with pytest.raises(BudgetExceeded):
        commit(ledger, late)
    assert ledger.account("residents").spent == Fraction(2, 3)
    assert ledger.measurement("household-sizes", "2026-Q3") is None


def test_a_clock_far_ahead_blocks_neither_a_name_nor_its_budget_for_years(
    ledger, url, clock, monkeypatch
):
    elsewhere = Owner("another-machine", 17, "1", "abc")
    with monkeypatch.context() as patch:
        patch.setattr(measurements_module, "this_process", lambda: elsewhere)
        clock.now += 10**9
        ledger.reserve(ask(epsilon="1"))
    clock.now -= 10**9
    assert ledger.account("residents").remaining == 1
    ledger.require_no_reservation("household-sizes", "2026-Q3")
    assert isinstance(ledger.reserve(ask(epsilon="1")), Reservation)


def test_a_process_of_this_machine_keeps_its_reservation_when_the_clock_is_put_right(ledger, clock):
    clock.now += 10**9
    ledger.reserve(ask(epsilon="1"))
    clock.now -= 10**9
    assert ledger.account("residents").remaining == 0
    with pytest.raises(ReservedElsewhere):
        ledger.require_no_reservation("household-sizes", "2026-Q3")
    with pytest.raises(ReservedElsewhere):
        ledger.reserve(ask(epsilon="1"))


def test_a_reservation_of_another_machine_is_left_alone_until_its_lease_ends(ledger, url, clock):
    ledger.reserve(ask())
    with raw(url) as connection:
        connection.execute("UPDATE measurements SET owner = 'elsewhere/1/1/nonce'")
    with pytest.raises(ReservedElsewhere):
        ledger.reserve(ask())
    clock.now += LEASE_SECONDS + 1
    assert isinstance(ledger.reserve(ask()), Reservation)


# --- budgets --------------------------------------------------------------------------------


def test_the_budget_is_exact_at_its_boundary(ledger):
    for number in range(3):
        measure(ledger, ask(f"r{number}", epsilon="1/3"))
    assert ledger.account("residents").remaining == 0
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve(ask("r3", epsilon="1/1000000000000"))
    assert caught.value.remaining == 0
    assert caught.value.requested == Fraction(1, 10**12)
    assert caught.value.exit_code == 1
    assert len(ledger.charges("residents")) == 3


def test_ten_tenths_fit_into_one(ledger):
    for number in range(10):
        measure(ledger, ask(f"r{number}", epsilon="0.1"))
    assert ledger.account("residents").spent == 1


def test_open_reservations_count_against_the_budget(ledger):
    ledger.reserve(ask("r1", epsilon="2/3"))
    account = ledger.account("residents")
    assert (account.spent, account.reserved) == (0, Fraction(2, 3))
    with pytest.raises(BudgetExceeded):
        ledger.reserve(ask("r2", epsilon="1/2"))
    assert isinstance(ledger.reserve(ask("r3", epsilon="1/3")), Reservation)


def test_a_refused_charge_leaves_no_trace(ledger):
    with pytest.raises(BudgetExceeded):
        ledger.reserve(ask(epsilon="2"))
    assert ledger.accounts() == ()
    assert kinds(ledger) == []


def test_the_ledgers_budget_wins_over_the_configurations(ledger):
    measure(ledger, ask("r1", epsilon="1"))
    with pytest.raises(BudgetExceeded):
        ledger.reserve(ask("r2", epsilon="1", budget="100"))
    assert ledger.account("residents", budget=Fraction(100)).budget == 1


def test_populations_do_not_share_a_budget(ledger):
    measure(ledger, ask("r1", epsilon="1"))
    measure(ledger, ask("r2", epsilon="1", population="taxis"))
    assert [account.population for account in ledger.accounts()] == ["residents", "taxis"]
    assert all(account.remaining == 0 for account in ledger.accounts())


def test_an_unknown_population_has_the_configured_budget_and_is_not_entered_by_looking(ledger):
    assert ledger.account("nobody", budget=Fraction(3)).remaining == 3
    assert ledger.accounts() == ()
    with pytest.raises(PgsrError, match="Remedy:"):
        ledger.account("nobody")


def test_looking_for_a_ledger_creates_nothing(url, tmp_path):
    assert Ledger.existing(url) is None
    assert not ledger_exists(url)
    assert list(tmp_path.iterdir()) == []
    measure(Ledger(url), ask())
    assert Ledger.existing(url).account("residents").spent == Fraction(1, 3)


# --- the noisy table itself -----------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (1000, 7), (1, 5000)])
def test_values_come_back_exactly_over_many_chunks(ledger, url, monkeypatch, shape):
    monkeypatch.setattr(measurements_module, "CHUNK_BYTES", 4096)
    values = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, shape, endpoint=True)
    committed = measure(ledger, ask(), values=values)
    read = ledger.values(committed)
    assert read.dtype == np.int64
    assert (read == values).all()
    with raw(url) as connection:
        (count,) = connection.execute("SELECT count(*) FROM measurement_chunks").fetchone()
    assert count == -(-values.nbytes // 4096)


def test_a_table_in_another_memory_layout_comes_back_the_same(ledger):
    committed = measure(ledger, ask(), values=np.asfortranarray(VALUES))
    assert (ledger.values(committed) == VALUES).all()


DAMAGE = {
    "flipped": "UPDATE measurement_chunks SET data = CAST(x'00' || substr(data, 2) AS BLOB)"
    " WHERE number = 1",
    "cut": "UPDATE measurement_chunks SET data = substr(data, 1, 20) WHERE number = 1",
    "emptied": "UPDATE measurement_chunks SET data = x'' WHERE number = 1",
    "missing": "DELETE FROM measurement_chunks WHERE number = 1",
    "all missing": "DELETE FROM measurement_chunks",
    "doubled": "INSERT INTO measurement_chunks SELECT key, 99, data FROM measurement_chunks"
    " WHERE number = 1",
    "text": "UPDATE measurement_chunks SET data = 'text' WHERE number = 1",
    "number": "UPDATE measurement_chunks SET data = 7 WHERE number = 1",
    "other shape": "UPDATE measurements SET regions = regions + 1",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_table_is_refused_and_never_drawn_again(ledger, url, monkeypatch, damage):
    monkeypatch.setattr(measurements_module, "CHUNK_BYTES", 64)
    values = np.arange(64, dtype=np.int64).reshape(8, 8)
    measure(ledger, ask(), values=values)
    with raw(url) as connection:
        assert connection.execute(DAMAGE[damage]).rowcount > 0
    held = ledger.reserve(ask())
    assert isinstance(held, Measurement)
    with pytest.raises(MeasurementDamaged, match="Remedy:") as caught:
        ledger.values(held)
    assert caught.value.exit_code == 1
    assert isinstance(ledger.reserve(ask()), Measurement)


# --- crashes --------------------------------------------------------------------------------

RESERVE_AND_WAIT = """
import sys, time
sys.path.insert(0, sys.argv[2])
from test_ledger import ask, commit
from tasks.ledger.ledger import Ledger
ledger = Ledger(sys.argv[1])
reservation = ledger.reserve(ask(epsilon="1"))
print("reserved", flush=True)
time.sleep(60)
commit(ledger, reservation)
"""


@contextlib.contextmanager
def reserving_process(url):
    process = subprocess.Popen(
        [sys.executable, "-c", RESERVE_AND_WAIT, url, str(Path(__file__).parent)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "reserved\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_reservation_of_a_live_process_is_respected_and_of_a_killed_one_taken_over(url):
    with reserving_process(url) as process:
        ledger = Ledger(url)
        with pytest.raises(ReservedElsewhere):
            ledger.reserve(ask(epsilon="1"))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert ledger.charges("residents") == ()
        assert ledger.account("residents").spent == 0
        committed = measure(ledger, ask(epsilon="1"))
    assert ledger.reserve(ask(epsilon="1")) == committed
    assert [charge.epsilon for charge in ledger.charges("residents")] == [1]
    assert kinds(ledger).count("measured") == 1


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_killed_process_that_nobody_buried_is_gone_as_well(url):
    """In a container the first process often does not reap: the dead one stays a zombie."""
    with reserving_process(url) as process:
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert isinstance(Ledger(url).reserve(ask(epsilon="1")), Reservation)


def test_a_crash_in_the_middle_of_a_commit_leaves_nothing_of_it(ledger, url, monkeypatch):
    reservation = ledger.reserve(ask(epsilon="1"))

    def crash(values):
        yield b"first chunk"
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(measurements_module, "_chunks", crash)
        with pytest.raises(KeyboardInterrupt):
            commit(ledger, reservation)
    assert ledger.charges("residents") == ()
    assert ledger.measurement("household-sizes", "2026-Q3") is None
    with raw(url) as connection:
        assert connection.execute("SELECT count(*) FROM measurement_chunks").fetchone() == (0,)
    assert commit(ledger, reservation).epsilon == 1


def test_an_owner_is_told_apart_from_a_later_process_of_the_same_number():
    owner = this_process()
    assert Owner.parse(str(owner)) == owner
    assert not owner.is_surely_gone()
    assert dataclasses.replace(owner, started="1").is_surely_gone()
    assert not dataclasses.replace(owner, started="1", host="elsewhere").is_surely_gone()
    assert dataclasses.replace(owner, process=2**22 + 1).is_surely_gone()
    assert this_process() != owner


@pytest.mark.parametrize("text", ["", "a/b", "host/x/1/n", "host/1/1/n/more", "host/-1/1/n"])
def test_an_owner_that_cannot_be_read_is_nobody(text):
    assert Owner.parse(text) is None


# --- races ----------------------------------------------------------------------------------

RACERS = 8
ROUNDS = 4


def race(url, barrier, results):
    """Draw every round's release with the others; say whose draw was taken."""
    for number in range(ROUNDS):
        request = ask(f"round{number}", epsilon="1/4")
        barrier.wait(timeout=120)
        # Opened anew each round: in the first one all of them create the file.
        ledger = Ledger(url)
        drew = False
        while True:
            try:
                held = ledger.reserve(request)
            except ReservedElsewhere:
                time.sleep(0.01)
                continue
            if isinstance(held, Reservation):
                drew = True
                mine = np.array([[os.getpid()]], dtype=np.int64)
                held = commit(ledger, held, values=mine, digest=str(os.getpid()))
            break
        results.put((number, drew, int(ledger.values(held)[0, 0]), held.digest))


def test_of_many_processes_that_start_one_release_exactly_one_draws_and_all_read_its_draw(url):
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(RACERS), context.Queue()
    racers = [context.Process(target=race, args=(url, barrier, results)) for _ in range(RACERS)]
    for racer in racers:
        racer.start()
    try:
        outcomes = [results.get(timeout=150) for _ in range(RACERS * ROUNDS)]
    finally:
        for racer in racers:
            racer.join(timeout=20)
            if racer.is_alive():
                racer.kill()
    assert [racer.exitcode for racer in racers] == [0] * RACERS
    ledger = Ledger(url)
    for number in range(ROUNDS):
        of_round = [outcome[1:] for outcome in outcomes if outcome[0] == number]
        assert len(of_round) == RACERS
        assert sum(drew for drew, _, _ in of_round) == 1
        assert len({(value, digest) for _, value, digest in of_round}) == 1
        assert kinds(ledger, f"round{number}").count("measured") == 1
        assert kinds(ledger, f"round{number}").count("reserved") == 1
    assert ledger.account("residents").spent == 1
    assert len(ledger.charges("residents")) == ROUNDS


def test_threads_that_race_for_the_last_of_a_budget_do_not_overdraw_it(url):
    ledger = Ledger(url)
    start = threading.Barrier(8)
    won, lost = [], []

    def try_one(number):
        start.wait()
        try:
            won.append(measure(ledger, ask(f"r{number}", epsilon="1/3")))
        except BudgetExceeded as error:
            lost.append(error)

    threads = [threading.Thread(target=try_one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert (len(won), len(lost)) == (3, 5)
    assert ledger.account("residents").remaining == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_uses_no_connection_of_its_parent(url):
    """SQLite's locks belong to a process: a connection carried over a fork would hold none."""
    ledger = Ledger(url)
    measure(ledger, ask("before", epsilon="1/4"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            inherited = {
                os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115
                for fd in os.listdir("/proc/self/fd")  # noqa: PTH208
                if os.path.islink(f"/proc/self/fd/{fd}")  # noqa: PTH114
            }
            measure(ledger, ask("in-child", epsilon="1/4"))
            status = 2 if any("ledger.sqlite" in name for name in inherited) else 0
        finally:
            os._exit(status)
    _, exit_status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(exit_status) == 0
    measure(ledger, ask("after", epsilon="1/4"))
    assert ledger.account("residents").spent == Fraction(3, 4)


# --- the file -------------------------------------------------------------------------------


def test_commits_are_durable_and_readers_do_not_block(ledger):
    with transaction(ledger._engine) as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def test_a_transaction_takes_the_write_lock_before_it_looks(ledger, url):
    with transaction(ledger._engine), raw(url) as other:
        other.execute("PRAGMA busy_timeout = 0")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_ledgers_files_are_closed_to_others_whatever_the_umask(url, tmp_path, mask):
    previous = os.umask(mask)
    try:
        ledger = Ledger(url)
        with transaction(ledger._engine) as connection:
            connection.exec_driver_sql("CREATE TABLE something (x)")
            found = {path.name: path for path in (tmp_path / "home").iterdir()}
            assert "ledger.sqlite-wal" in found
            for path in found.values():
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700


def unusable(folder):
    (folder / "file").write_text("not a database, and long enough to be looked at" * 10)
    (folder / "folder").mkdir(exist_ok=True)
    return [
        "postgresql://localhost/ledger",
        "mysql://user:secret@localhost/ledger",
        "sqlite+aiosqlite:////tmp/x.sqlite",
        "postgresql+psycopg://localhost:port/ledger",
        "nonsense",
        "",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///relative/ledger.sqlite",
        f"sqlite:///{folder}/x.sqlite?mode=memory&uri=true",
        f"sqlite:///file:{folder}/x.sqlite?mode=memory&uri=true",
        f"sqlite:///{folder}/file",
        f"sqlite:///{folder}/file/ledger.sqlite",
        f"sqlite:///{folder}/folder",
        f"sqlite:///{folder}/{'x' * 300}",
    ]


@pytest.mark.parametrize("number", range(16))
def test_a_ledger_that_cannot_be_used_is_unavailable_and_not_a_traceback(
    tmp_path, monkeypatch, number
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LedgerUnavailable, match="Remedy:") as caught:
        Ledger(unusable(tmp_path)[number])
    assert caught.value.exit_code == 3
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("number", range(11))
def test_looking_for_a_ledger_that_cannot_be_used_says_the_same(tmp_path, number):
    with pytest.raises(LedgerUnavailable):
        ledger_exists(unusable(tmp_path)[number])


def test_a_busy_ledger_is_unavailable_and_nothing_is_changed(url, monkeypatch):
    monkeypatch.setattr("tasks.ledger.database.BUSY_SECONDS", 0.1)
    ledger = Ledger(url)
    with raw(url) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailable, match="nothing was changed"):
            ledger.reserve(ask())
        other.rollback()
    assert ledger.accounts() == ()
    assert isinstance(ledger.reserve(ask()), Reservation)


# --- runs and events ------------------------------------------------------------------------


def test_the_state_of_a_run_is_the_last_one_noted(ledger, clock):
    ledger.set_state("p", "r", state="running", stage="noise")
    clock.now += 5
    ledger.set_state("p", "r", state="failed", stage="cpwl", error="CertificateFailed")
    (state,) = ledger.run_states()
    assert (state.product, state.release, state.state, state.stage) == ("p", "r", "failed", "cpwl")
    assert (state.error, state.updated) == ("CertificateFailed", clock.now)


def test_events_come_back_in_order_with_their_facts(ledger):
    for number in range(5):
        ledger.record("validated", "p", "r", number=number, digest="d")
    ledger.record("validated", "p", "other", number=99)
    assert [facts["number"] for _, facts in ledger.events("p", "r")] == list(range(5))


def test_a_hostile_name_is_data_and_nothing_else(ledger):
    name = "x'; DROP TABLE charges; --"
    ledger.record(name, name, name, fact=name)
    assert ledger.events(name, name) == ((name, {"fact": name}),)
    assert ledger.charges("residents") == ()
