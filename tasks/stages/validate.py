"""Validate: the gates. Reads public-safe tables and public facts only."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from expectations.gates import run_gates
from expectations.promises import Promises
from expectations.report import GateReport
from pgsr_core.errors import Refused
from tasks import operator
from tasks.boundary import stage
from tasks.run import RunRef
from tasks.stages.margins import MarginTables
from tasks.storage.tables import MatrixStore, TableRef

STAGE = "validate"


class GateFailed(Refused):
    """A check failed: nothing is published, nothing is drawn again."""

    def __init__(self, failed: tuple[str, ...]) -> None:
        self.failed = failed
        super().__init__(
            f"{len(failed)} checks failed ({', '.join(failed)}); nothing is published, and "
            "charge and measurements are unchanged. Remedy: see the run's checks; a failed gate "
            "is a defect or a damaged store, never a matter of drawing again."
        )


@stage(STAGE, retry=True)
def validate(ref: RunRef, table: TableRef, margins: MarginTables | None) -> list[dict[str, Any]]:
    """Run every gate on the tables to be published; the outcomes go on record with the digests.

    Raises:
        GateFailed: the names of the checks that did not hold.
    """
    run = ref.open_measured()
    plan = run.plan
    with run.safe_connection() as connection:
        store = MatrixStore(connection, run.tree)
        store.read(table, sizes=plan.sizes)  # what is judged is what the last step wrote
        if margins is not None:
            margins.check(store, sizes=plan.sizes)
        promises = Promises(
            facts=run.facts(),
            keeps_region_totals=plan.mechanism.keeps_region_totals,
            states_margins=margins is not None,
        )
        report = run_gates(connection, promises)
    outcomes = [asdict(outcome) for outcome in report.outcomes]
    run.ledger.record(
        "validated",
        ref.product,
        ref.release,
        digest=table.digest,
        margins={} if margins is None else margins.digests,
        passed=report.passed,
        checks={outcome["name"]: outcome["passed"] for outcome in outcomes},
    )
    if not report.passed:
        raise GateFailed(_failed(report))
    operator.terminal().stage_finished(STAGE, f"{len(outcomes)} checks passed")
    return outcomes


def _failed(report: GateReport) -> tuple[str, ...]:
    failed = tuple(outcome.name for outcome in report.outcomes if not outcome.passed)
    ran = {outcome.name for outcome in report.outcomes}
    return failed + tuple(sorted(report.required - ran)) or ("no check ran",)
