"""`pgsr budget`: what was spent on each population, and the only way to raise a cap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.homes import HomeFolder, home_at
from flows.cli.release import AsJson
from pgsr_core.errors import PgsrError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from pgsr_core.accounting.composition import Guarantee
    from pgsr_core.budget import Account
    from tasks.ledger.ledger import Charge, Ledger

    Row = tuple[Account, Sequence[Charge], Guarantee | None]

budget = typer.Typer(
    name="budget",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@budget.callback()
def overview(
    context: typer.Context,
    population: Annotated[
        str | None, typer.Option(help="One population; all of them by default.")
    ] = None,
    delta: Annotated[str, typer.Option(help="The δ of the tighter (ε, δ) figure.")] = "1e-9",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show what was spent on each population and what remains, or raise a cap.

    Besides the plain sum of epsilon, which the cap is about, it shows a smaller epsilon that all
    releases of a population together have up to a small delta.

    Example: pgsr budget --population residents-2026
    """
    if context.invoked_subcommand is not None:
        _refuse_misplaced(context)
        return
    from flows.cli.inspect import ledger_of
    from flows.cli.screen import say_json

    allowed = _delta(delta)
    ledger = ledger_of(home)
    rows = [] if ledger is None else _rows(ledger, population, delta=allowed)
    if as_json:
        say_json([_document(*row) for row in rows])
    elif ledger is not None:
        _show(rows, delta=delta)


@budget.command("raise")
def raise_cap(
    population: Annotated[str, typer.Argument(help="Whose budget, as in pgsr budget.")],
    to: Annotated[str, typer.Option("--to", help='The new cap, exact: "6", "4.5" or "13/3".')],
    reason: Annotated[
        str, typer.Option("--reason", help="Who decided it and why; kept for ever, for auditors.")
    ],
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Raise the cap of a population, with the reason in the audit trail.

    Example: pgsr budget raise residents-2026 --to 6 --reason "decided by the board on 3 May"
    """
    from flows.cli.screen import out, say_json
    from pgsr_core.budget import show
    from tasks.ledger.ledger import Ledger

    cap = _cap(to)
    place = home_at(home)
    ledger = Ledger.existing(place.ledger_url, witness=place.witness)
    if ledger is None:
        raise PgsrError(
            f"no release was started in {place.root}, so no population has a budget there. "
            "Remedy: name another folder with --home or PGSR_HOME."
        )
    before = ledger.raise_budget(population, cap, reason=reason)
    account = ledger.account(population)
    if as_json:
        say_json({"before": str(before), **_amounts(account), "reason": reason})
        return
    out.print(
        f"Raised   population {population}: from {show(before)} to {show(account.budget)}; "
        f"{show(account.remaining)} left"
    )


def _refuse_misplaced(context: typer.Context) -> None:
    """An option before the command would be taken for one of the command, and do nothing."""
    given = [
        name
        for name in context.params
        if (source := context.get_parameter_source(name)) is not None
        and source.name == "COMMANDLINE"
    ]
    if given:
        raise PgsrError(
            f"options of pgsr budget {context.invoked_subcommand} stand behind its name. "
            f"Remedy: pgsr budget {context.invoked_subcommand} --help."
        )


def _cap(text: str) -> Fraction:
    from tasks.configuration.section import exact_fraction

    try:
        return exact_fraction(text)
    except ValueError as error:
        raise PgsrError(f"--to {error}. Remedy: write the new cap exactly.") from None


def _delta(text: str) -> Fraction:
    from fractions import Fraction

    from pgsr_core.accounting.composition import SMALLEST_DELTA

    try:
        # A float first: the exact value of 1e-999999999 would not fit into memory.
        delta = Fraction(text) if 0 < float(text) < 1 else Fraction(0)
    except ValueError:
        delta = Fraction(0)
    if delta < SMALLEST_DELTA:
        raise PgsrError(
            f"--delta must be a decimal from {float(SMALLEST_DELTA):g} to below 1. "
            "Remedy: for example --delta 1e-9."
        )
    return delta


def _rows(ledger: Ledger, population: str | None, *, delta: Fraction) -> list[Row]:
    accounts = (ledger.account(population),) if population else ledger.accounts()
    rows: list[Row] = []
    for account in accounts:
        charges = ledger.charges(account.population)
        rows.append((account, charges, _together(charges, delta=delta)))
    return rows


def _together(charges: Sequence[Charge], *, delta: Fraction) -> Guarantee | None:
    """What all releases of a population guarantee together; None where nothing was spent."""
    if not any(charge.epsilon for charge in charges):
        return None
    from pgsr_core.accounting.composition import ChargedRelease, compose

    releases = [
        ChargedRelease.from_descriptor(charge.epsilon, charge.descriptor) for charge in charges
    ]
    return compose(releases, delta=delta)


def _amounts(account: Account) -> dict[str, str]:
    return {
        "population": account.population,
        "budget": str(account.budget),
        "spent": str(account.spent),
        "reserved": str(account.reserved),
        "remaining": str(account.remaining),
    }


def _document(
    account: Account, charges: Sequence[Charge], together: Guarantee | None
) -> dict[str, Any]:
    said = ("query", "neighbours", "split", "noise")
    return {
        **_amounts(account),
        "charges": [
            {
                "release": f"{charge.product}/{charge.release}",
                "epsilon": str(charge.epsilon),
                "sampler": charge.sampler,
                **{name: charge.descriptor[name] for name in said if name in charge.descriptor},
            }
            for charge in charges
        ],
        "together": together
        and {
            "neighbours": str(together.neighbours),
            "plain_sum": str(together.plain),
            "epsilon": str(together.epsilon),
            "delta": str(together.delta),
        },
    }


def _show(rows: Sequence[Row], *, delta: str) -> None:
    from flows.cli.screen import out, table
    from pgsr_core.budget import show

    numbers = ("cap", "spent", "reserved", "remaining", f"together, δ = {delta}")
    columns = ("population", *numbers, "neighbours")
    grid = table("Budgets (epsilon)", *columns, numbers=numbers)
    listed = table("Charges", "population", "release", "epsilon", numbers=("epsilon",))
    for account, charges, together in rows:
        amounts = (account.budget, account.spent, account.reserved, account.remaining)
        figures = [] if together is None else [_figure(together), str(together.neighbours)]
        grid.add_row(account.population, *map(show, amounts), *figures)
        for charge in charges:
            name = f"{charge.product}/{charge.release}"
            listed.add_row(account.population, name, show(charge.epsilon))
    out.print(grid)
    out.print(
        "[dim]The cap is on the plain sum. Together, all releases of a population are (ε, δ)-"
        "differentially private with the smaller ε, between such neighbours.[/]"
    )
    out.print(listed)


def _figure(together: Guarantee) -> str:
    """All digits of a figure that was rounded up, so that printing does not round it down."""
    from pgsr_core.budget import show

    if together.epsilon == together.plain:
        return show(together.plain)
    return f"{float(together.epsilon):.6f}"
