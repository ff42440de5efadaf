"""Putting a backup back: never an older ledger than was seen, and nothing that does not chain.

A backup lacks whatever was recorded since. The events that are missing are supplied from files
that `pgsr ledger export` wrote; each must follow the one before it by its hash, and the last ones
must be those that the witness saw. Until then nothing is put in place.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from sqlalchemy import Connection, Engine, delete, insert, select, update

from pgsr_core.canonical import canonical_json, table_digest
from pgsr_core.chain import Event, Head, verify_chain
from pgsr_core.errors import PgsrError, Refused
from tasks.ledger.accounts import budget_of
from tasks.ledger.backup import appearing, copy_database
from tasks.ledger.bookkeeping import MEASURED, POPULATION, RAISED, contradictions
from tasks.ledger.database import connect, file_of, transaction
from tasks.ledger.events import hash_at, read_events, read_head
from tasks.ledger.exports import (
    Entry,
    EventsUnreadable,
    MeasuredRows,
    RunRow,
    read_entries,
    read_heading,
)
from tasks.ledger.history import LedgerEdited, LedgerForked, require_witnessed
from tasks.ledger.inspection import NoLedger
from tasks.ledger.ledger import Ledger
from tasks.ledger.measurements import MeasurementDamaged, find, read_values
from tasks.ledger.schema import (
    HEAD_ROW,
    SCHEMA_VERSION,
    charges,
    events,
    head,
    measurement_chunks,
    measurements,
    populations,
    runs,
)
from tasks.ledger.versions import ledger_exists, version_of
from tasks.ledger.witness import Witness, Witnessed
from tasks.storage.zones import make_private_folder

RESTORED = "restored"
_TABLE = "measurements"


class RestoreRefused(PgsrError):
    """Nothing was put in place, and nothing was overwritten."""


class EventsMissing(Refused):
    """Supplied events do not follow the ledger's last one; nothing was changed."""

    def __init__(self, *, first: int, last: int) -> None:
        self.first = first
        self.last = last
        super().__init__(
            f"events {first} to {last} are neither in the backup nor in what was supplied; nothing "
            "was changed. Remedy: name the file that holds them with --events, too."
        )


@dataclass(frozen=True)
class Restored:
    """What came of it.

    Attributes:
        head: the last event of before the restoration.
        supplied: how many events the backup lacked.
        witnessed: whether there was a witness to compare with.
    """

    head: Head
    supplied: int
    witnessed: bool


def restore(url: str, witness: Path, *, backup: Path | None, supplied: Sequence[Path]) -> Restored:
    """Put a backup in place, or complete the ledger that is, with the events that are missing.

    Args:
        url: where the ledger belongs.
        witness: what remembers how far it had come.
        backup: a copy of a SQLite ledger; None if a copy is in place already.
        supplied: files of events, in any order; events that are known already do no harm.

    Raises:
        RestoreRefused: there is no such backup, or something stands in the ledger's place.
        EventsUnreadable, EventsMissing: what was supplied is no help.
        LedgerRolledBack: events that the witness saw are still missing.
        LedgerForked, LedgerEdited, MeasurementDamaged: it is another ledger, or not sound.
    """
    seen = Witness(witness).read()
    if backup is not None:
        restored = _put_in_place(backup, _free_place(url, backup), seen, supplied)
    elif ledger_exists(url):
        restored = _complete(connect(url), seen, supplied)
    else:
        raise NoLedger
    if backup is not None or restored.supplied:
        facts = {"supplied": restored.supplied, "witnessed": restored.witnessed}
        Ledger(url, witness=witness).record(RESTORED, None, None, **facts)
    return restored


def _put_in_place(
    backup: Path, place: Path, seen: Witnessed | None, supplied: Sequence[Path]
) -> Restored:
    make_private_folder(place.parent)
    with appearing(place) as draft:
        try:
            copy_database(backup, draft)
        except sqlite3.DatabaseError:
            raise RestoreRefused(
                f"{backup} is no copy of a ledger. Remedy: name one that pgsr ledger backup made."
            ) from None
        return _complete(connect(f"sqlite:///{draft}"), seen, supplied)


def _free_place(url: str, backup: Path) -> Path:
    place = file_of(url)
    if place is None:
        raise RestoreRefused(
            "the ledger is on a PostgreSQL server. Remedy: pg_restore, then pgsr ledger restore "
            "with --events and without a backup."
        )
    if not backup.is_file():
        raise RestoreRefused(f"there is no file {backup}. Remedy: name a copy of the ledger.")
    # A log of the ledger that stood there would be taken for one of the copy.
    stands = [place.with_name(place.name + suffix) for suffix in ("", "-wal", "-shm")]
    for file in stands:
        if file.exists():
            raise RestoreRefused(
                f"{file} is there already and is not overwritten. Remedy: stop everything that "
                "uses the ledger and move it away, with its -wal and -shm files."
            )
    return place


