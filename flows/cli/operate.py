"""`pgsr doctor` and `pgsr purge`: is this installation in order, and is the truth gone?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.release import AsJson, HomeFolder, home_at
from pgsr_core.errors import PgsrError

if TYPE_CHECKING:
    from tasks.purge import Purge
    from tasks.storage.zones import Home


class ConfirmationNeeded(PgsrError):
    """Nobody can be asked, and deleting needs a yes."""


class NothingNamed(PgsrError):
    """Neither a release was named nor those that are due."""


def purge(
    name: Annotated[
        str | None, typer.Argument(metavar="[PRODUCT/RELEASE]", help="As in pgsr status.")
    ] = None,
    due: Annotated[
        bool, typer.Option("--due", help="All that the products' retention says is due.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Delete the confidential files of published releases; the evidence stays.

    The bundle, the measurements and the event log remain, so a release still verifies and
    replays. This cannot be undone.

    Example: pgsr purge household-sizes/2026-Q3, or by policy: pgsr purge --due --yes
    """
    from flows.cli.screen import say_json
    from tasks.purge import purge as delete

    planned = _planned(name, home_at(home), due=due)
    if not yes:
        for purge in planned:
            _ask(purge)
    done = [delete(purge.ref) for purge in planned]
    if as_json and due:
        say_json([{"release": purge.ref.name, "deleted": list(purge.files)} for purge in done])
    elif as_json:
        say_json({"release": done[0].ref.name, "deleted": list(done[0].files)})
    else:
        _tell(done)


def _planned(name: str | None, home: Home, *, due: bool) -> list[Purge]:
    from datetime import UTC, datetime

    from tasks.purge import due_purges, plan_purge
    from tasks.run import RunRef
    from tasks.storage.zones import split_run_name

    if due == (name is not None):
        raise NothingNamed("say which: PRODUCT/RELEASE, or --due. Remedy: see pgsr purge --help.")
    if name is None:
        return list(due_purges(home, now=datetime.now(UTC)))
    return [plan_purge(RunRef(str(home.root), *split_run_name(name)))]


def _tell(done: list[Purge]) -> None:
    from flows.cli.screen import out

    if not done:
        out.print("Nothing is due.")
    for purge in done:
        name, files = purge.ref.name, ", ".join(purge.files)
        if files:
            out.print(f"{name}: deleted {files}", soft_wrap=True, markup=False)
            out.print(f"Evidence stays: pgsr audit replay {name}", soft_wrap=True, markup=False)
        else:
            out.print(f"{name} holds nothing confidential any more.", markup=False)


def _ask(planned: Purge) -> None:
    if not planned.files:
        return
    files = ", ".join(planned.files)
    if not sys.stdin.isatty():
        raise ConfirmationNeeded(
            f"this would delete {files} of {planned.ref.name}, and nobody can be asked. "
            "Remedy: add --yes."
        )
    typer.confirm(f"Delete {files} of {planned.ref.name} for good?", abort=True, err=True)


def doctor(home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Look this installation over and say what to do; changes nothing.

    Permissions, keys, ledger, Prefect's settings, what killed runs left behind, disk space.

    Example: pgsr doctor
    """
    from rich.markup import escape

    from flows.cli.screen import out, say_json, table
    from tasks.doctor import examine

    found = examine(home_at(home))
    problems = sum(not finding.ok for finding in found)
    if as_json:
        say_json({"ok": problems == 0, "findings": [vars(finding) for finding in found]})
    else:
        grid = table("Doctor", "area", "", "what was found", "what to do")
        for finding in found:
            mark = "[green]ok[/]" if finding.ok else "[bold red]problem[/]"
            todo = "" if finding.ok else finding.remedy
            grid.add_row(finding.area, mark, escape(finding.says), escape(todo))
        out.print(grid)
        out.print(f"{problems} problems." if problems else "[green]Everything is in order.[/]")
    if problems:
        raise typer.Exit(1)
