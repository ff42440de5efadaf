"""`pgsr doctor` and `pgsr purge`: is this installation in order, and is the truth gone?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.release import AsJson, HomeFolder, home_at
from pgsr_core.errors import PgsrError

if TYPE_CHECKING:
    from tasks.purge import Purge


class ConfirmationNeeded(PgsrError):
    """Nobody can be asked, and deleting needs a yes."""


def purge(
    name: Annotated[str, typer.Argument(metavar="PRODUCT/RELEASE", help="As in pgsr status.")],
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Delete the confidential files of a published release; the evidence stays.

    The bundle, the measurements and the event log remain, so the release still verifies and
    replays. This cannot be undone.

    Example: pgsr purge household-sizes/2026-Q3
    """
    from flows.cli.screen import out, say_json
    from tasks.purge import plan_purge
    from tasks.purge import purge as delete
    from tasks.run import RunRef
    from tasks.storage.zones import split_run_name

    ref = RunRef(str(home_at(home).root), *split_run_name(name))
    planned = plan_purge(ref)
    if planned.files and not yes:
        _ask(planned)
    done = delete(ref)
    if as_json:
        say_json({"release": ref.name, "deleted": list(done.files)})
    elif done.files:
        out.print(f"Deleted  {', '.join(done.files)}", soft_wrap=True, markup=False)
        out.print(f"Evidence stays: pgsr audit replay {ref.name}", soft_wrap=True, markup=False)
    else:
        out.print(f"{ref.name} holds nothing confidential any more.", markup=False)


def _ask(planned: Purge) -> None:
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