def _complete(engine: Engine, seen: Witnessed | None, supplied: Sequence[Path]) -> Restored:
    """Add the missing events to a copy and verify all of it; one transaction or nothing."""
    with transaction(engine) as connection:
        _require_schema(version_of(connection))
        before = read_head(connection, lock=True)
        if before is None:
            raise LedgerEdited(["the row of the chain's head is missing"])
        last = before
        for path in sorted(supplied, key=lambda path: read_heading(path).after):
            last = _supply(connection, path, last)
        connection.execute(
            update(head).where(head.c.id == HEAD_ROW).values(sequence=last.sequence, hash=last.hash)
        )
        _verify(connection, last, seen)
    return Restored(last, last.sequence - before.sequence, seen is not None)


def _require_schema(found: str) -> None:
    if found != SCHEMA_VERSION:
        raise RestoreRefused(
            f"the copy has schema {found}, and this version needs {SCHEMA_VERSION}. A migration "
            "chains events anew, so they would not be those that the witness saw. Remedy: name a "
            "backup made since the migration, or use the version of pgsr that made this one."
        )


def _verify(connection: Connection, last: Head, seen: Witnessed | None) -> None:
    told = read_events(connection)
    wrong = [*verify_chain(told, head=last).breaks, *contradictions(connection, told)]
    if wrong:
        raise LedgerEdited(wrong)
    if seen is not None:
        require_witnessed(connection, last, seen)


def _supply(connection: Connection, path: Path, last: Head) -> Head:
    """Append what a file has beyond the last event; returns the new last one."""
    for entry in read_entries(path):
        event = entry.event
        if event.sequence <= last.sequence:
            if hash_at(connection, event.sequence) != event.hash:
                raise LedgerForked(event.sequence)
            continue
        if event.sequence != last.sequence + 1:
            raise EventsMissing(first=last.sequence + 1, last=event.sequence - 1)
        if event.previous != last.hash or not event.is_intact():
            raise LedgerForked(event.sequence)
        try:
            _replay(connection, entry)
        except (KeyError, ValueError, ArithmeticError):
            raise EventsUnreadable(path) from None
        last = event.head
    for state in read_heading(path).runs:
        _note_run(connection, state)
    return last


def _replay(connection: Connection, entry: Entry) -> None:
    """Enter an event and what it recorded; books that do not agree with it are found later."""
    event = entry.event
    text = canonical_json(dict(event.facts)).decode()
    connection.execute(insert(events).values({**vars(event), "facts": text}))
    if event.kind in {POPULATION, RAISED}:
        _replay_budget(connection, event)
    elif event.kind == MEASURED and entry.measured is not None:
        _replay_measurement(connection, entry.measured)


def _replay_budget(connection: Connection, event: Event) -> None:
    name, budget = str(event.facts["population"]), Fraction(str(event.facts["budget"]))
    if budget_of(connection, name) is None:
        connection.execute(insert(populations).values(name=name, budget=budget))
    else:
        this = populations.c.name == name
        connection.execute(update(populations).where(this).values(budget=budget))


def _replay_measurement(connection: Connection, rows: MeasuredRows) -> None:
    of_release = (measurements.c.product == rows.product, measurements.c.release == rows.release)
    reserved = delete(measurements).where(*of_release, measurements.c.digest.is_(None))
    connection.execute(reserved)
    row = {name: value for name, value in rows if name != "chunks"}
    connection.execute(insert(measurements).values(**row))
    for number, data in enumerate(rows.chunks):
        chunk = {"key": rows.key, "number": number, "data": data}
        connection.execute(insert(measurement_chunks).values(**chunk))
    charge = {"key": rows.key, "population": rows.population, "epsilon": rows.epsilon}
    connection.execute(insert(charges).values(**charge))
    _require_digest(connection, rows)


def _require_digest(connection: Connection, rows: MeasuredRows) -> None:
    measurement = find(connection, rows.product, rows.release)
    if measurement is None or rows.digest != table_digest(
        read_values(connection, measurement),
        table=_TABLE,
        tree_digest=str(rows.descriptor.get("regions")),
        sizes=measurement.sizes,
    ):
        raise MeasurementDamaged(
            f"the supplied measurements of {rows.product}/{rows.release} do not match their "
            "digest. Remedy: supply them from another export."
        )


def _note_run(connection: Connection, state: RunRow) -> None:
    """Note where a release stood, unless the copy knows it from a later moment."""
    this = (runs.c.product == state.product, runs.c.release == state.release)
    known = connection.scalar(select(runs.c.updated).where(*this))
    if known is None:
        connection.execute(insert(runs).values(**dict(state)))
    elif known < state.updated:
        connection.execute(update(runs).where(*this).values(**dict(state)))
