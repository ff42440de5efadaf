"""A state machine of everything that can happen to releases, in any order (Hypothesis)."""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from benchmarks.torture.driver import PRODUCT, Crash, Place, Places, Protocol
from benchmarks.torture.evidence import look, violations
from benchmarks.torture.intermediates import IN_LEDGER, damaged_chunks, restored_chunks
from benchmarks.torture.mutants import RedrawOnRerun
from benchmarks.torture.rows import Effort, Row, Torture
from benchmarks.torture.running import MEMORY
from pgsr_core.errors import PgsrError
from tasks.ledger.ledger import (
    LEASE_SECONDS,
    Ledger,
    MeasurementDamaged,
    Reservation,
    ReservationLost,
)
from tasks.purge import NotPublished, purge
from tasks.run import Run, RunRef
from tasks.storage.duck import connect
from tasks.storage.tables import TableTampered

RELEASES = st.sampled_from(["r0", "r1"])
POINTS = st.sampled_from(
    ["ingested", "reserved", "drawn", "committed", "materialised", "stored", "staged", "renamed"]
)
STEPS = 6


@cache
def places() -> Places:
    """Where this process's machines run."""
    folder = tempfile.mkdtemp(prefix="pgsr-machine-", dir=MEMORY)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Places(Path(folder))


@dataclass(frozen=True)
class DrivenRun(RunRef):
    """A driven release as the product names it; it has no plan."""

    place: Place

    def ledger(self) -> Ledger:
        return self.place.ledger()

    def open(self) -> Run:
        return Run(self, plan=None)  # type: ignore[arg-type]


