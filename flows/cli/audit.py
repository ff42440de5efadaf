"""`pgsr audit`: what a stranger can find out about a published release."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.homes import HomeFolder, home_at
from flows.cli.release import AsJson
from flows.cli.site import site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgsr_core.attestation.keys import PublicKey
    from pgsr_core.chain import Event
    from pgsr_core.replay import Replay
    from pgsr_core.verification import Item, Notice, Verification
    from tasks.storage.zones import Home
    from tasks.timeline import Filter, Log

audit = typer.Typer(
    name="audit",
    help="Verify and explain published releases.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
audit.command()(site)


@audit.command()
def verify(
    bundle: Annotated[Path, typer.Argument(help="Folder of the release.", show_default=False)],
    key: Annotated[
        Path,
        typer.Option(
            "--key", help="The publisher's public key; not from the bundle.", show_default=False
        ),
    ],
    replay: Annotated[
        bool | None,
        typer.Option(
            "--replay/--no-replay",
            help="Compute the tables again from the measurements; by default where that takes no "
            "longer than a minute or two.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify a bundle with the publisher's public key, offline, line by line.

    The last line says what was not checked, and which command checks it.

    Example: pgsr audit verify public/household-sizes/2026-Q3 --key release.key.pub
    """
    from tasks.keys import read_public_key

    public_key = read_public_key(key)
    found = _verified(bundle, public_key, replay=replay)
    notice = _notice_of(bundle, found, public_key)
    if as_json:
        _say_json(found, notice, public_key)
    else:
        _show(found, public_key)
        _show_notice(notice)
        _show_not_checked(found)
    if not found.verified:
        raise typer.Exit(1)


def _verified(bundle: Path, key: PublicKey, *, replay: bool | None) -> Verification:
    """Everything that is looked at: the bundle by itself, its tables once more, and its page."""
    from shlex import quote

    from pgsr_core.verification import verify_bundle
    from pgsr_core.verification.replayed import with_replay
    from tasks.bundles import FolderBundle
    from tasks.publication.report.verification import with_report

    files = FolderBundle(bundle)
    command = f"pgsr audit replay {quote(str(bundle))}"
    replayed = with_replay(verify_bundle(files, key), files, wanted=replay, command=command)
    return with_report(replayed, files)


def _notice_of(bundle: Path, found: Verification, key: PublicKey) -> Notice | None:
    from pgsr_core.verification import examine_notice
    from tasks.bundles import FolderBundle, notice_beside

    notice = notice_beside(bundle, found.provenance.release if found.provenance else None)
    if notice is None:
        return None
    return examine_notice(notice, FolderBundle(bundle), found.provenance, key)


def _say_json(found: Verification, notice: Notice | None, key: PublicKey) -> None:
    from flows.cli.screen import say_json

    withdrawal = notice.withdrawal if notice else None

    say_json(
        {
            "verified": found.verified,
            "keyid": key.keyid,
            "withdrawn": withdrawal.to_json() if withdrawal else None,
            "unaccepted_notice": notice.problem if notice else None,
            "provenance": found.provenance.to_json() if found.provenance else None,
            "items": [vars(item) for item in found.items],
            "not_checked": [vars(left_out) for left_out in found.not_checked],
        }
    )


def _show_items(items: Sequence[Item]) -> None:
    """One line for every thing that was looked at."""
    from flows.cli.screen import out

    width = max(len(item.name) for item in items)
    for item in items:
        mark = "[green]✓[/]" if item.passed else "[bold red]✗[/]"
        out.print(f"{mark} {item.name:<{width}}", end="  ")
        out.print(item.sentence, markup=False, soft_wrap=True)


def _show(found: Verification, key: PublicKey) -> None:
    from flows.cli.screen import out

    _show_items(found.items)
    if found.verified:
        out.print(f"[green]Verified:[/] all of {len(found.items)} items hold.")
        out.print(f"Compare the key id with the one that the publisher announces: {key.keyid}")
    else:
        out.print(f"[bold red]NOT VERIFIED:[/] {len(found.failed)} of {len(found.items)} fail.")


def _show_notice(notice: Notice | None) -> None:
    """A verified bundle may be withdrawn all the same, which nobody should overlook."""
    from flows.cli.screen import out

    if notice is None:
        return
    if notice.withdrawal is None:
        out.print(
            "[bold red]A notice of withdrawal stands beside the bundle, and is not accepted:[/] "
            f"{notice.problem}. Ask the publisher.",
            soft_wrap=True,
        )
        return
    said = notice.withdrawal
    out.print(f"[bold red]WITHDRAWN on {said.withdrawn_on}; do not use it:[/]", end=" ")
    out.print(said.reason, markup=False, soft_wrap=True)


def _show_not_checked(found: Verification) -> None:
    """The last line: what a reader might take for verified, and is not."""
    from flows.cli.screen import out

    if found.not_checked:
        left_out = " ".join(f"{left_out}." for left_out in found.not_checked)
        out.print(f"Not checked: {left_out}", markup=False, soft_wrap=True)


