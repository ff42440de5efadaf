"""Cumulative transform: groups of size at least k, counted from the top.

Left of the barrier: reads and writes the confidential store. A mechanism that measures the
counts themselves passes `true_sizes` on as it is.
"""

from __future__ import annotations

from pgsr_core.postprocessing.protocol import Query
from pgsr_core.postprocessing.steps import cumulative_from_counts
from tasks import operator
from tasks.boundary import stage
from tasks.run import RunRef
from tasks.storage.tables import TableRef

STAGE = "cumulative"


@stage(STAGE, retry=False)
def cumulative(ref: RunRef, sizes: TableRef) -> TableRef:
    """Write `true_cumulative`, or pass the counts on where they are what is measured."""
    run = ref.open()
    plan = run.plan
    if plan.mechanism.query is Query.COUNTS:
        operator.terminal().stage_finished(STAGE, "not needed: counts are measured")
        return sizes
    with run.confidential() as (_, store):
        done = store.finished(STAGE, inputs=sizes.digest)
        if done is None:
            counts = store.read(sizes, sizes=plan.sizes)
            done = store.write(
                STAGE,
                "true_cumulative",
                cumulative_from_counts(counts, largest_size=plan.configuration.sizes.max),
                sizes=plan.measured_sizes,
                inputs=sizes.digest,
            )
    operator.terminal().stage_finished(STAGE, "counted from the top")
    return done
