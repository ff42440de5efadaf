"""The flow that a schedule starts: it brings a product's series up to date as of its slot.

Name and source of a release follow from the slot's time. What was begun and abandoned is finished
first; what was missed is made up for as the configuration's `catch_up` says; then comes the slot's
own release. Each is run by the same stages as `pgsr release` and `pgsr resume`, and one that is
published is left as it is.

Whoever starts a run names a configuration, and this is not taken on trust: it must have been
served from the installation that this process belongs to, with just this content.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prefect import flow, runtime
from prefect.context import FlowRunContext
from prefect.logging import get_run_logger

from flows.release import run_stages
from flows.takeover import name_this_run, sign_in
from pgsr_core.errors import PgsrError
from tasks import operator
from tasks.alerts.occasions import alerting, quietly
from tasks.alerts.schedules import tell_missed
from tasks.boundary import StageFailed
from tasks.order import Order, place_order
from tasks.run import RunRef
from tasks.series import Series
from tasks.served import EditedSinceServed, ServedElsewhere, require_served
from tasks.stages.decide import decide
from tasks.storage.zones import Home


class EarlierUnfinished(Exception):
    """This slot's release is out, but an earlier one that was begun is still not."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(f"{', '.join(names)} could not be finished; pgsr status says what to do")
        self.names = names


@flow(name="release-product", persist_result=False, on_running=[sign_in])
def release_product(configuration: str, slot: datetime | None = None) -> dict[str, Any]:
    """Bring a product up to date as of a slot; the same slot again changes nothing.

    Args:
        configuration: path of the product's YAML, whose release name and source may hold date
            templates such as ``{date:%Y}-Q{quarter}``.
        slot: release this slot, whatever the policy for missed ones; by default, the time that
            the schedule started this run for.
    """
    moment = slot or runtime.flow_run.scheduled_start_time
    series, due = _look(Path(configuration), moment, insisted=slot is not None or _is_insisted())
    own = series.release(moment)
    name_this_run(own.name)
    with quietly():
        tell_missed(series)
    failed: dict[RunRef, StageFailed] = {}
    for ref, its_slot in due.items():
        try:
            _bring_out(series, ref, its_slot)
        except StageFailed as failure:
            failed[ref] = failure
            get_run_logger().warning("%s: %s", ref.name, failure)
    if own in failed:
        raise failed[own]
    # What was paid for, or stopped for no known reason, needs a person.
    serious = [
        ref.name
        for ref, failure in failed.items()
        if not failure.expected or series.ledger.measurement(ref.product, ref.release)
    ]
    if serious:
        raise EarlierUnfinished(serious)
    return {"release": own.name, "brought_out": [ref.name for ref in due]}


def _is_insisted() -> bool:
    """Whether a person started or retried this run; the schedule did otherwise."""
    context = FlowRunContext.get()
    run = context.flow_run if context is not None else None
    return run is None or not run.auto_scheduled or run.run_count > 1


def _look(
    configuration: Path, slot: datetime, *, insisted: bool
) -> tuple[Series, dict[RunRef, datetime]]:
    """Read the configuration and ask the ledger what is due; errors stay with the operator."""
    home: Home | None = None
    try:
        # This process's own: one beside the path that it was given could be anybody's.
        home = Home.locate()
        series = _open_served(home, configuration)
        return series, _due(series, slot, insisted=insisted)
    except PgsrError as error:
        if home is not None:  # otherwise there is no folder that others cannot write
            operator.log_failure(home.operator_log, "schedule", error)
        failure = StageFailed("schedule", type(error).__name__, error.exit_code)
    # Raised outside of the except block: the original is not chained to it.
    raise failure


def _open_served(home: Home, configuration: Path) -> Series:
    """A product by a configuration that was served from this installation.

    Raises:
        NotServed, EditedSinceServed, ServedElsewhere: it is not to be run.
        ConfigurationError: everything that is wrong with it.
    """
    served = require_served(home, configuration)
    series = Series.open(served.path)
    if series.home != home:
        raise ServedElsewhere(served.path, home)
    return series


def _due(series: Series, slot: datetime, *, insisted: bool) -> dict[RunRef, datetime]:
    """What is to be brought out, oldest first; of several slots of one name, the last."""
    now = datetime.now(UTC)
    slots = {*series.begun(), *series.missed(now)}
    if insisted or series.is_wanted(slot, now=now):
        slots.add(series.configuration.on_its_clock(slot))
    else:
        get_run_logger().info(
            "a later slot has come due, or the schedule has changed: nothing to do"
        )
    published = {moment for moment in slots if series.is_published(moment)}
    for moment in published:
        get_run_logger().info("%s is published; nothing to do", series.release(moment).name)
    return {series.release(moment): moment for moment in sorted(slots - published)}


@contextmanager
def _alone(ref: RunRef) -> Iterator[None]:
    """Hold a release, or fail as a stage does: it is not this run's turn."""
    with ExitStack() as held:
        failure = None
        try:
            held.enter_context(ref.alone())
        except PgsrError as error:
            failure = StageFailed("start", type(error).__name__, error.exit_code)
        if failure is not None:
            raise failure
        yield


def _bring_out(series: Series, ref: RunRef, slot: datetime) -> None:
    with alerting(ref, series.configuration), _alone(ref):
        measured = series.ledger.measurement(ref.product, ref.release) is not None
        # What was measured goes on from its plan: the source may be gone, and is not needed.
        if not (measured and ref.folder.plan.is_file()):
            order = Order(configuration=series.loaded.path, slot=slot)
            place_order(ref, order)
            decide(ref, order)
            _require_as_served(series, ref)
        run_stages(ref)


def _require_as_served(series: Series, ref: RunRef) -> None:
    """Stop if the file was edited between the look at its digest and the plan."""
    if ref.open().plan.configuration == series.configuration:
        return
    error = EditedSinceServed(series.loaded.path)
    operator.log_failure(ref.folder.operator_log, "schedule", error)
    ref.note(state="failed", stage="schedule", error=type(error).__name__)
    raise StageFailed("schedule", type(error).__name__, error.exit_code)
