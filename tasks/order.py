"""An order: which configuration and slot a release was asked for with, before it has a plan.

A slot whose data have not arrived has no plan yet. Its order is what `pgsr resume` goes on from.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tasks.run import Run, RunRef
from tasks.storage.zones import write_private


class Order(BaseModel):
    """What a slot of a schedule asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    configuration: Path
    slot: datetime


def place_order(ref: RunRef, order: Order) -> None:
    """Note an order in the release's folder, durably."""
    ref.folder.create()
    write_private(_file(ref), order.model_dump_json().encode())


def find_order(ref: RunRef) -> Order | None:
    """The order of a release; None if no schedule asked for it, or it cannot be read."""
    try:
        return Order.model_validate_json(_file(ref).read_bytes())
    except (OSError, ValueError):
        return None


def open_or_prepare(ref: RunRef) -> Run:
    """Open a run; one that was ordered and has no plan yet is decided now.

    Raises:
        NoSuchRun: nobody ever asked for it here.
        ConfigurationError, BudgetExceeded: why there is still no plan.
    """
    from tasks.stages.prepare import prepare

    order = find_order(ref)
    if order is not None and not ref.folder.plan.is_file():
        prepare(order.configuration, slot=order.slot, home=ref.installation)
    return ref.open()


def _file(ref: RunRef) -> Path:
    return ref.folder.safe / "order.json"
