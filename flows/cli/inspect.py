"""`pgsr check` and `status`: look without touching."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.release import AsJson, ConfigurationFile, HomeFolder, Slot, home_at, slot_date

if TYPE_CHECKING:
    from pgsr_core.budget import Account
    from tasks.configuration.plan import ReleasePlan
    from tasks.ledger.ledger import Ledger, RunState


def check(configuration: ConfigurationFile, slot: Slot = None, as_json: AsJson = False) -> None:
    """Say everything that is wrong with a configuration, or show the plan. Touches nothing.

    Example: pgsr check household-sizes.yaml
    """
    from flows.cli.screen import out, say_json, warn
    from pgsr_core.budget import Account, overruled, show
    from tasks.configuration.loading import load_configuration
    from tasks.configuration.plan import make_plan
    from tasks.corrections.replacement import refuse_unknown_replaced
    from tasks.ledger.ledger import Ledger
    from tasks.stages.prepare import home_of

    loaded = load_configuration(configuration)
    plan = make_plan(loaded, slot=slot_date(slot)).plan
    population = plan.configuration.population
    home = home_of(loaded)
    ledger = Ledger.existing(home.ledger_url, witness=home.witness)
    account = Account(population.name, population.budget)
    measured = False
    if ledger is not None:
        account = ledger.account(population.name, budget=population.budget)
        measured = ledger.measurement(plan.product, plan.release) is not None
    refuse_unknown_replaced(plan, ledger)
    cost = plan.cost * (not measured)
    notice = overruled(account, population.budget)
    if notice is not None:
        warn(notice)
    if as_json:
        say_json(_plan_document(plan, account, cost))
    else:
        _show_plan(plan)
        why = " (already measured and charged)" if measured else ""
        out.print(
            f"Cost     epsilon {show(cost)}{why}; population {population.name}: "
            f"{show(account.remaining)} of {show(account.budget)} left"
        )
    account.require(cost)
    if not as_json:
        out.print("[green]Ready.[/] Nothing was touched.")


def _plan_document(plan: ReleasePlan, account: Account, cost: Fraction) -> dict[str, Any]:
    return {
        "release": f"{plan.product}/{plan.release}",
        "mechanism": plan.mechanism.name,
        "simulation": plan.configuration.simulate,
        "sensitivity": plan.sensitivity,
        "groups": plan.groups,
        "sizes": {"smallest": plan.smallest_size, "largest": plan.configuration.sizes.max},
        "levels": [level.model_dump(mode="json") for level in plan.levels],
        "cost": str(cost),
        "remaining": str(account.remaining),
        "budget": str(account.budget),
        "configured_budget": str(plan.configuration.population.budget),
        "bundle": str(plan.destination),
    }


def _show_plan(plan: ReleasePlan) -> None:
    from flows.cli.screen import out, table
    from pgsr_core.budget import show

    numbers = ("level", "regions", "cells", "epsilon", "scale", "error of a cell", "of the level")
    grid = table(f"Plan of {plan.product}/{plan.release}", *numbers, numbers=numbers)
    for level in plan.levels:
        grid.add_row(
            str(level.level),
            f"{level.regions:,}",
            f"{level.cells:,}",
            show(level.epsilon),
            show(level.scale),
            f"{level.expected_error:,.2f}",
            f"{level.expected_error * level.cells:,.0f}",
        )
    out.print(grid)
    groups = "taken from the data" if plan.groups is None else f"{plan.groups:,} (public)"
    out.print(
        f"Measured {plan.mechanism.query}, sensitivity {plan.sensitivity}, neighbours "
        f"{plan.configuration.privacy.neighbours}; mechanism {plan.mechanism.name} "
        f"({plan.mechanism.notation})"
    )
    out.print(f"Groups   {groups}; sizes {plan.smallest_size} to {plan.configuration.sizes.max}")
    out.print("[dim]Errors are those of the noise, before post-processing (mean absolute).[/]")
    out.print(f"Bundle   {plan.destination}", soft_wrap=True)


def status(home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Show where every release stands and what to run next.

    Example: pgsr status
    """
    from flows.cli.screen import out, say_json, table

    ledger = ledger_of(home)
    states = ledger.run_states() if ledger is not None else ()
    if as_json:
        say_json([{**vars(state), "next": _next(state)} for state in states])
        return
    grid = table("Releases", "release", "state", "stage", "since", "last error", "next")
    for state in states:
        since = datetime.fromtimestamp(state.updated, UTC).strftime("%Y-%m-%d %H:%M UTC")
        grid.add_row(
            f"{state.product}/{state.release}",
            shown_state(state),
            state.stage,
            since,
            state.error or "",
            _next(state),
        )
    out.print(grid)


def shown_state(state: RunState) -> str:
    """The state, with a run whose process is gone told apart from one that goes on."""
    from tasks.ledger.owner import Owner

    owner = Owner.parse(state.owner)
    if state.state == "running" and owner is not None and owner.is_surely_gone():
        return "died"
    return state.state


def _next(state: RunState) -> str:
    if shown_state(state) in {"failed", "died"}:
        return f"pgsr resume {state.product}/{state.release}"
    return ""


def ledger_of(home: Path | None) -> Ledger | None:
    """The ledger of an installation; None, and a word about it, where no release was started."""
    from flows.cli.screen import err
    from tasks.ledger.ledger import Ledger

    place = home_at(home)
    ledger = Ledger.existing(place.ledger_url, witness=place.witness)
    if ledger is None:
        err.print(f"No release was started in {place.root}; --home or PGSR_HOME names another.")
    return ledger