@audit.command()
def replay(
    release: Annotated[
        str,
        typer.Argument(
            metavar="PRODUCT/RELEASE|BUNDLE",
            help="A release of this installation, or the folder of any published one.",
            show_default=False,
        ),
    ],
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Compute a release again from its measurements and compare every table's digest.

    A folder is replayed from its own files alone; a release of this installation from the
    ledger's measurements, and then ledger, safe store and bundle are compared.

    Example: pgsr audit replay public/household-sizes/2026-Q3
    """
    from flows.cli.screen import out, say_json

    folder = Path(release)
    found = _replayed(folder, release, home)
    if as_json:
        say_json({"equal": found.equal, "items": [vars(item) for item in found.items]})
    else:
        _show_items(found.items)
        if found.equal:
            out.print(f"[green]Equal:[/] all of {len(found.items)} items hold.")
        else:
            failed = sum(not item.passed for item in found.items)
            out.print(f"[bold red]DIFFERENT:[/] {failed} of {len(found.items)} items fail.")
    if not found.equal:
        raise typer.Exit(1)


def _replayed(folder: Path, name: str, home: Path | None) -> Replay:
    """A folder that is there is meant as a folder; anything else names a release."""
    from tasks.replay import NothingToReplay, replay_folder, replay_run
    from tasks.run import RunRef
    from tasks.storage.zones import NotARunName, split_run_name

    if folder.is_dir():
        return replay_folder(folder)
    try:
        product, number = split_run_name(name)
    except NotARunName:
        raise NothingToReplay(
            "there is no such folder, and a release is named PRODUCT/RELEASE. Remedy: give the "
            "bundle's folder, or a name that pgsr status shows."
        ) from None
    return replay_run(RunRef(str(home_at(home).root), product, number))


Day = Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Day, in UTC.")]


@audit.command()
def log(
    release: Annotated[
        str | None,
        typer.Argument(metavar="[PRODUCT/RELEASE]", help="One release; all by default."),
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Events of this kind only; may be repeated.")
    ] = None,
    product: Annotated[str | None, typer.Option(help="Events of this product only.")] = None,
    since: Day = None,
    until: Day = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify the whole chain and its witness as well.")
    ] = False,
    open_lineage: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write OpenLineage events there, one JSON a line."),
    ] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show who did what and when, what was spent and which checks passed.

    Example: pgsr audit log household-sizes/2026-Q3 --verify
    """
    from flows.cli.screen import err, say_json
    from tasks.storage.zones import split_run_name
    from tasks.timeline import Filter

    name = split_run_name(release) if release is not None else (product, None)
    wanted = Filter(
        kinds=tuple(kind or ()),
        product=name[0],
        release=name[1],
        since=since.date() if since else None,
        until=until.date() if until else None,
    )
    found = _log_of(home_at(home), verify=verify)
    shown = [event for event in found.events if wanted.takes(event)]
    if open_lineage is not None:
        _write_open_lineage(open_lineage, found.events, wanted)
    if as_json:
        verdict = {"intact": not found.problems, "problems": found.problems} if verify else {}
        say_json({"events": [vars(event) for event in shown], "head": vars(found.head), **verdict})
    else:
        _show_events(shown)
    if verify and not as_json:
        for problem in found.problems:
            err.print(f"[bold red]✗[/] {_harmless(problem)}", soft_wrap=True)
        _show_verdict(found)
    if found.problems:
        raise typer.Exit(1)


def _log_of(home: Home, *, verify: bool) -> Log:
    """The log; one that is not to be verified comes from a ledger that opens without complaint."""
    from flows.cli.screen import err
    from pgsr_core.chain import GENESIS
    from tasks.ledger.ledger import Ledger
    from tasks.timeline import Log, read_log

    found: Log | None
    if verify:
        found = read_log(home)
    else:
        ledger = Ledger.existing(home.ledger_url, witness=home.witness)
        found = Log(ledger.timeline(), ledger.head(), ()) if ledger is not None else None
    if found is None:
        err.print(f"No release was started in {home.root}; --home or PGSR_HOME names another.")
        return Log((), GENESIS, ("there is no ledger",) if verify else ())
    return found


def _show_events(events: Sequence[Event]) -> None:
    from flows.cli.screen import out, table
    from tasks.timeline import checks, describe, moment, spent

    numbers = ("#", "spent")
    columns = ("#", "when", "who", "what", "release", "spent", "checks", "facts")
    grid = table("Events", *columns, numbers=numbers)
    for event in events:
        about = "/".join(part for part in (event.product, event.release) if part)
        cells = (moment(event), event.actor, event.kind, about, spent(event), checks(event))
        grid.add_row(str(event.sequence), *map(_harmless, (*cells, describe(event))))
    out.print(grid)


def _harmless(text: str) -> str:
    """What somebody may have written into the ledger must not move a terminal's cursor."""
    from rich.markup import escape

    return escape("".join(sign if sign.isprintable() else "?" for sign in text))


def _show_verdict(found: Log) -> None:
    from flows.cli.screen import out

    if found.problems:
        out.print(f"[bold red]BROKEN:[/] {len(found.problems)} problems; see above.")
    else:
        out.print(
            f"[green]Intact:[/] {len(found.events)} events, chained and witnessed; the head is "
            f"{found.head.sequence} {found.head.hash}",
            soft_wrap=True,
        )


def _write_open_lineage(path: Path, events: Sequence[Event], wanted: Filter) -> None:
    """Releases are exported whole: a run needs its start, whatever is shown on the screen."""
    import json

    from pgsr_core.errors import PgsrError
    from tasks.timeline import Filter, open_lineage

    whole = Filter(product=wanted.product, release=wanted.release)
    lines = [json.dumps(run) for run in open_lineage([e for e in events if whole.takes(e)])]
    try:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise PgsrError(
            f"{path} cannot be written ({error.strerror}). Remedy: name a file in a folder that "
            "is there and writable."
        ) from None
