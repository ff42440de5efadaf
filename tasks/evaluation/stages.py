"""The stages of an evaluation: run a mechanism on a data set, and write what came of it all."""

from __future__ import annotations

from tasks import operator
from tasks.boundary import public_stage
from tasks.evaluation.order import Order
from tasks.evaluation.report import write_report
from tasks.evaluation.store import open_store
from tasks.evaluation.supervisor import Supervisor


def unfinished(order: Order) -> list[tuple[str, str]]:
    """The groups (data set, mechanism) of an order that have runs to be made."""
    groups = []
    with open_store(order) as store:
        for data, mechanism in order.groups():
            missing = len(store.pending(order, data, mechanism))
            if missing:
                groups.append((data, mechanism))
                operator.terminal().stage_advanced(f"{data} {mechanism}", 0, missing, "runs")
    return groups


@public_stage("measure", run_name="{data} {mechanism}")
def measure(order: Order, data: str, mechanism: str) -> None:
    """Make the runs of a group that are missing, each on record before the next one begins."""
    name = f"{data} {mechanism}"
    operator.terminal().stage_started(name)
    with open_store(order) as store:
        pending = store.pending(order, data, mechanism)
    total, tried = len(pending), set()
    with Supervisor(data, mechanism) as supervisor:
        while pending:
            trial, seed = pending[0], order.seed_of(pending[0])
            result = supervisor.run(epsilon=trial.epsilon, seed=seed, time_limit=order.time_limit)
            tried.add(trial)
            with open_store(order) as store:
                if supervisor.facts:
                    store.describe(data, supervisor.facts)
                store.add(trial, result, seed=seed, time_limit=order.time_limit)
                # Without those that were tried: a run that failed is still missing.
                pending = [t for t in store.pending(order, data, mechanism) if t not in tried]
            operator.terminal().stage_advanced(name, len(tried), total, "runs")
    operator.terminal().stage_finished(name, f"{len(tried)} runs")


@public_stage("report", run_name="report")
def report(order: Order) -> None:
    """Write the tables and figures of all results in the order's folder."""
    with open_store(order) as store:
        write_report(order, store)
