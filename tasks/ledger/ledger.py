"""The ledger: charge once, draw once, never redraw.

Protocol (each line one transaction):

1. reserve: a measurement key is looked up; a committed one is used as it is. Otherwise the
   remaining budget is checked and a reservation with an owner and a lease is written.
2. The draw happens in memory; nothing is written.
3. commit: refused unless the reservation is still ours; writes the noisy table itself, its
   digest, the charge and the event. From here on it is the only draw that can ever be read.

A process that dies before 3 has written nothing readable, so whoever takes the reservation
over draws anew without anybody having seen the first draw.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, delete, insert, select, update

from pgsr_core.budget import Account, total
from pgsr_core.errors import PgsrError, Refused, Unavailable
from tasks.ledger.database import ledger_exists, open_engine, transaction
from tasks.ledger.owner import Owner, actor, this_process
from tasks.ledger.schema import (
    charges,
    events,
    measurement_chunks,
    measurements,
    populations,
    runs,
)

LEASE_SECONDS = 900.0
CHUNK_BYTES = 4 << 20
Int = NDArray[np.int64]


class ReleaseHasOtherMeasurements(PgsrError):
    """A release of this name was measured under another description; it is not drawn again."""

    def __init__(self, *, product: str, release: str, differs: tuple[str, ...]) -> None:
        self.differs = differs
        super().__init__(
            f"{product}/{release} was already measured, and this run differs in "
            f"{', '.join(differs) or 'its description'}. Its noise is never drawn again. "
            "Remedy: give the new release another name, or restore what was changed."
        )


class ReservedElsewhere(Unavailable):
    """Another process is drawing this release's noise at the moment."""


class ReservationLost(Refused):
    """Another process took the reservation over; this draw was thrown away unseen."""


class MeasurementDamaged(Refused):
    """The stored measurements do not match their digest."""


@dataclass(frozen=True)
class MeasurementRequest:
    """What is to be measured: the descriptor's digest is the measurement key.

    Attributes:
        epsilon: what is charged; zero for a simulation, which is not private at any ε.
        budget: the population's budget, should the ledger not know it yet.
    """

    key: str
    population: str
    budget: Fraction
    product: str
    release: str
    epsilon: Fraction
    descriptor: Mapping[str, Any]


@dataclass(frozen=True)
class Measurement:
    """A committed draw."""

    key: str
    digest: str
    regions: int
    sizes: range
    groups: int
    sampler: str
    simulation: bool
    epsilon: Fraction
    descriptor: Mapping[str, Any]

    def require_same(self, request: MeasurementRequest) -> None:
        """Refuse to go on with a request that this measurement does not answer.

        Raises:
            ReleaseHasOtherMeasurements: naming what differs.
        """
        if self.key == request.key:
            return
        held, asked = self.descriptor, request.descriptor
        differs = sorted(
            part for part in held.keys() | asked.keys() if held.get(part) != asked.get(part)
        )
        raise ReleaseHasOtherMeasurements(
            product=request.product, release=request.release, differs=tuple(differs)
        )


@dataclass(frozen=True)
class Reservation:
    """The right to draw, until the lease ends or another takes it over."""

    request: MeasurementRequest
    owner: Owner


@dataclass(frozen=True)
class RunState:
    """Where a release stands."""

    product: str
    release: str
    state: str
    stage: str
    owner: str
    updated: float
    error: str | None


