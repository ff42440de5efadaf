"""Exactly once: charge once, draw once, never redraw.

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

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, delete, insert, select, update

from pgsr_core.canonical import json_digest
from pgsr_core.errors import PgsrError, Refused, Unavailable
from tasks.ledger.accounts import account_of, introduce
from tasks.ledger.bookkeeping import MEASURED
from tasks.ledger.events import Writer
from tasks.ledger.leases import LEASE_SECONDS, lease_holds
from tasks.ledger.owner import Owner, this_process
from tasks.ledger.reposts import reposted_key
from tasks.ledger.schema import charges, measurement_chunks, measurements

CHUNK_BYTES = 4 << 20
SHOWN_CHARACTERS = 12
RESERVED = "reserved"
GIVEN_BACK = "given-back"
Int = NDArray[np.int64]
_NAMES_AND_SOURCE = frozenset({"product", "release", "source"})


class ReleaseHasOtherMeasurements(PgsrError):
    """A release of this name was measured under another description; it is not drawn again."""

    depends_on_data = True

    def __init__(
        self, *, product: str, release: str, differs: Mapping[str, tuple[Any, Any]]
    ) -> None:
        self.differs = tuple(differs)
        said = ", ".join(
            f"{part} ({_short(then)} then, {_short(now)} now)"
            for part, (then, now) in differs.items()
        )
        super().__init__(
            f"{product}/{release} was already measured, and this run differs in "
            f"{said or 'its description'}. Its noise is never drawn again, and other data are "
            "another release. Remedy: give the new one a name of its own (replaces: says which "
            "one it corrects; pgsr withdraw marks the old one), or restore what was changed. "
            "Another computation on the same measurements: pgsr repost."
        )


class ReservedElsewhere(Unavailable):
    """Another process is drawing this release's noise at the moment."""


class ReservationLost(Refused):
    """Another process took the reservation over; this draw was thrown away unseen."""


class MeasurementDamaged(Refused):
    """The stored measurements do not match their digest."""


