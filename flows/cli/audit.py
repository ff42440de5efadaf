"""`pgsr audit`: what a stranger can find out about a published release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.release import AsJson

if TYPE_CHECKING:
    from pgsr_core.attestation.keys import PublicKey
    from pgsr_core.verification import Verification

audit = typer.Typer(
    name="audit",
    help="Verify and explain published releases.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@audit.callback()
def _audit() -> None:
    """Keep `verify` a command of its own, also while it is the only one."""


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


def _show(found: Verification, key: PublicKey) -> None:
    from flows.cli.screen import out

    width = max(len(item.name) for item in found.items)
    for item in found.items:
        mark = "[green]✓[/]" if item.passed else "[bold red]✗[/]"
        out.print(f"{mark} {item.name:<{width}}", end="  ")
        out.print(item.sentence, markup=False, soft_wrap=True)
    if found.verified:
        out.print(f"[green]Verified:[/] all of {len(found.items)} items hold.")
        out.print(f"Compare the key id with the one that the publisher announces: {key.keyid}")
    else:
        out.print(f"[bold red]NOT VERIFIED:[/] {len(found.failed)} of {len(found.items)} fail.")
