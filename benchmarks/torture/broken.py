"""``python -m benchmarks.torture.broken FAULT COMMAND…``: pgsr with one of its defences taken out.

Each fault is what the product once was, or might become; the row that names it must notice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from flows import server_process
from flows.cli import main
from pgsr_core.budget import Account
from tasks.ledger.ledger import Ledger, Measurement
from tasks.run import Run
from tasks.stages import noise, prepare


def believe_the_plan() -> None:
    """No lock, no comparison, and the statement describes the plan instead of the draw."""

    def committed(run: Run) -> Measurement | None:
        found = run.ledger.measurement(run.ref.product, run.ref.release)
        if found is None:
            return None
        source = str(found.descriptor.get("source"))
        return replace(found, descriptor=run.plan.measurement_descriptor(source))

    _replace(Run, "committed", committed)
    _replace(Measurement, "require_same", _nothing)
    _replace(Ledger, "alone", lambda *_: nullcontext())
    _replace(Ledger, "require_no_reservation", _nothing)


def ignore_the_budget() -> None:
    """Every charge fits."""
    _replace(Account, "require", _nothing)


def ask_nothing_before_the_draw() -> None:
    """Whether a release could be published shows when it is published."""
    _replace(prepare, "refuse_unpublishable", _nothing)
    _replace(noise, "refuse_before_the_draw", _nothing)


def answer_everybody() -> None:
    """The Prefect server has no secret."""
    environment = server_process._environment

    def without_secret(origin: str, secret: str) -> dict[str, str]:
        settings = environment(origin, secret)
        del settings["PREFECT_SERVER_API_AUTH_STRING"]
        return settings

    _replace(server_process, "_environment", without_secret)


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__: fault
    for fault in (
        believe_the_plan,
        ignore_the_budget,
        ask_nothing_before_the_draw,
        answer_everybody,
    )
}


def _nothing(*_: Any) -> None:
    """What a defence does that was taken out."""


def _replace(owner: Any, name: str, by: Any) -> None:
    getattr(owner, name)  # a fault in what is not there would show nothing
    setattr(owner, name, by)


if __name__ == "__main__":
    FAULTS[sys.argv.pop(1)]()
    main()
