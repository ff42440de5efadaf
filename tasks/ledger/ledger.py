"""The ledger as the rest of the software uses it: every method is one transaction.

What happens inside one is said in the module of its subject: measurements (exactly once),
accounts, runs, events. This one opens and ends it, and keeps the witness.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from pgsr_core.budget import Account
from pgsr_core.chain import Event, Head
from tasks.ledger import accounts, locks, measurements, reposts, runs
from tasks.ledger.accounts import Charge
from tasks.ledger.database import file_of, server_time, snapshot, transaction
from tasks.ledger.events import Writer, read_events
from tasks.ledger.history import History, LedgerEdited, LedgerForked, LedgerRolledBack
from tasks.ledger.leases import LEASE_SECONDS
from tasks.ledger.locks import ReleaseInUse
from tasks.ledger.measurements import (
    Drawn,
    Int,
    Measurement,
    MeasurementDamaged,
    MeasurementRequest,
    ReleaseHasOtherMeasurements,
    Reservation,
    ReservationLost,
    ReservedElsewhere,
)
from tasks.ledger.runs import RunState
from tasks.ledger.versions import ledger_exists, open_engine
from tasks.ledger.witness import Witness
from tasks.storage.places import WITNESS_FILE

__all__ = [
    "LEASE_SECONDS",
    "Charge",
    "Ledger",
    "LedgerEdited",
    "LedgerForked",
    "LedgerRolledBack",
    "Measurement",
    "MeasurementDamaged",
    "MeasurementRequest",
    "ReleaseHasOtherMeasurements",
    "ReleaseInUse",
    "Reservation",
    "ReservationLost",
    "ReservedElsewhere",
    "RunState",
]


class Ledger:
    """Budgets, reservations, measurements, run states and events.

    Args:
        url: a SQLite file or a PostgreSQL database.
        witness: the file that remembers the chain's head; beside a SQLite file by default.
        clock: seconds since 1970; by default the server's, where there is one, so that machines
            that share a ledger go by one clock.

    Raises:
        LedgerUnavailable: it cannot be reached.
        LedgerNeedsMigration: an older version made it.
        LedgerEdited, LedgerForked, LedgerRolledBack: it is not what was seen of it before.
    """

    def __init__(
        self,
        url: str,
        *,
        witness: Path | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        place = witness or default_witness(url)
        self._engine = open_engine(url)
        self._file = file_of(url)
        self._history = History(self._engine, url, Witness(place))
        self._history.verify()
        self._clock = clock

    @classmethod
    def existing(cls, url: str, *, witness: Path | None = None) -> Ledger | None:
        """Open a ledger that is there; looking for one creates nothing."""
        return cls(url, witness=witness) if ledger_exists(url) else None

    # --- exactly once -----------------------------------------------------------------------

    @contextmanager
    def alone(self, product: str, release: str) -> Iterator[None]:
        """Work on a release while no other process does; ends with the process at the latest.

        Raises:
            ReleaseInUse: another process does.
        """
        with locks.alone(self._engine, self._file, f"{product}/{release}"):
            yield

    def require_still_alone(self, product: str, release: str) -> None:
        """See that the lock which `alone` took was not lost together with its server.

        Raises:
            ReleaseInUse: another process has taken it meanwhile.
        """
        locks.still_alone(self._engine, f"{product}/{release}")

    def require_no_reservation(self, product: str, release: str) -> None:
        """See that no process is drawing a release's noise: its plan must stay until it is done.

        Raises:
            ReservedElsewhere: one is.
        """
        with snapshot(self._engine) as connection:
            now = self._now(connection)
            measurements.require_no_reservation(connection, product, release, now=now)

    def reserve(self, request: MeasurementRequest) -> Reservation | Measurement:
        """Find the committed measurement, or reserve the right and the budget to draw it.

        Raises:
            ReleaseHasOtherMeasurements: the release was measured under another key.
            ReservedElsewhere: a live process holds the reservation.
            BudgetExceeded: the charge does not fit.
        """
        with self._writing() as writer:
            return measurements.reserve(writer, request)

    def renew(self, reservation: Reservation) -> None:
        """Extend the lease of a draw that takes long.

        Raises:
            ReservationLost: somebody else holds it now.
        """
        with self._writing() as writer:
            measurements.renew(writer, reservation)

    def give_back(self, reservation: Reservation) -> None:
        """End a reservation whose draw failed; nothing was charged."""
        with self._writing() as writer:
            measurements.give_back(writer, reservation)

    def commit(
        self,
        reservation: Reservation,
        values: Int,
        *,
        digest: str,
        sizes: range,
        groups: int,
        sampler: str,
        simulation: bool,
    ) -> Measurement:
        """Make the draw the only one: table, digest, charge and event in one transaction.

        Raises:
            ReservationLost: the reservation is no longer ours; the draw is thrown away.
            BudgetExceeded: the lease had ended and the budget went elsewhere meanwhile.
        """
        drawn = Drawn(values, digest, sizes, groups, sampler, simulation)
        with self._writing() as writer:
            return measurements.commit(writer, reservation, drawn)

    def measurement(self, product: str, release: str) -> Measurement | None:
        """The committed measurement of a release."""
        with snapshot(self._engine) as connection:
            return measurements.find(connection, product, release)

    def values(self, measurement: Measurement) -> Int:
        """Read the noisy table of a committed measurement; the caller checks its digest."""
        with snapshot(self._engine) as connection:
            return measurements.read_values(connection, measurement)

    def repost(self, repost: reposts.Repost) -> None:
        """Let a new release rest on known measurements: an event, no charge and no draw.

        Raises:
            NameTaken: the new name stands for something else.
        """
        with self._writing() as writer:
            reposts.record(writer, repost)

    # --- budgets ----------------------------------------------------------------------------

    def account(self, population: str, *, budget: Fraction | None = None) -> Account:
        """A population's account; one that is not in the ledger yet has the given budget.

        Raises:
            PgsrError: it is not in the ledger and no budget was given.
        """
        with snapshot(self._engine) as connection:
            if budget is not None and accounts.budget_of(connection, population) is None:
                return Account(population, budget)
            return accounts.account_of(connection, population, now=self._now(connection))

    def accounts(self) -> tuple[Account, ...]:
        """All accounts, by name."""
        with snapshot(self._engine) as connection:
            return accounts.accounts(connection, now=self._now(connection))

    def holds(self, population: str) -> bool:
        """Whether something was charged to a population here, or is reserved; not simulations."""
        with snapshot(self._engine) as connection:
            return accounts.is_held(connection, population)

    def charges(self, population: str) -> tuple[Charge, ...]:
        """Every charge to a population, by product and release."""
        with snapshot(self._engine) as connection:
            return accounts.charges_to(connection, population)

    def raise_budget(self, population: str, budget: Fraction, *, reason: str) -> Fraction:
        """Raise a population's budget, with the reason on record; returns what it was before.

        Raises:
            NotARaise: it is not more than before.
            NoReason: there is no reason that can be read.
        """
        with self._writing() as writer:
            return accounts.raise_budget(writer, population, budget, reason=reason)

    # --- runs -------------------------------------------------------------------------------

    def set_state(
        self, product: str, release: str, *, state: str, stage: str, error: str | None = None
    ) -> None:
        """Note where a run stands."""
        with self._writing() as writer:
            runs.set_state(writer, product, release, state=state, stage=stage, error=error)

    def run_states(self) -> tuple[RunState, ...]:
        """Where every release stands."""
        with snapshot(self._engine) as connection:
            return runs.run_states(connection)

    # --- events -----------------------------------------------------------------------------

    def record(self, kind: str, product: str | None, release: str | None, **facts: Any) -> None:
        """Append an event; facts hold digests and public numbers only."""
        with self._writing() as writer:
            writer.append(kind, product, release, **facts)

    def has_event(self, kind: str, product: str, release: str, **facts: Any) -> bool:
        """Whether an event of a release says all of these facts."""
        return any(
            known == kind and facts.items() <= said.items()
            for known, said in self.events(product, release)
        )

    def events(self, product: str, release: str) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        """Kinds and facts of a release's events, oldest first."""
        return tuple((event.kind, event.facts) for event in self.timeline(product, release))

    def timeline(self, product: str | None = None, release: str | None = None) -> tuple[Event, ...]:
        """Events in their order, of all or of one product or release."""
        with snapshot(self._engine) as connection:
            return read_events(connection, product=product, release=release)

    def head(self) -> Head:
        """The last event: its number and its hash stand for the whole chain."""
        return self._history.head()

    def remember_published(self, head: Head) -> None:
        """Let the witness remember a head before a signed bundle that carries it appears."""
        self._history.publish(head)

    # --- transactions -----------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[Writer]:
        """One write transaction; once it is durable, the witness learns of its events."""
        with transaction(self._engine) as connection:
            start = self._history.lock(connection)
            writer = Writer(connection, now=self._now(connection), head=start)
            yield writer
        if writer.head != start:
            self._history.advance(writer.head)

    def _now(self, connection: Connection) -> float:
        if self._clock is not None:
            return self._clock()
        return server_time(connection) or time.time()


def default_witness(url: str) -> Path:
    """Where the witness of a SQLite file is, unless it is said: in the same folder."""
    path = file_of(url)
    if path is None:
        raise ValueError("the witness of a ledger on a server must be named")
    return path.with_name(WITNESS_FILE)
