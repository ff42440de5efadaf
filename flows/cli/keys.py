"""`pgsr keys`: make the pair of keys that releases are signed and verified with."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.release import AsJson

keys = typer.Typer(
    name="keys",
    help="Make and show the keys that releases are signed with.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

PrivateKeyFile = Annotated[
    Path, typer.Argument(help="File of the private key.", show_default=False)
]
PassphraseVariable = Annotated[
    str | None,
    typer.Option(
        "--passphrase-env",
        metavar="NAME",
        help="Name of the environment variable that holds the passphrase.",
    ),
]


@keys.command()
def new(
    file: PrivateKeyFile,
    passphrase_env: PassphraseVariable = None,
    ask_passphrase: Annotated[
        bool, typer.Option("--ask-passphrase", help="Protect the key; asks for the passphrase.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a new key: FILE (0600, keep it secret) and FILE.pub (give it to everyone).

    Example: pgsr keys new release.key --ask-passphrase
    """
    from flows.cli.screen import out, say_json
    from tasks.keys import create_key, passphrase_from_environment

    passphrase = None
    if passphrase_env is not None:
        passphrase = passphrase_from_environment(passphrase_env)
    elif ask_passphrase:
        passphrase = _new_passphrase()
    made = create_key(file, passphrase=passphrase)
    if as_json:
        say_json({"private": made.private, "public": made.public, "keyid": made.keyid})
        return
    out.print(f"Private  {made.private} (keep it secret)", soft_wrap=True, markup=False)
    out.print(f"Public   {made.public} (publish it)", soft_wrap=True, markup=False)
    out.print(f"Key id   {made.keyid}", soft_wrap=True)


@keys.command()
def public(
    file: PrivateKeyFile, passphrase_env: PassphraseVariable = None, as_json: AsJson = False
) -> None:
    """Print the public half of a private key, for those who verify.

    Example: pgsr keys public release.key > release.key.pub
    """
    from flows.cli.screen import err, out, say_json
    from tasks.keys import needs_passphrase, passphrase_from_environment, read_private_key

    passphrase = None
    if passphrase_env is not None:
        passphrase = passphrase_from_environment(passphrase_env)
    elif needs_passphrase(file) and sys.stdin.isatty():
        passphrase = _typed("Passphrase: ")
    key = read_private_key(file, passphrase=passphrase).public
    pem = key.to_pem().decode()
    if as_json:
        say_json({"public": pem, "keyid": key.keyid})
        return
    out.file.write(pem)
    err.print(f"Key id {key.keyid}", soft_wrap=True)


def _new_passphrase() -> bytes:
    from tasks.keys import NoPassphrase

    passphrase = _typed("New passphrase: ")
    if not passphrase or passphrase != _typed("Again: "):
        raise NoPassphrase(
            "the passphrase is empty, or was typed differently the second time; no key was made. "
            "Remedy: try again."
        )
    return passphrase


def _typed(prompt: str) -> bytes:
    import getpass

    return getpass.getpass(prompt).encode()
