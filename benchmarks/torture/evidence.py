"""What anybody could read of a release at a moment, and whether the promises hold of it."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from sqlalchemy import Connection, select

from benchmarks.torture.driver import (
    MEASUREMENTS,
    PRODUCT,
    PUBLISHED,
    SIZES,
    Place,
    digest_of,
    released,
)
from pgsr_core.errors import PgsrError
from tasks.ledger.database import connect, snapshot
from tasks.ledger.measurements import MeasurementDamaged, find, read_values
from tasks.ledger.schema import charges, events, measurements
from tasks.publication.place import recorded_digests, verified_checksums


@dataclass(frozen=True)
class Evidence:
    """What can be read of one release, past the ledger's own checks.

    Attributes:
        charges: how often its population was charged.
        spent: how much.
        measured: how many events say that it was measured.
        drawn: digests of draws that can be read: in the ledger, the safe store, the bundle.
        in_ledger: the one in the ledger.
        published: the one that the bundle says it comes from; None if there is no bundle.
        damage: what is broken in what is public.
        leftovers: staging folders.
        kinds: of its events.
    """

    charges: int
    spent: Fraction
    measured: int
    drawn: frozenset[str]
    in_ledger: str | None
    published: str | None
    damage: tuple[str, ...]
    leftovers: int
    kinds: frozenset[str]


def look(place: Place, *, release: str, population: str) -> Evidence:
    """Read everything that there is of a release, changing nothing."""
    with snapshot(connect(place.url)) as connection:
        spent = connection.scalars(
            select(charges.c.epsilon).where(charges.c.population == population)
        ).all()
        held = connection.scalars(
            select(measurements.c.digest).where(
                measurements.c.population == population, measurements.c.digest.is_not(None)
            )
        ).all()
        told = connection.execute(select(events.c.kind, events.c.release, events.c.facts)).all()
        counts = _counts_by_the_ledger(connection, release)
    stored = _in_store(place, release)
    published, damage = _in_public(place, release, counts)
    drawn = {*held, stored, published} - {None}
    measured = [json.loads(event.facts) for event in told if event.kind == "measured"]
    return Evidence(
        charges=len(spent),
        spent=sum(spent, Fraction(0)),
        measured=sum(facts["population"] == population for facts in measured),
        drawn=frozenset(digest for digest in drawn if digest is not None),
        in_ledger=held[0] if held else None,
        published=published,
        damage=tuple(damage),
        leftovers=len(list(place.public.glob(f"*/.staging-{release}-*"))),
        kinds=frozenset(event.kind for event in told if event.release == release),
    )


def _counts_by_the_ledger(connection: Connection, release: str) -> str | None:
    """The digest of what must be published, by the ledger's own table; None where it is damaged."""
    measurement = find(connection, PRODUCT, release)
    if measurement is None:
        return None
    try:
        values = read_values(connection, measurement)
    except MeasurementDamaged:
        return None
    if digest_of(MEASUREMENTS, values) != measurement.digest:
        return None
    return digest_of(PUBLISHED, released(values))


def _in_store(place: Place, release: str) -> str | None:
    """The digest of the values that the safe store holds, whatever its records say."""
    if not place.safe_store(release).exists():
        return None
    with place.store(release, read_only=True) as store:
        record = store.record("noise")
        if record is None:
            return None
        values = store.read(record.output, sizes=SIZES)
        return digest_of(MEASUREMENTS, values)


def _in_public(place: Place, release: str, due: str | None) -> tuple[str | None, list[str]]:
    """The draw that a bundle comes from, and what is wrong with it; `due` is what it must be."""
    bundle = place.bundle(release)
    if not bundle.exists():
        return None, []
    try:
        verified_checksums(bundle)
        digests = recorded_digests(bundle)
    except (PgsrError, OSError) as error:
        return None, [f"a half-published bundle ({type(error).__name__})"]
    with (bundle / "group_sizes.csv").open() as file:
        counts = np.array([[int(cell) for cell in row] for row in csv.reader(file)])
    found = digest_of(PUBLISHED, counts)
    wrong = [] if found == digests[PUBLISHED] else ["a published table of another digest"]
    if due not in {None, found}:
        wrong.append("a published table that is not the ledger's")
    return digests[MEASUREMENTS], wrong


def violations(seen: Evidence) -> Iterator[str]:
    """What must hold at every moment, also right after a crash."""
    yield from seen.damage
    if seen.charges > 1:
        yield f"{seen.charges} charges"
    if len(seen.drawn) > 1:
        yield f"{len(seen.drawn)} draws can be read"
    if seen.drawn and not seen.charges:
        yield "a draw can be read that was not charged"
    if seen.charges and seen.in_ledger is None:
        yield "a charge without its draw"
    if seen.measured != min(1, seen.charges):
        yield f"{seen.measured} events of {seen.charges} charges"


def unfinished(seen: Evidence) -> Iterator[str]:
    """What must hold besides when a run has ended well."""
    if seen.charges != 1:
        yield f"{seen.charges} charges in the end"
    if seen.published is None or seen.published != seen.in_ledger:
        yield "what is published is not the ledger's draw"
    if seen.leftovers:
        yield f"{seen.leftovers} staging folders left"


def changed(before: Evidence, after: Evidence) -> Iterator[str]:
    """What a rerun must not change: a draw that could be read stays the only one."""
    if not before.drawn <= after.drawn:
        yield "another draw than could be read before"
    if after.charges < before.charges:
        yield "a charge disappeared"
