"""Where each run stands, and whose it is; guarantees rest on the measurements alone."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from tasks.ledger.events import Writer
from tasks.ledger.owner import Owner, this_process
from tasks.ledger.schema import runs

RUNNING = "running"
FAILED = "failed"
DEAD = "dead"
# A run of another machine that has not been heard of for this long may be tried again: if it
# lives after all, its reservation and its locks refuse the newcomer.
SILENCE_SECONDS = 900.0


@dataclass(frozen=True)
class RunState:
    """Where a release stands.

    Attributes:
        state: running, failed or published, as its process noted it.
        stage: which it was in.
        owner: the process, as `Owner` writes it.
        updated: when it noted this, in seconds since 1970.
        error: what may be said of what stopped it; earlier versions noted any class, so that
            whoever shows it asks tasks/outside.py.
    """

    product: str
    release: str
    state: str
    stage: str
    owner: str
    updated: float
    error: str | None

    @property
    def process(self) -> Owner | None:
        """Who wrote this; None if it cannot be told."""
        return Owner.parse(self.owner)

    @property
    def shown(self) -> str:
        """The state, with a run whose process is gone told apart from one that goes on."""
        gone = self.process is not None and self.process.is_surely_gone()
        return DEAD if self.state == RUNNING and gone else self.state

    def may_be_taken_over(self, *, now: float) -> bool:
        """Whether nobody works on the release, as far as can be told."""
        if self.shown != RUNNING:
            return True
        here = self.process is not None and self.process.is_here()
        # A note from the future was written by a wrong clock, and says nothing about now.
        return not here and abs(now - self.updated) > SILENCE_SECONDS


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
