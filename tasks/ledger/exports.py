"""A ledger's events in a file, each with the rows that it recorded: what a backup may lack.

One JSON document a line: a heading, then one for each event. The chain's hashes vouch for the
events, and the events for the rows, so the file needs no signature of its own.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Base64Bytes, BaseModel, ConfigDict, ValidationError
from sqlalchemy import Connection, select

from pgsr_core.canonical import canonical_json
from pgsr_core.chain import Event
from pgsr_core.errors import PgsrError
from tasks.ledger.backup import appearing
from tasks.ledger.bookkeeping import MEASURED
from tasks.ledger.database import connect, snapshot
from tasks.ledger.events import read_events
from tasks.ledger.inspection import NoLedger
from tasks.ledger.schema import measurement_chunks, measurements, runs
from tasks.ledger.versions import ledger_exists, require_current, version_of

FORMAT = "pgsr-ledger-events-1"
_OF_RESERVATIONS = {"owner", "lease_expires"}


class EventsUnreadable(PgsrError):
    """A file of events is not what `pgsr ledger export` wrote; nothing was changed."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path.name} is not what pgsr ledger export wrote, or cannot be read. "
            "Remedy: name a file that it wrote, whole and unchanged."
        )


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


Line = TypeVar("Line", bound=_Line)


class RunRow(_Line):
    """Where a release stood; no event says that."""

    product: str
    release: str
    state: str
    stage: str
    owner: str
    updated: float
    error: str | None


class Heading(_Line):
    """The first line.

    Attributes:
        after: the number of the event before the first one here.
    """

    format: Literal["pgsr-ledger-events-1"]
    after: int
    runs: tuple[RunRow, ...]


class MeasuredRows(_Line):
    """What the ledger keeps of a measurement: its description, and the noisy table in chunks."""

    key: str
    population: str
    product: str
    release: str
    epsilon: Fraction
    descriptor: dict[str, Any]
    digest: str
    regions: int
    first_size: int
    last_size: int
    groups: int
    sampler: str
    simulation: bool
    chunks: tuple[Base64Bytes, ...]


class Entry(_Line):
    """An event, and the rows that it recorded besides itself."""

    event: Event
    measured: MeasuredRows | None = None


def export_events(url: str, to: Path, *, after: int = 0) -> int:
    """Write the events after a number to a new file, closed to others; say how many.

    A ledger that is damaged is written as it is: whoever restores from the file verifies it.

    Raises:
        NoLedger: there is none.
        BackupRefused: something stands in the file's place.
        LedgerUnavailable: the ledger cannot be read, or the file cannot be written.
    """
    if not ledger_exists(url):
        raise NoLedger
    with appearing(to) as draft, snapshot(connect(url)) as connection, draft.open("wb") as file:
        require_current(version_of(connection))
        events = read_events(connection, after=after)
        for line in _documents(connection, events, after):
            file.write(canonical_json(line) + b"\n")
    return len(events)


def read_heading(path: Path) -> Heading:
    """The first line of a file of events.

    Raises:
        EventsUnreadable: it is something else.
    """
    return _parsed(Heading, path, next(_lines(path), b""))


def read_entries(path: Path) -> Iterator[Entry]:
    """The events of a file, one after the other.

    Raises:
        EventsUnreadable: on the way, where it is something else.
    """
    lines = _lines(path)
    next(lines, None)
    for line in lines:
        yield _parsed(Entry, path, line)


def _documents(
    connection: Connection, events: Sequence[Event], after: int
) -> Iterator[dict[str, Any]]:
    states = [dict(row) for row in connection.execute(select(runs)).mappings()]
    yield {"format": FORMAT, "after": after, "runs": states}
    for event in events:
        measured = _measured_rows(connection, event) if event.kind == MEASURED else None
        yield {"event": vars(event), "measured": measured}


def _measured_rows(connection: Connection, event: Event) -> dict[str, Any] | None:
    key = str(event.facts.get("key"))
    row = connection.execute(select(measurements).where(measurements.c.key == key)).mappings()
    chunks = connection.scalars(
        select(measurement_chunks.c.data)
        .where(measurement_chunks.c.key == key)
        .order_by(measurement_chunks.c.number)
    )
    kept = {
        name: str(value) if isinstance(value, Fraction) else value
        for found in row
        for name, value in found.items()
        if name not in _OF_RESERVATIONS
    }
    if not kept:
        return None
    return {**kept, "chunks": [base64.b64encode(data).decode() for data in chunks]}


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except OSError:
        raise EventsUnreadable(path) from None


def _parsed(kind: type[Line], path: Path, line: bytes) -> Line:
    try:
        return kind.model_validate_json(line)
    except ValidationError:
        raise EventsUnreadable(path) from None
