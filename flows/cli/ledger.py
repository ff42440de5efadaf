"""`pgsr ledger`: make, migrate, verify and copy the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.release import AsJson, HomeFolder, home_at

ledger = typer.Typer(
    name="ledger",
    help="Make, migrate, verify and copy the ledger.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@ledger.command()
def init(home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Make an empty ledger; one that is there is left as it is.

    Example: pgsr ledger init
    """
    from flows.cli.screen import out, say_json
    from tasks.ledger.ledger import Ledger
    from tasks.ledger.versions import ledger_exists

    place = home_at(home)
    made = not ledger_exists(place.ledger_url)
    place.create()
    head = Ledger(place.ledger_url, witness=place.witness).head()
    if as_json:
        say_json({"made": made, "events": head.sequence, "witness": str(place.witness)})
        return
    found = "made" if made else f"there already, {head.sequence} events"
    out.print(f"Ledger   {found}")
    out.print(f"Witness  {place.witness}", soft_wrap=True, markup=False)


@ledger.command()
def migrate(home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Bring a ledger that an older version made to the schema of this one.

    All of it or nothing. Make a backup first.

    Example: pgsr ledger migrate
    """
    from flows.cli.screen import out, say_json
    from tasks.ledger.inspection import NoLedger
    from tasks.ledger.ledger import Ledger
    from tasks.ledger.versions import ledger_exists
    from tasks.ledger.versions import migrate as migrate_ledger

    place = home_at(home)
    if not ledger_exists(place.ledger_url):
        raise NoLedger
    before, after = migrate_ledger(place.ledger_url, place.witness)
    head = Ledger(place.ledger_url, witness=place.witness).head()
    if as_json:
        say_json({"from": before, "to": after, "events": head.sequence, "head": head.hash})
        return
    done = f"migrated from {before} to {after}" if before != after else f"has schema {after}"
    out.print(f"Ledger   {done}; {head.sequence} events, all chained")


@ledger.command()
def check(home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Verify the chain of events, the witness, every charge and budget, and the files.

    Ends with 1 if anything is wrong; changes nothing.

    Example: pgsr ledger check
    """
    from flows.cli.screen import out, say_json, table
    from tasks.ledger.inspection import check_ledger

    place = home_at(home)
    findings = check_ledger(place.ledger_url, place.witness)
    passed = all(finding.passed for finding in findings)
    if as_json:
        say_json({"passed": passed, "findings": [vars(finding) for finding in findings]})
    else:
        from rich.text import Text

        grid = table("Ledger", "what", "", "found")
        for finding in findings:
            mark = "[green]passed[/]" if finding.passed else "[red]FAILED[/]"
            grid.add_row(finding.name, mark, Text(finding.detail, overflow="fold"))
        out.print(grid)
    if not passed:
        raise typer.Exit(1)


@ledger.command()
def backup(
    to: Annotated[Path, typer.Argument(metavar="OUT", help="The copy; nothing is overwritten.")],
    home: HomeFolder = None,
) -> None:
    """Copy a SQLite ledger, also while it is in use; PostgreSQL has pg_dump.

    Example: pgsr ledger backup /backups/ledger-2026-11-16.sqlite
    """
    from flows.cli.screen import out
    from tasks.ledger.backup import back_up

    back_up(home_at(home).ledger_url, to.absolute())
    out.print(f"Copied to {to}", soft_wrap=True, markup=False)