class LedgerMachine(RuleBasedStateMachine):
    """Releases that start, crash, are retried, raced, corrupted, resumed and purged."""

    kind: type[Protocol] = Protocol

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_790_000_000.0
        self.place = places().fresh(clock=lambda: self.now)
        self.seen: dict[str, set[str]] = {}
        self.forged_stores: set[str] = set()
        self.backups: dict[str, list[tuple[int, bytes]]] = {}
        self.touched: set[str] = set()

    def teardown(self) -> None:
        shutil.rmtree(self.place.root, ignore_errors=True)

    def driver(self, release: str) -> Protocol:
        self.touched.add(release)
        return self.kind(self.place, release=release, population=f"people-of-{release}")

    @rule(release=RELEASES)
    def start(self, release: str) -> None:
        with contextlib.suppress(PgsrError):
            self.driver(release).run()

    @rule(release=RELEASES, point=POINTS)
    def crash(self, release: str, point: str) -> None:
        def die(reached: str) -> None:
            if reached == point:
                raise Crash

        with contextlib.suppress(PgsrError, Crash):
            replace(self.driver(release), reach=die).run()

    @rule(release=RELEASES)
    def retry_after_the_lease(self, release: str) -> None:
        """Nothing but damage may stop it then, and it stops with the error that says so."""
        self.now += LEASE_SECONDS + 1
        lost = release in self.backups and not self.place.safe_store(release).exists()
        try:
            self.driver(release).run()
        except TableTampered:
            assert release in self.forged_stores, "a sound store was taken for a forged one"
        except MeasurementDamaged:
            assert release in self.backups, "sound measurements were taken for damaged ones"
        else:
            assert not lost, "a run went on from damaged measurements"

    @rule(release=RELEASES)
    def start_concurrently(self, release: str) -> None:
        """Two hold the right to draw, one after its lease: only the other's draw is taken."""
        ledger, driver = self.place.ledger(), self.driver(release)
        with contextlib.suppress(PgsrError):
            first = ledger.reserve(driver.request())
            self.now += LEASE_SECONDS + 1
            second = ledger.reserve(driver.request())
            if isinstance(first, Reservation) and isinstance(second, Reservation):
                driver.commit(ledger, second, driver.draw())
                with contextlib.suppress(ReservationLost):
                    driver.commit(ledger, first, driver.draw())
                    raise AssertionError("two draws were taken")

    @rule(release=RELEASES)
    def corrupt_the_store(self, release: str) -> None:
        path = self.place.safe_store(release)
        if path.exists() and release not in self.forged_stores:
            with connect(path, threads=1) as connection, contextlib.suppress(Exception):
                connection.execute("UPDATE measurements SET value = value + 1 WHERE size = 1")
                self.forged_stores.add(release)

    @rule(release=RELEASES, damage=st.sampled_from(sorted(IN_LEDGER)), copied=st.booleans())
    def corrupt_the_ledger(self, release: str, damage: str, *, copied: bool) -> None:
        """Damage the measurements that the ledger holds; what was there is kept as a backup."""
        if release not in self.backups and (held := damaged_chunks(self.place, release, damage)):
            self.backups[release] = held
            if not copied:
                self.lose_the_store(release)
            self.retry_after_the_lease(release)

    @rule(release=RELEASES)
    def restore_the_ledger(self, release: str) -> None:
        """The remedy for measurements that cannot be read."""
        restored_chunks(self.place, release, self.backups.pop(release, []))
        self.retry_after_the_lease(release)

    @rule(release=RELEASES)
    def resume_from_the_ledger(self, release: str) -> None:
        """The remedy for a store that does not match: delete it and run again."""
        self.lose_the_store(release)
        self.retry_after_the_lease(release)

    def lose_the_store(self, release: str) -> None:
        self.place.safe_store(release).unlink(missing_ok=True)
        self.forged_stores.discard(release)

    @rule(release=RELEASES)
    def purge(self, release: str) -> None:
        """What is published loses its truth, once and for all; nothing else does."""
        kinds = {kind for kind, _ in self.place.ledger().events(PRODUCT, release)}
        had_truth = self.place.truth(release).exists()
        self.touched.add(release)
        try:
            purge(DrivenRun(str(self.place.home.root), PRODUCT, release, self.place))
        except NotPublished:
            assert "published" not in kinds, "a published release was not purged"
            assert self.place.truth(release).exists() == had_truth
        else:
            assert "published" in kinds, "a release was purged before it was published"

    @invariant()
    def promises_hold(self) -> None:
        """Of every release that the last step worked on; others are as they were."""
        for release in self.touched - self.forged_stores:
            seen = look(self.place, release=release, population=f"people-of-{release}")
            assert not list(violations(seen))
            known = self.seen.setdefault(release, set())
            known |= seen.drawn
            assert len(known) <= 1, "two draws could be read, one after the other"
            assert seen.published in {None, seen.in_ledger}
            assert seen.spent <= Fraction(1)
            if "purged" in seen.kinds:
                assert not self.place.truth(release).exists(), "the truth came back"
        self.touched.clear()


class MutantMachine(LedgerMachine):
    """The same on a protocol that draws again."""

    kind = RedrawOnRerun


def finds_violation(machine: type[LedgerMachine], *, runs: int) -> str | None:
    """Run a machine; the first line of what it found, None if nothing."""
    chosen = settings(
        max_examples=runs,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        derandomize=True,
        print_blob=False,
        phases=[Phase.generate],  # a violation is a violation; the test shrinks it
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(machine, settings=chosen)
    except Exception as error:  # whatever a rule or an invariant raised is a finding
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def run(effort: Effort) -> Iterator[Row]:
    runs = effort.times(500, 5)
    found = finds_violation(LedgerMachine, runs=runs)
    mutant = finds_violation(MutantMachine, runs=20)
    yield Row(
        "state machine: start, crash, retry, concurrent start, corrupt, resume, purge",
        f"{runs} runs, {found or 'no violation'}",
        f"no violation in {runs} runs",
        found is None,
        f"redraw on rerun: {mutant or 'no violation'}",
        mutant is not None,
        [found] if found else [],
    )


TORTURE = Torture("machine", run)
