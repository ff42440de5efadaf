"""Where a state folder is looked for, and how one is told from any other folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

HOME_VARIABLE = "PGSR_HOME"
BESIDE = ".pgsr"
LEDGER_FILE = "ledger.sqlite"
WITNESS_FILE = "witness.json"
EXAMPLE_FILE = "example.json"


def user_place() -> Path:
    """This user's own folder for data, as the platform has it; it may not exist yet.

    A relative path in XDG_DATA_HOME or HOME, which would be another place from every folder, is
    left aside.
    """
    from platformdirs import user_data_path

    return user_data_path("pgsr", appauthor=False)


def default_root() -> Path:
    """The one state folder of this user, from whatever folder it is looked for."""
    return user_place() / "home"


def find_root(named: Path | None = None, *, beside: Path | None = None) -> Path:
    """Where state is kept: what is named, ``PGSR_HOME``, an old ``.pgsr``, the user's own folder.

    Args:
        named: by an option; it wins.
        beside: the configuration's folder; the working folder for commands without one.
    """
    if named is not None:
        return named.absolute()
    if variable := os.environ.get(HOME_VARIABLE):
        return Path(variable).absolute()
    old = (beside or Path.cwd()).absolute() / BESIDE
    return old if is_state_folder(old) else default_root()


def is_state_folder(folder: Path) -> bool:
    """Whether a folder holds state of ours; one that cannot be looked into may do so."""
    signs = (LEDGER_FILE, WITNESS_FILE, "runs", EXAMPLE_FILE)
    try:
        return any(_is_there(folder / sign) for sign in signs)
    except PermissionError:
        return True


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def example_of(root: Path) -> str | None:
    """The made-up population that a state folder was made for, by `pgsr synth` or `pgsr demo`."""
    try:
        noted = json.loads((root / EXAMPLE_FILE).read_bytes())
        return str(noted["population"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
