"""The evaluation flow: data × mechanism × epsilon × repetition, then tables and figures."""

from __future__ import annotations

from prefect import flow
from prefect.futures import wait

from flows.interruption import ending_at_once
from tasks.evaluation.order import Order
from tasks.evaluation.stages import measure, report, unfinished
from tasks.evaluation.store import prepare_store
from tasks.evaluation.supervisor import end_workers


@flow(name="evaluate", persist_result=False)
def evaluate(order: Order) -> None:
    """Make the runs that are missing, and write down what all of them say.

    A task makes all runs (epsilons and repetitions) of one mechanism on one data set, in a process
    of its own; every run is on record before the next begins. So the same call is the first
    evaluation, one that goes on after a crash or Ctrl-C, and one with more repetitions.
    """
    prepare_store(order)
    with ending_at_once(end_workers):
        runs = [measure.submit(order, data, mechanism) for data, mechanism in unfinished(order)]
        wait(runs)
    for run in runs:
        run.result()
    report(order)
