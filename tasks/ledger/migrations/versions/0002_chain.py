"""Chain the events, and keep JSON as canonical text, the same bytes in every database."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

from pgsr_core.canonical import canonical_json
from pgsr_core.chain import GENESIS, Event, append
from tasks.ledger.owner import actor

revision = "0002"
down_revision = "0001"

_OLD = "events_0001"


def upgrade() -> None:
    """Rewrite descriptors and events; what was recorded stays, in its order."""
    connection = op.get_bind()
    _descriptors_as_text(connection)
    op.rename_table("events", _OLD)
    events = op.create_table(
        "events",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("product", sa.String(64)),
        sa.Column("release", sa.String(64)),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    head = op.create_table(
        "head",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    chained = _chained(connection)
    last = GENESIS
    for event in chained:
        values = {**vars(event), "facts": canonical_json(event.facts).decode()}
        connection.execute(sa.insert(events).values(**values))
        last = event.head
    connection.execute(sa.insert(head).values(id=1, sequence=last.sequence, hash=last.hash))
    op.drop_table(_OLD)


def _descriptors_as_text(connection: sa.Connection) -> None:
    held = connection.execute(sa.text("SELECT key, descriptor FROM measurements")).all()
    # A new column, because tables refer to this one, which SQLite could not rebuild under them.
    op.add_column(
        "measurements", sa.Column("described", sa.Text, nullable=False, server_default="")
    )
    for row in held:
        text = canonical_json(_object(row.descriptor)).decode()
        connection.execute(
            sa.text("UPDATE measurements SET described = :text WHERE key = :key"),
            {"text": text, "key": row.key},
        )
    op.drop_column("measurements", "descriptor")
    op.execute("ALTER TABLE measurements RENAME COLUMN described TO descriptor")


def _chained(connection: sa.Connection) -> list[Event]:
    """The old events, numbered and chained, and one that says that this was done now."""
    last = GENESIS
    chained: list[Event] = []
    for row in connection.execute(sa.text(f"SELECT * FROM {_OLD} ORDER BY sequence")):  # noqa: S608
        event = append(
            last,
            at=row.at,
            actor=row.actor,
            kind=row.kind,
            product=row.product,
            release=row.release,
            facts=_object(row.facts),
        )
        chained.append(event)
        last = event.head
    migrated = append(
        last,
        at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        actor=actor(),
        kind="migrated",
        product=None,
        release=None,
        facts={"from": down_revision, "to": revision, "events": len(chained)},
    )
    return [*chained, migrated]


def _object(stored: Any) -> dict[str, Any]:
    """What a JSON column holds, whether or not the driver parsed it."""
    value = json.loads(stored) if isinstance(stored, str) else stored
    return dict(value)
