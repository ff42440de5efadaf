"""`pgsr audit site`: a static site over all releases of a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.homes import HomeFolder, home_at, runnable
from flows.cli.release import AsJson


def site(
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="A new or empty folder, or an earlier site, which is replaced.",
            show_default=False,
        ),
    ],
    internal: Annotated[
        bool,
        typer.Option(
            "--internal", help="Add the operator's view; OUT is in the confidential zone."
        ),
    ] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Build a static site: releases, budgets, the event log, comparisons, every report.

    It can be hosted anywhere or opened from a disk, and holds nothing confidential; with
    --internal it is for operators and stays inside. Ends with 1 if the ledger does not verify.

    Example: pgsr audit site audit-site
    """
    from rich.markup import escape

    from flows.cli.screen import err, say_json
    from flows.cli.screen import out as screen
    from tasks.site.build import build_site

    built = build_site(home_at(home), out, internal=internal)
    if as_json:
        said = {"index": str(built.index), "internal": internal, "intact": not built.problems}
        say_json({**said, "releases": built.releases, "comparisons": built.comparisons})
    else:
        screen.print(
            f"Site     {built.index}: {built.releases} releases, {built.comparisons} comparisons",
            soft_wrap=True,
            markup=False,
        )
        if built.problems:
            log = escape(runnable("pgsr audit log --verify"))
            err.print(f"[bold red]The ledger does not verify:[/] see {log}.", soft_wrap=True)
    if built.problems:
        raise typer.Exit(1)
