"""Ingest: person rows become the true number of groups of each size in each region.

Left of the barrier: reads the persons, writes `true_sizes` to the confidential store.
"""

from __future__ import annotations

from tasks import operator
from tasks.boundary import stage
from tasks.ingestion.persons import ingest_persons
from tasks.observations import note_rows
from tasks.run import RunRef
from tasks.stages.prepare import measurement_request, public_units
from tasks.storage.tables import TableRef

STAGE = "ingest"


@stage(STAGE, retry=False)
def ingest(ref: RunRef) -> TableRef:
    """Count groups by size and region; a table of the same data and plan is used as it is."""
    run = ref.open()
    configuration = run.plan.configuration
    terminal = operator.terminal()
    source = run.plan.source_files()
    units = public_units(run)
    key = measurement_request(run).key
    readable = source.readable + (units.readable if units else ())
    with run.confidential(readable=readable) as (connection, store):
        done = store.finished(STAGE, inputs=key)
        if done is not None:
            terminal.stage_finished(STAGE, "already done")
            return done
        true = ingest_persons(
            connection,
            source,
            tree=run.tree,
            units=units,
            sizes=configuration.sizes,
            progress=lambda _part, rows: terminal.stage_advanced(STAGE, rows, None, "rows"),
        )
        table = store.write(
            STAGE,
            "true_sizes",
            true.counts,
            sizes=run.plan.sizes,
            inputs=key,
            certificate={"groups": true.groups},
        )
    note_rows(ref, true.rows)
    terminal.stage_finished(STAGE, f"{true.rows:,} rows, {true.groups:,} groups")
    return table
