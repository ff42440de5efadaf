"""`pgsr withdraw` and `pgsr repost`: what to do about a release that turned out to be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.homes import HomeFolder, home_at
from flows.cli.release import AsJson, Verbose, run_and_report

ReleaseName = Annotated[str, typer.Argument(metavar="PRODUCT/RELEASE", help="As in pgsr status.")]


def withdraw(
    name: ReleaseName,
    reason: Annotated[str, typer.Option(help="One line, published with the notice.")],
    key: Annotated[
        Path | None,
        typer.Option(help="Private key that signs the notice [the release's]."),
    ] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Withdraw a published release: a signed notice beside the bundle, which stays as it is.

    Example: pgsr withdraw household-sizes/2026-Q3 --reason "Two counties were swapped."
    """
    from rich.markup import escape

    from flows.cli.screen import out, say_json
    from tasks.corrections.withdrawal import key_for
    from tasks.corrections.withdrawal import withdraw as withdraw_release
    from tasks.run import RunRef
    from tasks.storage.zones import split_run_name

    ref = RunRef(str(home_at(home).root), *split_run_name(name))
    done = withdraw_release(ref, reason=reason, key=key_for(ref, key))
    said = done.withdrawal
    if as_json:
        document = {"new": done.is_new, "notice": str(done.notice), "keyid": done.keyid}
        say_json({"release": ref.name, **document, **said.to_json()})
        return
    how = "Withdrawn" if done.is_new else "Was withdrawn already, on"
    out.print(f"{how} {said.withdrawn_on}: {escape(said.reason)}", soft_wrap=True)
    out.print(f"Notice   {done.notice}", soft_wrap=True, markup=False)
    out.print(f"Key id   {done.keyid}", soft_wrap=True)
    out.print("The bundle was not touched. A correction names it with replaces: in its YAML.")


def repost(
    name: ReleaseName,
    new_name: Annotated[str, typer.Option("--as", metavar="RELEASE", help="The new release.")],
    mechanism: Annotated[
        str | None, typer.Option(help="Another mechanism for the same measurements.")
    ] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Publish a new release computed from measurements that were made before: spends nothing.

    With another mechanism, or with a newer version of pgsr; gates and publication are those of
    any release. Needs neither the persons nor the confidential store.

    Example: pgsr repost household-sizes/2026-Q3 --as 2026-Q3-revised --mechanism global
    """
    from tasks.corrections.reposting import prepare_repost
    from tasks.run import RunRef
    from tasks.storage.zones import split_run_name

    source = RunRef(str(home_at(home).root), *split_run_name(name))
    ref = prepare_repost(source, release=new_name, mechanism=mechanism)
    run_and_report(ref, as_json=as_json, verbose=verbose)
