"""`pgsr audit`: what a stranger can find out about a published release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.release import AsJson, HomeFolder, home_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgsr_core.attestation.keys import PublicKey
    from pgsr_core.replay import Replay
    from pgsr_core.verification import Item, Verification

audit = typer.Typer(
    name="audit",
    help="Verify and explain published releases.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@audit.command()
def verify(
    bundle: Annotated[Path, typer.Argument(help="Folder of the release.", show_default=False)],
    key: Annotated[
        Path,
        typer.Option(
            "--key", help="The publisher's public key; not from the bundle.", show_default=False
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Verify a bundle with the publisher's public key, offline, line by line.

    Example: pgsr audit verify public/household-sizes/2026-Q3 --key release.key.pub
    """
    from pgsr_core.verification import verify_bundle
    from tasks.bundles import FolderBundle
    from tasks.keys import read_public_key

    public_key = read_public_key(key)
    found = verify_bundle(FolderBundle(bundle), public_key)
    if as_json:
        _say_json(found, public_key)
    else:
        _show(found, public_key)
    if not found.verified:
        raise typer.Exit(1)


def _say_json(found: Verification, key: PublicKey) -> None:
    from flows.cli.screen import say_json

    say_json(
        {
            "verified": found.verified,
            "keyid": key.keyid,
            "provenance": found.provenance.to_json() if found.provenance else None,
            "items": [vars(item) for item in found.items],
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
