"""`pgsr doctor` and `pgsr purge`: is this installation in order, and is the truth gone?"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.homes import HomeFolder, home_at, runnable, use
from flows.cli.release import AsJson
from pgsr_core.errors import PgsrError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.purge import Purge, Undecided
    from tasks.storage.zones import Home


class ConfirmationNeeded(PgsrError):
    """Nobody can be asked, and deleting needs a yes."""


class NothingNamed(PgsrError):
    """Neither a release was named nor those that are due."""


class NotAllPurged(Unavailable):
    """Of some releases it cannot be told whether they are due, or they could not be purged."""

    def __init__(self, left: Sequence[Undecided]) -> None:
        listed = "".join(f"\n- {one.name}: {one.error}" for one in left)
        super().__init__(
            f"{len(left)} releases may hold confidential files that are due, and were left as they "
            f"are:{listed}\nRemedy: see to each of them, and run pgsr purge --due again; "
            "pgsr purge PRODUCT/RELEASE deletes one whatever its retention."
        )


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
    from tasks.storage.temporary import remove_spill

    if due == (name is not None):
        raise NothingNamed("say which: PRODUCT/RELEASE, or --due. Remedy: see pgsr purge --help.")
    place = home_at(home)
    remove_spill(place)
    if name is None:
        _purge_due(place, yes=yes, as_json=as_json)
    else:
        _purge_one(place, name, yes=yes, as_json=as_json)


def _purge_one(home: Home, name: str, *, yes: bool, as_json: bool) -> None:
    from flows.cli.screen import say_json
    from tasks.purge import plan_purge
    from tasks.purge import purge as delete
    from tasks.run import RunRef
    from tasks.storage.zones import split_run_name

    planned = plan_purge(RunRef(str(home.root), *split_run_name(name)))
    if not yes:
        _ask(planned)
    done = delete(planned.ref)
    if as_json:
        say_json({"release": done.ref.name, "deleted": list(done.files)})
    else:
        _tell([done])


def _purge_due(home: Home, *, yes: bool, as_json: bool) -> None:
    """Delete what is due; one release that cannot be judged or deleted does not keep the others."""
    from datetime import UTC, datetime

    from flows.cli.screen import say_json
    from tasks.purge import Undecided, due_purges
    from tasks.purge import purge as delete

    due = due_purges(home, now=datetime.now(UTC))
    if not yes:
        for planned in due.purges:
            _ask(planned)
    done, left = [], list(due.undecided)
    for planned in due.purges:
        try:
            done.append(delete(planned.ref))
        except PgsrError as error:
            left.append(Undecided(planned.ref.name, error))
    if as_json:
        deleted = [{"release": purge.ref.name, "deleted": list(purge.files)} for purge in done]
        kept = [{"release": one.name, "deleted": [], "problem": str(one.error)} for one in left]
        say_json([*deleted, *kept])
    elif done or not left:
        _tell(done)
    if left:
        raise NotAllPurged(left)


def _tell(done: list[Purge]) -> None:
    from flows.cli.screen import out

    if not done:
        out.print("Nothing is due.")
    for purge in done:
        name, files = purge.ref.name, ", ".join(purge.files)
        if files:
            out.print(f"{name}: deleted {files}", soft_wrap=True, markup=False)
            replay = runnable(f"pgsr audit replay {name}")
            out.print(f"Evidence stays: {replay}", soft_wrap=True, markup=False)
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
    """Look this installation over and say what to do.

    Permissions, keys, ledger, Prefect's settings, what killed runs left behind, disk space.
    Changes nothing, but for one thing: what killed runs spilled to disk is removed at once.

    Example: pgsr doctor
    """
    from rich.markup import escape

    from flows.cli.screen import out, say_json, table
    from tasks.doctor import examine
    from tasks.storage.places import find_root
    from tasks.storage.temporary import remove_spill
    from tasks.storage.trust import HomeNotSafe, require_own
    from tasks.storage.zones import Home

    place = Home(find_root(home))
    use(place)
    with suppress(HomeNotSafe):  # which is what the doctor says, then
        require_own(place.root)
        remove_spill(place)
    found = examine(place)
    problems = sum(not finding.ok for finding in found)
    if as_json:
        findings = [{**vars(each), "remedy": runnable(each.remedy)} for each in found]
        say_json({"ok": problems == 0, "findings": findings})
    else:
        grid = table("Doctor", "area", "", "what was found")
        for finding in found:
            mark = "[green]ok[/]" if finding.ok else "[bold red]problem[/]"
            grid.add_row(finding.area, mark, escape(finding.says))
        out.print(grid)
        for todo in dict.fromkeys(each.remedy for each in found if not each.ok):
            # Whole, on one line each, to be copied.
            out.print(f"To do    {runnable(todo)}", soft_wrap=True, markup=False)
        out.print(f"{problems} problems." if problems else "[green]Everything is in order.[/]")
    if problems:
        raise typer.Exit(1)
