"""`pgsr ledger`: make, migrate, verify, copy and restore the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.homes import HomeFolder, home_at
from flows.cli.release import AsJson

ledger = typer.Typer(
    name="ledger",
    help="Make, migrate, verify, copy and restore the ledger.",
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


@ledger.command()
def export(
    to: Annotated[Path, typer.Argument(metavar="OUT", help="The file; nothing is overwritten.")],
    after: Annotated[
        int, typer.Option(min=0, metavar="N", help="Only the events after this number.")
    ] = 0,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Write events, with the measurements and budgets that they record, to a file.

    A backup that is put back later is completed from it; see pgsr ledger restore.

    Example: pgsr ledger export /backups/events-2026-11-16.jsonl --after 1200
    """
    from flows.cli.screen import out, say_json
    from tasks.ledger.exports import export_events

    count = export_events(home_at(home).ledger_url, to.absolute(), after=after)
    if as_json:
        say_json({"after": after, "events": count})
        return
    last = f"; the next one: --after {after + count}" if count else ""
    out.print(f"Wrote    {count} events to {to}{last}", soft_wrap=True, markup=False)


@ledger.command()
def restore(
    backup: Annotated[
        Path | None,
        typer.Argument(metavar="[BACKUP]", help="A copy of a SQLite ledger; none is in place."),
    ] = None,
    events: Annotated[
        list[Path] | None,
        typer.Option(help="What was exported since the backup; may be given several times."),
    ] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Put a backup back, with the events that were recorded since.

    Refused, and nothing is put in place, unless it holds every event that the witness saw.
    Without BACKUP the ledger that is in place is completed, such as after pg_restore.

    Example: pgsr ledger restore /backups/ledger.sqlite --events /backups/events.jsonl
    """
    from flows.cli.screen import out, say_json
    from tasks.ledger.restoration import restore as restore_ledger

    place = home_at(home)
    done = restore_ledger(
        place.ledger_url,
        place.witness,
        backup=backup.absolute() if backup is not None else None,
        supplied=tuple(events or ()),
    )
    if as_json:
        facts = {"supplied": done.supplied, "witnessed": done.witnessed}
        say_json({"events": done.head.sequence, "head": done.head.hash, **facts})
        return
    out.print(f"Ledger   {done.head.sequence} events, {done.supplied} of them supplied")
    out.print(f"Head     {done.head.hash}")
    if not done.witnessed:
        out.print(
            "Witness  there was none, so nothing vouches for what is missing at the end. Compare "
            "the head with the newest bundle that was published.",
            soft_wrap=True,
        )
