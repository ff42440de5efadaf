"""Which configurations were served: what a scheduled run may be told to run, by path and digest.

The record is a file of the installation that its owner alone can write. A run that a scheduler
starts names a path; only one that was served, with the content that was served, is run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pgsr_core.errors import Refused
from tasks.storage.zones import Home, one_at_a_time, write_private

_SERVE_AGAIN = (
    "Remedy: if it is to be released as it is now, start pgsr serve anew with it (a work pool: "
    "run pgsr serve CONFIG… --prefect-yaml FILE again, in every PGSR_HOME that workers use)."
)


class NotServed(Refused):
    """A run was started for a configuration that nobody served from this installation."""

    def __init__(self, path: Path, home: Home) -> None:
        super().__init__(
            f"{path} was not served from {home.root}; nothing was run or charged. {_SERVE_AGAIN}"
        )


class EditedSinceServed(Refused):
    """A configuration is not what it was when it was served."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} was edited since it was served: scheduled runs of it are refused, and charge "
            f"nothing. {_SERVE_AGAIN}"
        )


class ServedElsewhere(Refused):
    """A configuration keeps its state in another folder than the process that was to run it."""

    def __init__(self, path: Path, home: Home) -> None:
        super().__init__(
            f"{path} does not keep its state in {home.root}, where it was served; nothing was run "
            "or charged. Remedy: set PGSR_HOME for the worker as for pgsr serve."
        )


@dataclass(frozen=True)
class Served:
    """A product's configuration as it was served."""

    product: str
    path: Path
    digest: str

    @classmethod
    def now(cls, product: str, path: Path) -> Served:
        """A product's configuration as it is now."""
        path = _plain(path)
        return cls(product, path, _digest(path))

    @property
    def is_edited(self) -> bool:
        """Whether the file is another one by now, or gone."""
        try:
            return _digest(self.path) != self.digest
        except OSError:
            return True


def record_served(home: Home, configurations: Iterable[Served]) -> None:
    """Note what is served; of each product, the last one counts."""
    home.create()
    with one_at_a_time(home.root / "served.lock"):
        found = {each.product: each for each in read_served(home)}
        found.update({each.product: each for each in configurations})
        document = {
            name: {"configuration": str(each.path), "sha256": each.digest}
            for name, each in sorted(found.items())
        }
        write_private(_file(home), json.dumps(document, indent=2).encode())


def read_served(home: Home) -> tuple[Served, ...]:
    """What was served from an installation; a record that cannot be read names nothing."""
    try:
        document = json.loads(_file(home).read_bytes())
        return tuple(
            Served(product, Path(noted["configuration"]), noted["sha256"])
            for product, noted in document.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()


def require_served(home: Home, configuration: Path) -> Served:
    """The record of a configuration that may be run.

    Raises:
        NotServed: there is none.
        EditedSinceServed: the file is not what it was.
    """
    path = _plain(configuration)
    for served in read_served(home):
        if served.path == path:
            if served.is_edited:
                raise EditedSinceServed(path)
            return served
    raise NotServed(path, home)


def _plain(path: Path) -> Path:
    """The path from the root on. Links are not followed: data are looked for beside the path."""
    return Path(os.path.abspath(path))  # noqa: PTH100  (absolute() leaves .. in the path)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _file(home: Home) -> Path:
    return home.root / "served.json"
