"""Margins: how far released counts may be from the truth, cell by cell and by level and size.

Right of the barrier: reads the safe store, writes the safe store; deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgsr_core.canonical import json_digest
from pgsr_core.margins import MARGINS, MARGINS_BY_LEVEL
from pgsr_core.margins.release import margins_of
from tasks import operator
from tasks.boundary import stage
from tasks.run import Run, RunRef
from tasks.storage.tables import MatrixStore, TableRef

STAGE = "margins"


@dataclass(frozen=True)
class MarginTables:
    """The two tables of margins: of every cell, and the typical ones of every level."""

    cells: TableRef
    levels: TableRef

    @property
    def digests(self) -> dict[str, str]:
        """Table → digest."""
        return {ref.table: ref.digest for ref in (self.cells, self.levels)}

    def check(self, store: MatrixStore, *, sizes: range) -> None:
        """Read both tables.

        Raises:
            TableTampered: one of them is not what this stage wrote.
        """
        for ref in (self.cells, self.levels):
            store.read(ref, sizes=sizes)


@stage(STAGE, retry=True)
def margins(ref: RunRef, measurements: TableRef, table: TableRef) -> MarginTables | None:
    """Compute the margins of the table to be published; None where none are asked for."""
    run = ref.open_measured()
    repetitions = run.plan.configuration.margins.repetitions
    if repetitions == 0:
        operator.terminal().stage_finished(STAGE, "none are asked for")
        return None
    with run.safe() as store:
        made = _compute(run, store, measurements, table)
    operator.terminal().stage_finished(STAGE, f"{repetitions} simulations")
    return made


def _compute(run: Run, store: MatrixStore, measurements: TableRef, table: TableRef) -> MarginTables:
    plan = run.plan
    repetitions = plan.configuration.margins.repetitions
    inputs = json_digest(
        {
            "measurements": measurements.digest,
            "counts": table.digest,
            "repetitions": repetitions,
            "code": plan.code_version,
        }
    )
    done = _finished(run, store, inputs)
    if done is not None:
        return done
    result = margins_of(
        plan.mechanism,
        run.facts(),
        store.read(measurements, sizes=plan.measured_sizes),
        store.read(table, sizes=plan.sizes),
        repetitions=repetitions,
        progress=lambda n, of: operator.terminal().stage_advanced(STAGE, n, of, "simulations"),
    )
    written = []
    for name, values in ((MARGINS, result.bounds), (MARGINS_BY_LEVEL, result.half_widths)):
        facts = {"repetitions": repetitions}
        made = store.write(name, name, values, sizes=plan.sizes, inputs=inputs, certificate=facts)
        said = {"stage": name, "inputs": inputs, "digest": made.digest}
        run.ledger.record("computed", run.ref.product, run.ref.release, **said)
        written.append(made)
    return MarginTables(*written)


def _finished(run: Run, store: MatrixStore, inputs: str) -> MarginTables | None:
    """Both tables of an earlier run, if the ledger, too, says that this stage made them."""
    found = []
    for name in (MARGINS, MARGINS_BY_LEVEL):
        done = store.finished(name, inputs=inputs)
        if done is None or not run.ledger.has_event(
            "computed", run.ref.product, run.ref.release, inputs=inputs, digest=done.digest
        ):
            return None
        found.append(done)
    return MarginTables(*found)