class Ledger:
    """Budgets, reservations, measurements, run states and events."""

    def __init__(self, url: str, *, clock: Callable[[], float] = time.time) -> None:
        self._engine = open_engine(url)
        self._clock = clock

    @classmethod
    def existing(cls, url: str) -> Ledger | None:
        """Open a ledger that is there; looking for one creates nothing."""
        return cls(url) if ledger_exists(url) else None

    # --- exactly once -----------------------------------------------------------------------

    def reserve(self, request: MeasurementRequest) -> Reservation | Measurement:
        """Find the committed measurement, or reserve the right and the budget to draw it.

        Raises:
            ReleaseHasOtherMeasurements: the release was measured under another key.
            ReservedElsewhere: a live process holds the reservation.
            BudgetExceeded: the charge does not fit.
        """
        owner = this_process()
        with transaction(self._engine) as connection:
            self._introduce(connection, request)
            held = self._of_release(connection, request.product, request.release)
            if held is not None and held.digest is not None:
                measurement = _measurement(held)
                measurement.require_same(request)
                return measurement
            if held is not None:
                self._refuse_live(held)
                connection.execute(delete(measurements).where(measurements.c.key == held.key))
            self._account(connection, request.population).require(request.epsilon)
            connection.execute(
                insert(measurements).values(
                    key=request.key,
                    population=request.population,
                    product=request.product,
                    release=request.release,
                    epsilon=request.epsilon,
                    descriptor=dict(request.descriptor),
                    owner=str(owner),
                    lease_expires=self._clock() + LEASE_SECONDS,
                )
            )
            self._event(connection, "reserved", request.product, request.release, key=request.key)
        return Reservation(request, owner)

    def renew(self, reservation: Reservation) -> None:
        """Extend the lease of a draw that takes long.

        Raises:
            ReservationLost: somebody else holds it now.
        """
        with transaction(self._engine) as connection:
            self._require_ours(connection, reservation)
            connection.execute(
                update(measurements)
                .where(measurements.c.key == reservation.request.key)
                .values(lease_expires=self._clock() + LEASE_SECONDS)
            )

    def give_back(self, reservation: Reservation) -> None:
        """End a reservation whose draw failed; nothing was charged."""
        with transaction(self._engine) as connection:
            connection.execute(
                delete(measurements).where(
                    measurements.c.key == reservation.request.key,
                    measurements.c.owner == str(reservation.owner),
                    measurements.c.digest.is_(None),
                )
            )

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
        request = reservation.request
        with transaction(self._engine) as connection:
            self._require_ours(connection, reservation)
            account = self._account(connection, request.population, besides=request.key)
            account.require(request.epsilon)
            connection.execute(
                update(measurements)
                .where(measurements.c.key == request.key)
                .values(
                    owner=None,
                    lease_expires=None,
                    digest=digest,
                    regions=values.shape[0],
                    first_size=sizes.start,
                    last_size=sizes.stop - 1,
                    groups=groups,
                    sampler=sampler,
                    simulation=simulation,
                )
            )
            for number, data in enumerate(_chunks(values)):
                connection.execute(
                    insert(measurement_chunks).values(key=request.key, number=number, data=data)
                )
            connection.execute(
                insert(charges).values(
                    key=request.key, population=request.population, epsilon=request.epsilon
                )
            )
            self._event(
                connection,
                "measured",
                request.product,
                request.release,
                key=request.key,
                digest=digest,
                epsilon=str(request.epsilon),
                population=request.population,
                sampler=sampler,
            )
            row = self._of_release(connection, request.product, request.release)
        if row is None:
            raise ReservationLost("the committed measurement cannot be read back. Remedy: resume.")
        return _measurement(row)

    def measurement(self, product: str, release: str) -> Measurement | None:
        """The committed measurement of a release, if there is one."""
        with transaction(self._engine) as connection:
            row = self._of_release(connection, product, release)
        return _measurement(row) if row is not None and row.digest is not None else None

    def values(self, measurement: Measurement) -> Int:
        """Read the noisy table of a committed measurement; the caller checks its digest."""
        with transaction(self._engine) as connection:
            rows = connection.execute(
                select(measurement_chunks.c.data)
                .where(measurement_chunks.c.key == measurement.key)
                .order_by(measurement_chunks.c.number)
            ).all()
        shape = (measurement.regions, len(measurement.sizes))
        try:
            content = b"".join(zlib.decompress(row.data) for row in rows)
            return np.frombuffer(content, dtype="<i8").reshape(shape).astype(np.int64)
        except (zlib.error, ValueError, TypeError):
            raise MeasurementDamaged(
                "the ledger's measurements cannot be read. Nothing is drawn again. "
                "Remedy: restore the ledger from a backup."
            ) from None

    # --- budgets ----------------------------------------------------------------------------

    def account(self, population: str, *, budget: Fraction | None = None) -> Account:
        """A population's account; one that is not in the ledger yet has the given budget.

        Raises:
            PgsrError: it is not in the ledger and no budget was given.
        """
        with transaction(self._engine) as connection:
            if self._budget(connection, population) is None and budget is not None:
                return Account(population, budget)
            return self._account(connection, population)

    def accounts(self) -> tuple[Account, ...]:
        """All accounts, by name."""
        with transaction(self._engine) as connection:
            names = connection.scalars(select(populations.c.name).order_by(populations.c.name))
            return tuple(self._account(connection, name) for name in names.all())

    def charges(self, population: str) -> tuple[tuple[str, str, Fraction], ...]:
        """Product, release and ε of every charge to a population."""
        with transaction(self._engine) as connection:
            rows = connection.execute(
                select(measurements.c.product, measurements.c.release, charges.c.epsilon)
                .join(charges, charges.c.key == measurements.c.key)
                .where(charges.c.population == population)
                .order_by(measurements.c.product, measurements.c.release)
            ).all()
        return tuple((row.product, row.release, row.epsilon) for row in rows)

    # --- runs and events --------------------------------------------------------------------

    def set_state(
        self, product: str, release: str, *, state: str, stage: str, error: str | None = None
    ) -> None:
        """Note where a run stands, for status; guarantees rest on the measurements alone."""
        with transaction(self._engine) as connection:
            known = select(runs).where(runs.c.product == product, runs.c.release == release)
            facts = {
                "state": state,
                "stage": stage,
                "owner": str(this_process()),
                "updated": self._clock(),
                "error": error,
            }
            if connection.execute(known).first() is None:
                connection.execute(insert(runs).values(product=product, release=release, **facts))
            else:
                connection.execute(
                    update(runs)
                    .where(runs.c.product == product, runs.c.release == release)
                    .values(**facts)
                )

    def run_states(self) -> tuple[RunState, ...]:
        """Where every release stands."""
        with transaction(self._engine) as connection:
            rows = connection.execute(select(runs).order_by(runs.c.product, runs.c.release)).all()
        return tuple(RunState(*row) for row in rows)

    def record(self, kind: str, product: str, release: str, **facts: Any) -> None:
        """Append an event; facts hold digests and public numbers only."""
        with transaction(self._engine) as connection:
            self._event(connection, kind, product, release, **facts)

    def has_event(self, kind: str, product: str, release: str, **facts: Any) -> bool:
        """Whether an event of a release says all of these facts."""
        return any(
            known == kind and facts.items() <= said.items()
            for known, said in self.events(product, release)
        )

    def events(self, product: str, release: str) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        """Kinds and facts of a release's events, oldest first."""
        with transaction(self._engine) as connection:
            rows = connection.execute(
                select(events.c.kind, events.c.facts)
                .where(events.c.product == product, events.c.release == release)
                .order_by(events.c.sequence)
            ).all()
        return tuple((row.kind, row.facts) for row in rows)

    # --- inside a transaction ---------------------------------------------------------------

    def _introduce(self, connection: Connection, request: MeasurementRequest) -> None:
        """Enter a new population with the configured budget; a known one keeps its own."""
        if self._budget(connection, request.population) is None:
            connection.execute(
                insert(populations).values(name=request.population, budget=request.budget)
            )
            self._event(
                connection,
                "population",
                request.product,
                request.release,
                population=request.population,
                budget=str(request.budget),
            )

    def _account(
        self, connection: Connection, population: str, *, besides: str | None = None
    ) -> Account:
        budget = self._budget(connection, population)
        if budget is None:
            raise PgsrError(
                f"the ledger has no population {population}. Remedy: see pgsr budget for names."
            )
        spent = connection.scalars(
            select(charges.c.epsilon).where(charges.c.population == population)
        )
        # A reservation whose lease ended no longer holds budget; its commit checks again.
        open_reservations = select(measurements.c.epsilon).where(
            measurements.c.population == population,
            measurements.c.digest.is_(None),
            measurements.c.lease_expires > self._clock(),
            measurements.c.key != (besides or ""),
        )
        reserved = connection.scalars(open_reservations)
        return Account(population, budget, total(spent), total(reserved))

    @staticmethod
    def _budget(connection: Connection, population: str) -> Fraction | None:
        return connection.scalar(
            select(populations.c.budget).where(populations.c.name == population)
        )

    @staticmethod
    def _of_release(connection: Connection, product: str, release: str) -> Row[Any] | None:
        return connection.execute(
            select(measurements).where(
                measurements.c.product == product, measurements.c.release == release
            )
        ).first()

    def _refuse_live(self, held: Row[Any]) -> None:
        owner = Owner.parse(held.owner)
        live = held.lease_expires > self._clock()
        if live and not (owner is not None and owner.is_surely_gone()):
            raise ReservedElsewhere(
                f"{held.product}/{held.release} is being measured by another process. "
                "Remedy: wait for it; if its machine died, try again when its lease has ended "
                f"(at most {LEASE_SECONDS / 60:.0f} minutes)."
            )

    @staticmethod
    def _require_ours(connection: Connection, reservation: Reservation) -> None:
        ours = connection.execute(
            select(measurements.c.key).where(
                measurements.c.key == reservation.request.key,
                measurements.c.owner == str(reservation.owner),
                measurements.c.digest.is_(None),
            )
        ).first()
        if ours is None:
            raise ReservationLost(
                "another process took this release over; this draw was thrown away unseen and "
                "nothing was charged for it. Remedy: follow the other run with pgsr status."
            )

    def _event(
        self, connection: Connection, kind: str, product: str, release: str, **facts: Any
    ) -> None:
        at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        connection.execute(
            insert(events).values(
                at=at, actor=actor(), kind=kind, product=product, release=release, facts=facts
            )
        )


def _measurement(row: Row[Any]) -> Measurement:
    return Measurement(
        key=row.key,
        digest=row.digest,
        regions=row.regions,
        sizes=range(row.first_size, row.last_size + 1),
        groups=row.groups,
        sampler=row.sampler,
        simulation=row.simulation,
        epsilon=row.epsilon,
        descriptor=row.descriptor,
    )


def _chunks(values: Int) -> Iterator[bytes]:
    content = np.ascontiguousarray(values, dtype="<i8").ravel().view(np.uint8).data
    for start in range(0, len(content), CHUNK_BYTES):
        yield zlib.compress(content[start : start + CHUNK_BYTES], level=1)
