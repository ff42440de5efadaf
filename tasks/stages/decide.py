"""Prepare, as the first stage of a scheduled release: its errors stay with the operator, too."""

from __future__ import annotations

from prefect import get_run_logger

from tasks import operator
from tasks.boundary import stage
from tasks.order import Order
from tasks.run import RunRef
from tasks.stages.prepare import prepare

STAGE = "prepare"


@stage(STAGE, retry=False)
def decide(ref: RunRef, order: Order) -> None:
    """Decide the release of a slot and store its plan.

    Raises:
        ConfigurationError: everything that is wrong, such as a source that is not there yet.
        BudgetExceeded: the release does not fit the population's budget.
        ReleaseHasOtherMeasurements: the name stands for other measurements.
    """
    prepare(
        order.configuration,
        slot=order.slot,
        home=ref.installation,
        warn=get_run_logger().warning,
    )
    operator.terminal().stage_finished(STAGE, ref.name)
