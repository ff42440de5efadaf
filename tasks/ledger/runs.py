"""Where each run stands, for status; guarantees rest on the measurements alone."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from tasks.ledger.events import Writer
from tasks.ledger.owner import this_process
from tasks.ledger.schema import runs


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


def set_state(
    writer: Writer, product: str, release: str, *, state: str, stage: str, error: str | None
) -> None:
    """Note where a run stands."""
    this_run = (runs.c.product == product, runs.c.release == release)
    facts = {
        "state": state,
        "stage": stage,
        "owner": str(this_process()),
        "updated": writer.now,
        "error": error,
    }
    changed = writer.connection.execute(update(runs).where(*this_run).values(**facts))
    if not changed.rowcount:
        writer.connection.execute(insert(runs).values(product=product, release=release, **facts))


def run_states(connection: Connection) -> tuple[RunState, ...]:
    """Where every release stands."""
    rows = connection.execute(select(runs).order_by(runs.c.product, runs.c.release)).all()
    return tuple(RunState(*row) for row in rows)
