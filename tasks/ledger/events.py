"""The event log inside a transaction: reading it, and appending to its chain."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from pgsr_core.canonical import canonical_json
from pgsr_core.chain import Event, Head, append
from tasks.ledger.owner import actor
from tasks.ledger.schema import HEAD_ROW, events, head


class Writer:
    """An open write transaction whose events go on from the chain's head.

    Attributes:
        connection: the transaction.
        now: the clock's time, taken when the lock was.
        head: the last event, those of this transaction included.
    """

    def __init__(self, connection: Connection, *, now: float, head: Head) -> None:
        self.connection = connection
        self.now = now
        self.head = head

    def append(self, kind: str, product: str | None, release: str | None, **facts: Any) -> Event:
        """Record an event together with whatever else the transaction does."""
        text = canonical_json(facts).decode()
        event = append(
            self.head,
            at=datetime.fromtimestamp(self.now, UTC).isoformat(timespec="milliseconds"),
            actor=actor(),
            kind=kind,
            product=product,
            release=release,
            facts=json.loads(text),
        )
        self.connection.execute(insert(events).values({**vars(event), "facts": text}))
        self.connection.execute(
            update(head)
            .where(head.c.id == HEAD_ROW)
            .values(sequence=event.sequence, hash=event.hash)
        )
        self.head = event.head
        return event


def read_head(connection: Connection, *, lock: bool = False) -> Head | None:
    """The chain's head as the ledger notes it; locked, nobody else writes until the end."""
    query = select(head.c.sequence, head.c.hash).where(head.c.id == HEAD_ROW)
    row = connection.execute(query.with_for_update() if lock else query).first()
    return None if row is None else Head(row.sequence, row.hash)


def hash_at(connection: Connection, sequence: int) -> str | None:
    """The hash of one event; None if there is none of this number."""
    return connection.scalar(select(events.c.hash).where(events.c.sequence == sequence))


def read_events(
    connection: Connection,
    *,
    after: int = 0,
    product: str | None = None,
    release: str | None = None,
) -> tuple[Event, ...]:
    """Events in their order, of all or of one product or release."""
    query = select(events).where(events.c.sequence > after).order_by(events.c.sequence)
    if product is not None:
        query = query.where(events.c.product == product)
    if release is not None:
        query = query.where(events.c.release == release)
    return tuple(_event(row) for row in connection.execute(query))


def _event(row: Row[Any]) -> Event:
    return Event(
        sequence=row.sequence,
        at=row.at,
        actor=row.actor,
        kind=row.kind,
        product=row.product,
        release=row.release,
        facts=_facts(row.facts),
        previous=row.previous,
        hash=row.hash,
    )


def _facts(text: Any) -> Mapping[str, Any]:
    """Parse the facts; what cannot be parsed stays visible, and matches no hash."""
    try:
        parsed = json.loads(text)
    except (TypeError, ValueError):
        return {"unreadable": str(text)}
    return parsed if isinstance(parsed, dict) else {"unreadable": parsed}
