"""`pgsr check`: look without touching."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.homes import HomeFolder, home_at, home_for
from flows.cli.release import AsJson, ConfigurationFile, Slot, slot_time

if TYPE_CHECKING:
    from rich.table import Table

    from pgsr_core.budget import Account
    from tasks.configuration.plan import LevelPlan, Planned, ReleasePlan
    from tasks.ledger.ledger import Ledger


def check(
    configuration: ConfigurationFile,
    slot: Slot = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Say everything that is wrong with a configuration, or show the plan. Touches nothing.

    Example: pgsr check household-sizes.yaml
    """
    from flows.cli.screen import out, say_json, warn
    from pgsr_core.budget import Account, overruled, show
    from tasks.configuration.loading import load_configuration
    from tasks.configuration.plan import make_plan
    from tasks.corrections.replacement import refuse_unknown_replaced
    from tasks.ledger.holders import refuse_held_elsewhere
    from tasks.ledger.ledger import Ledger
    from tasks.publication.preflight import refuse_unpublishable
    from tasks.stages.prepare import what_begins

    place = home_for(configuration, home)
    loaded = load_configuration(configuration)
    planned = make_plan(loaded, slot=slot_time(slot))
    plan = planned.plan
    population = plan.configuration.population
    ledger = Ledger.existing(place.ledger_url, witness=place.witness)
    account = Account(population.name, population.budget)
    measured = False
    if ledger is not None:
        account = ledger.account(population.name, budget=population.budget)
        measured = ledger.measurement(plan.product, plan.release) is not None
    refuse_unknown_replaced(plan, ledger)
    cost = plan.cost * (not measured)
    for notice in (
        overruled(account, population.budget),
        what_begins(place, ledger, population.name, population.budget),
    ):
        if notice is not None:
            warn(notice)
    if as_json:
        say_json(_plan_document(planned, account, cost))
    else:
        _show_plan(planned)
        why = " (already measured and charged)" if measured else ""
        out.print(
            f"Cost     epsilon {show(cost)}{why}; population {population.name}: "
            f"{show(account.remaining)} of {show(account.budget)} left"
        )
    refuse_held_elsewhere(place, ledger, population.name, cost=cost)
    account.require(cost)
    refuse_unpublishable(plan, place)
    if not as_json:
        out.print("[green]Ready.[/] Nothing was touched.")


def _plan_document(planned: Planned, account: Account, cost: Fraction) -> dict[str, Any]:
    plan = planned.plan
    privacy = plan.configuration.privacy.model_dump(mode="json")
    return {
        "release": f"{plan.product}/{plan.release}",
        "mechanism": plan.mechanism.name,
        "choice": None if planned.choice is None else planned.choice.explain(),
        "simulation": plan.configuration.simulate,
        "neighbours": privacy["neighbours"],
        "sampler": plan.sampler,
        "sensitivity": plan.sensitivity,
        "groups": plan.groups,
        "sizes": {"smallest": plan.smallest_size, "largest": plan.configuration.sizes.max},
        "split": privacy["split"],
        "expected_error": {
            "split": _expected_error(plan, plan.levels),
            "uniform": _expected_error(plan, plan.levels_if_uniform),
        },
        "levels": [
            {
                **level.model_dump(mode="json"),
                "expected_total_error": level.expected_total_error,
                "expected_total_error_if_uniform": uniform.expected_total_error,
            }
            for level, uniform in zip(plan.levels, plan.levels_if_uniform, strict=True)
        ],
        "cost": str(cost),
        "remaining": str(account.remaining),
        "budget": str(account.budget),
        "configured_budget": str(plan.configuration.population.budget),
        "bundle": str(plan.destination),
    }


def _expected_error(plan: ReleasePlan, levels: Sequence[LevelPlan]) -> float:
    """What a split is judged by: the levels' expected errors, each times its weight."""
    return sum(
        float(weight) * level.expected_total_error
        for weight, level in zip(plan.weights, levels, strict=True)
    )


def _show_plan(planned: Planned) -> None:
    from flows.cli.screen import out

    plan = planned.plan
    privacy = plan.configuration.privacy
    out.print(_level_table(plan))
    if privacy.split != "uniform":
        _show_split(plan)
    groups = "taken from the data" if plan.groups is None else f"{plan.groups:,} (public)"
    out.print(
        f"Measured {plan.mechanism.query}, sensitivity {plan.sensitivity}, neighbours "
        f"{privacy.neighbours}, sampler {plan.sampler}; mechanism {plan.mechanism.name} "
        f"({plan.mechanism.notation})"
    )
    if planned.choice is not None:
        chosen, because = planned.choice.explain()
        out.print(f"Chosen   {chosen};\n         {because}", soft_wrap=True)
    out.print(f"Groups   {groups}; sizes {plan.smallest_size} to {plan.configuration.sizes.max}")
    out.print("[dim]Errors are those of the noise, before post-processing (mean absolute).[/]")
    out.print(f"Bundle   {plan.destination}", soft_wrap=True)


def _level_table(plan: ReleasePlan) -> Table:
    from flows.cli.screen import table
    from pgsr_core.budget import show

    heads: tuple[str, ...] = (
        "level",
        "regions",
        "cells",
        "epsilon",
        "scale",
        "error of a cell",
        "of the level",
    )
    if plan.configuration.privacy.split != "uniform":
        heads = (*heads, "if uniform")
    grid = table(f"Plan of {plan.product}/{plan.release}", *heads, numbers=heads)
    for level, uniform in zip(plan.levels, plan.levels_if_uniform, strict=True):
        cells = (
            str(level.level),
            f"{level.regions:,}",
            f"{level.cells:,}",
            show(level.epsilon),
            f"{float(level.scale):,.6g}",
            f"{level.expected_error:,.2f}",
            f"{level.expected_total_error:,.0f}",
            f"{uniform.expected_total_error:,.0f}",
        )
        grid.add_row(*cells[: len(heads)])
    return grid


def _show_split(plan: ReleasePlan) -> None:
    from flows.cli.screen import out
    from pgsr_core.budget import show

    match plan.configuration.privacy.split:
        case tuple():
            chosen = "as listed"
        case "balanced":
            chosen = "balanced"
        case _:
            chosen = "optimised"
    if len(set(plan.weights)) > 1:
        chosen += f" for weights {', '.join(show(weight) for weight in plan.weights)}"
    out.print(
        f"Split    {chosen}: error of all levels {_expected_error(plan, plan.levels):,.0f}; "
        f"if uniform {_expected_error(plan, plan.levels_if_uniform):,.0f}"
    )


def ledger_of(home: Path | None) -> Ledger | None:
    """The ledger of an installation; None, and a word about it, where no release was started."""
    from flows.cli.screen import err
    from tasks.ledger.ledger import Ledger

    place = home_at(home)
    ledger = Ledger.existing(place.ledger_url, witness=place.witness)
    if ledger is None:
        err.print(f"No release was started in {place.root}; --home or PGSR_HOME names another.")
    return ledger
