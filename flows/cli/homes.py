"""Which state folder a command uses, and how to call pgsr from here so that it is the same one."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tasks.storage.zones import Home

HomeFolder = Annotated[
    Path | None,
    typer.Option("--home", help="State folder [$PGSR_HOME, or this user's own].", metavar="FOLDER"),
]
# Every command that uses a state folder; those of a group before the group itself.
WITH_HOME = (
    "release", "resume", "check", "status", "serve", "doctor", "metrics", "purge", "withdraw",
    "repost", "budget raise", "budget", "ledger init", "ledger migrate", "ledger check",
    "ledger backup", "ledger export", "ledger restore", "audit log", "audit replay", "audit site",
    "alerts check", "alerts install",
)  # fmt: skip
_PRINTED = re.compile(rf"\bpgsr (?:{'|'.join(WITH_HOME)})\b(?! --home)")
_option = ""


def home_at(folder: Path | None, *, beside: Path | None = None) -> Home:
    """The state folder of a command; one that is not where it is expected is told.

    Args:
        folder: as `--home` names it.
        beside: the configuration's folder, for commands that name one.

    Raises:
        HomeNotSafe: others may write it, or it is somebody else's.
    """
    from tasks.storage.zones import Home

    home = Home.locate(folder, beside=beside)
    use(home)
    if folder is None and (note := _note_on(home)):
        from flows.cli.screen import warn

        warn(note)
    return home


def home_for(configuration: Path, folder: Path | None) -> Home:
    """The state folder of a command that names a configuration."""
    return home_at(folder, beside=configuration.absolute().parent)


def use(home: Home) -> None:
    """Let the commands that are printed from now on be about a state folder."""
    from tasks.storage.places import find_root

    global _option  # noqa: PLW0603  (a command uses one state folder)
    _option = "" if home.root == find_root() else f" --home {shlex.quote(str(home.root))}"


def option() -> str:
    """What a command needs, where one stands, to find the state folder in use; often nothing."""
    return _option


def runnable(text: str) -> str:
    """A text whose commands can be pasted where one stands, and find the state folder in use."""
    return _PRINTED.sub(lambda found: found[0] + _option, text)


def _note_on(home: Home) -> str | None:
    """Say that a state folder was found beside a configuration, and how to move it."""
    from tasks.storage.places import HOME_VARIABLE, default_root, example_of

    usual = default_root()
    if os.environ.get(HOME_VARIABLE) or home.root == usual:
        return None
    if example_of(home.root) is not None:
        return f"an example: its releases and their ledger are kept in {home.root}."
    there, here = shlex.quote(str(usual)), shlex.quote(str(home.root))
    move = f"mkdir -p -m 700 {shlex.quote(str(usual.parent))} && mv {here} {there}"
    how = f"add --home {there}" if usual.exists() else f"to move it: {move}"
    return f"state is kept in {home.root}, which was found here; by default in {usual} ({how})."
