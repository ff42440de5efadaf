"""`pgsr evaluate`: mechanisms against each other and against the paper's printed numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.release import AsJson, Verbose
from pgsr_core.errors import Refused
from pgsr_core.evaluation.published import EPSILONS, TIME_OUT

if TYPE_CHECKING:
    from tasks.evaluation.order import Order

GENERATED = "census-like,taxi-like,synthetic"
QUICK_REPETITIONS = 3
SEED = 1


class PromiseBroken(Refused):
    """A mechanism that claims consistency published tables that do not add up."""


def evaluate(
    folder: Annotated[Path, typer.Argument(help="Of the results; the same one goes on.")] = Path(
        "evaluation"
    ),
    data: Annotated[
        str,
        typer.Option(help="Data sets, comma-separated; synthetic: the series; all: what is here."),
    ] = GENERATED,
    mechanisms: Annotated[
        str | None,
        typer.Option(help="Comma-separated, or all.", show_default="without slow solvers"),
    ] = None,
    epsilons: Annotated[str, typer.Option(help="Budgets, comma-separated.")] = ",".join(EPSILONS),
    repetitions: Annotated[int, typer.Option(help="The paper has 30.")] = QUICK_REPETITIONS,
    seed: Annotated[int, typer.Option(help="Decides on all noise.")] = SEED,
    time_limit: Annotated[
        float, typer.Option(help="Seconds for a run; the paper's are the default.")
    ] = TIME_OUT,
    patience: Annotated[
        float | None,
        typer.Option(
            help="Seconds after which a run is not repeated again.", show_default="the time limit"
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time; each has one core.")] = 1,
    page: Annotated[
        Path | None, typer.Option(help="A document whose marked parts are filled in.")
    ] = None,
    again: Annotated[bool, typer.Option(help="Make the runs anew that are there.")] = False,
    show_list: Annotated[bool, typer.Option("--list", help="What can be evaluated.")] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Compare mechanisms on public or made-up data; only what is missing is run.

    Not private: every result is a difference from the truth.

    Example: pgsr evaluate
    """
    if show_list:
        _list(as_json=as_json)
        return
    from tasks.evaluation.order import make_order

    order = make_order(
        folder=folder,
        data=data,
        mechanisms=mechanisms,
        epsilons=epsilons,
        repetitions=repetitions,
        seed=seed,
        time_limit=time_limit,
        patience=patience,
        page=page,
    )
    _run(order, jobs=jobs, again=again, verbose=verbose)
    _outcome(order, as_json=as_json)


def _run(order: Order, *, jobs: int, again: bool, verbose: bool) -> None:
    """Run the flow in this process, with a bar on standard error."""
    from flows.cli.screen import GroupsDisplay
    from flows.prefect_settings import using_prefect
    from tasks import operator
    from tasks.evaluation.store import open_store, prepare_store
    from tasks.storage.zones import Home

    prepare_store(order)
    if again:
        with open_store(order) as store:
            store.forget(order)
    with using_prefect(Home.locate(), verbose=verbose):
        from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

        from flows.evaluate import evaluate as evaluate_flow

        runner: TaskRunner[Any] = ThreadPoolTaskRunner(max_workers=jobs)
        with GroupsDisplay("evaluate") as display:
            operator.watch(display)
            evaluate_flow.with_options(task_runner=runner)(order)


def _outcome(order: Order, *, as_json: bool) -> None:
    """Say what there is now, and whether every promise was kept.

    Raises:
        PromiseBroken: a mechanism did not keep its own.
    """
    from flows.cli.screen import out, say_json
    from tasks.evaluation.comparison import broken_promises
    from tasks.evaluation.store import open_store

    with open_store(order) as store:
        ends = store.rows("SELECT outcome, count(*) AS runs FROM runs GROUP BY ALL ORDER BY ALL")
        broken = broken_promises(store)
    if as_json:
        outcomes = {row["outcome"]: row["runs"] for row in ends}
        say_json({"folder": order.folder, "outcomes": outcomes, "broken_promises": broken})
    else:
        out.print(", ".join(f"{row['runs']:,} {row['outcome']}" for row in ends))
        out.print(f"Tables, figures and results: {order.folder}", soft_wrap=True)
    if broken:
        raise PromiseBroken(
            f"constraints are violated by {', '.join(broken)}, which promise that none is. "
            f"Remedy: see tables/violations.csv in {order.folder}, and correct the mechanism."
        )


def _list(*, as_json: bool) -> None:
    """Show the data sets and mechanisms."""
    from flows.cli.screen import out, say_json, table
    from pgsr_core.evaluation.contenders import CONTENDERS
    from tasks.evaluation.catalogue import CATALOGUE

    if as_json:
        sets = {
            name: {"about": data.about, "here": data.present} for name, data in CATALOGUE.items()
        }
        notations = {name: contender.notation for name, contender in CONTENDERS.items()}
        say_json({"data": sets, "mechanisms": notations})
        return
    shown = table("Data", "name", "what", "here")
    for name, data in CATALOGUE.items():
        here = "yes" if data.present else f"no: {data.file} is not in PGSR_DATA, left out of all"
        shown.add_row(name, data.about, here)
    out.print(shown)
    known = table("Mechanisms", "name", "notation", "promises no violations")
    for name, contender in CONTENDERS.items():
        known.add_row(name, contender.notation, "yes" if contender.consistent else "no")
    out.print(known)