@dataclass(frozen=True)
class MeasurementRequest:
    """What is to be measured: the digest of what decides it is the measurement key.

    Attributes:
        epsilon: what is charged; zero for a simulation, which is not private at any ε.
        descriptor: what is measured, and with which noise; the ledger keeps it.
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
    """A committed draw.

    Attributes:
        release: the one that it was drawn and charged for; another may have been reposted from it.
    """

    key: str
    release: str
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
            self.require_description(request.descriptor, request.product, request.release)
            return
        held, asked = self.descriptor, request.descriptor
        differs = {
            part: (held.get(part), asked.get(part))
            for part in sorted(held.keys() | asked.keys())
            if held.get(part) != asked.get(part)
        }
        raise ReleaseHasOtherMeasurements(
            product=request.product, release=request.release, differs=differs
        )

    def require_description(self, said: Mapping[str, Any], product: str, release: str) -> None:
        """Refuse a plan that says anything else of this measurement than the ledger does.

        The names and the source are not compared: a reposted release has another name, and the
        data may be gone by now. What an earlier version did not keep cannot differ.

        Raises:
            ReleaseHasOtherMeasurements: naming what differs.
        """
        differs = {
            part: (held, said.get(part))
            for part, held in self.descriptor.items()
            if part not in _NAMES_AND_SOURCE and held != said.get(part)
        }
        if differs:
            raise ReleaseHasOtherMeasurements(product=product, release=release, differs=differs)


@dataclass(frozen=True)
class Reservation:
    """The right to draw, until the lease ends or another takes it over."""

    request: MeasurementRequest
    owner: Owner


@dataclass(frozen=True)
class Drawn:
    """A draw that is to become the only one: the noisy table and what is said of it."""

    values: Int
    digest: str
    sizes: range
    groups: int
    sampler: str
    simulation: bool


def reserve(writer: Writer, request: MeasurementRequest) -> Reservation | Measurement:
    """Find the committed measurement, or reserve the right and the budget to draw it."""
    connection = writer.connection
    introduce(writer, request.population, request.budget, request.product, request.release)
    held = _of_release(connection, request.product, request.release)
    if held is not None and held.digest is not None:
        measurement = _measurement(held)
        measurement.require_same(request)
        return measurement
    if held is not None:
        _refuse_live(held, now=writer.now)
        connection.execute(delete(measurements).where(measurements.c.key == held.key))
    account_of(connection, request.population, now=writer.now).require(request.epsilon)
    owner = this_process()
    connection.execute(
        insert(measurements).values(
            key=request.key,
            population=request.population,
            product=request.product,
            release=request.release,
            epsilon=request.epsilon,
            descriptor=dict(request.descriptor),
            owner=str(owner),
            lease_expires=writer.now + LEASE_SECONDS,
        )
    )
    writer.append(RESERVED, request.product, request.release, key=request.key)
    return Reservation(request, owner)


def renew(writer: Writer, reservation: Reservation) -> None:
    """Extend the lease."""
    _require_ours(writer.connection, reservation)
    writer.connection.execute(
        update(measurements)
        .where(measurements.c.key == reservation.request.key)
        .values(lease_expires=writer.now + LEASE_SECONDS)
    )


def give_back(writer: Writer, reservation: Reservation) -> None:
    """End a reservation, if it is still ours and was not committed."""
    request = reservation.request
    ended = writer.connection.execute(
        delete(measurements).where(
            measurements.c.key == request.key,
            measurements.c.owner == str(reservation.owner),
            measurements.c.digest.is_(None),
        )
    )
    if ended.rowcount:
        writer.append(GIVEN_BACK, request.product, request.release, key=request.key)


def commit(writer: Writer, reservation: Reservation, drawn: Drawn) -> Measurement:
    """Make the draw the only one: table, digest, charge and event."""
    request = reservation.request
    connection = writer.connection
    _require_ours(connection, reservation)
    account = account_of(connection, request.population, now=writer.now, besides=request.key)
    account.require(request.epsilon)
    connection.execute(
        update(measurements)
        .where(measurements.c.key == request.key)
        .values(
            owner=None,
            lease_expires=None,
            digest=drawn.digest,
            regions=drawn.values.shape[0],
            first_size=drawn.sizes.start,
            last_size=drawn.sizes.stop - 1,
            groups=drawn.groups,
            sampler=drawn.sampler,
            simulation=drawn.simulation,
        )
    )
    for number, data in enumerate(_chunks(drawn.values)):
        connection.execute(
            insert(measurement_chunks).values(key=request.key, number=number, data=data)
        )
    connection.execute(
        insert(charges).values(
            key=request.key, population=request.population, epsilon=request.epsilon
        )
    )
    writer.append(
        MEASURED,
        request.product,
        request.release,
        key=request.key,
        digest=drawn.digest,
        epsilon=str(request.epsilon),
        population=request.population,
        sampler=drawn.sampler,
        groups=drawn.groups,
        simulation=drawn.simulation,
        descriptor=json_digest(request.descriptor),
    )
    committed = find(connection, request.product, request.release)
    if committed is None:
        raise ReservationLost("the committed measurement cannot be read back. Remedy: resume.")
    return committed


def find(connection: Connection, product: str, release: str) -> Measurement | None:
    """The committed measurement of a release."""
    row = _of_release(connection, product, release)
    return _measurement(row) if row is not None and row.digest is not None else None


def read_values(connection: Connection, measurement: Measurement) -> Int:
    """The noisy table of a committed measurement; the caller checks its digest.

    Raises:
        MeasurementDamaged: it cannot be read.
    """
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


def _of_release(connection: Connection, product: str, release: str) -> Row[Any] | None:
    """The measurement of a release, its own or the one that it was reposted from."""
    key = reposted_key(connection, product, release)
    mine = (
        (measurements.c.product == product, measurements.c.release == release)
        if key is None
        else (measurements.c.key == key,)
    )
    return connection.execute(select(measurements).where(*mine)).first()


def require_no_reservation(
    connection: Connection, product: str, release: str, *, now: float
) -> None:
    """See that nobody is drawing a release's noise, or just about to.

    Raises:
        ReservedElsewhere: a live process holds the reservation.
    """
    held = _of_release(connection, product, release)
    if held is not None and held.digest is None:
        _refuse_live(held, now=now)


def _refuse_live(held: Row[Any], *, now: float) -> None:
    if lease_holds(held.owner, held.lease_expires, now=now):
        raise ReservedElsewhere(
            f"{held.product}/{held.release} is being measured by another process. "
            "Remedy: wait for it; if its machine died, try again when its lease has ended "
            f"(at most {LEASE_SECONDS / 60:.0f} minutes)."
        )


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


def _measurement(row: Row[Any]) -> Measurement:
    return Measurement(
        key=row.key,
        release=row.release,
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


def _short(value: Any) -> str:
    """A part of a descriptor in a few characters; of a digest, its beginning."""
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
