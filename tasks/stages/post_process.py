"""Post-processing: each step of the mechanism (local isotonic fix, CPWL) is a stage of its own.

Right of the barrier: reads the safe store, writes the safe store; deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from pgsr_core.canonical import json_digest
from pgsr_core.errors import Refused
from tasks import operator
from tasks.boundary import stage
from tasks.run import Run, RunRef
from tasks.storage.tables import MatrixStore, TableRef

if TYPE_CHECKING:
    from pgsr_core.postprocessing.protocol import Step

PUBLISHED = "group_sizes"


class CertificateFailed(Refused):
    """A solver's result did not pass its own proof; nothing is published."""


@cache
def post_process(step: str) -> Callable[[RunRef, TableRef], TableRef]:
    """The stage of one step of a mechanism, by the step's name."""

    @stage(step, retry=True)
    def run_step(ref: RunRef, source: TableRef) -> TableRef:
        run = ref.open_measured()
        position = [known.name for known in run.plan.mechanism.steps].index(step)
        with run.safe() as store:
            table = _compute(run, store, run.plan.mechanism.steps[position], position, source)
        operator.terminal().stage_finished(step, f"table {table.table}")
        return table

    return run_step


def _compute(run: Run, store: MatrixStore, step: Step, position: int, source: TableRef) -> TableRef:
    plan = run.plan
    inputs = json_digest({"source": source.digest, "step": repr(step), "code": plan.code_version})
    done = store.finished(step.name, inputs=inputs)
    if done is not None and run.ledger.has_event(
        "computed", run.ref.product, run.ref.release, inputs=inputs, digest=done.digest
    ):
        return done
    last = position == len(plan.mechanism.steps) - 1
    result = step(store.read(source, sizes=plan.measured_sizes), run.facts())
    failed = [name for name, fact in result.certificate.items() if fact is False]
    if failed:
        raise CertificateFailed(
            f"step {step.name} could not prove its result ({', '.join(failed)}); nothing is "
            "published. Remedy: this is a defect of the software; keep the run and report it."
        )
    table = store.write(
        step.name,
        PUBLISHED if last else step.name,
        result.values,
        sizes=plan.sizes if last else plan.measured_sizes,
        inputs=inputs,
        certificate=result.certificate,
    )
    # A table is used again only if the ledger, too, says that this stage made it.
    run.ledger.record(
        "computed",
        run.ref.product,
        run.ref.release,
        stage=step.name,
        inputs=inputs,
        digest=table.digest,
    )
    return table
