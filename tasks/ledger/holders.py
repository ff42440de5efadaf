"""Which ledger holds a population: a second one would give it a second budget, silently.

Every operating-system user has a list of the ledgers that releases of theirs opened, and of the
populations that each of them holds. Paths, names of servers and of populations: no credentials.
A ledger holds a population if something was charged to it there, or is reserved.
"""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from pgsr_core.errors import PgsrError, Refused, Unavailable
from tasks.ledger.database import identity_of
from tasks.ledger.ledger import Ledger
from tasks.storage.places import user_place
from tasks.storage.trust import HomeNotSafe, require_own
from tasks.storage.zones import (
    Home,
    StateNotWritten,
    make_private_folder,
    one_at_a_time,
    write_private,
)

FILE = "homes.json"
LOCK = "homes.lock"


class HeldElsewhere(Refused):
    """Another ledger of this user holds the population; nothing was charged."""

    def __init__(self, population: str, *, ledger: str, home: str) -> None:
        self.population = population
        self.ledger = ledger
        self.home = home
        use = f"set PGSR_LEDGER_URL to {ledger.replace('/', 'sqlite:////', 1)}"
        if not ledger.startswith("/"):
            use = "name that server in PGSR_LEDGER_URL"
        elif Path(ledger).parent == Path(home).resolve():
            use = f"add --home {shlex.quote(home)}, or set PGSR_HOME to it"
        super().__init__(
            f"population {population} is held by the ledger {ledger}; another one would give it a "
            f"second budget. Nothing was charged. Remedy: go on with that one ({use}); or, if "
            "these are other people, give the population another name in the configuration. A "
            "ledger that was given up for good: move its folder away."
        )


class KnownLedgerUnreadable(Unavailable):
    """Whether a known ledger holds the population cannot be told; nothing was charged."""

    def __init__(self, population: str, ledger: str) -> None:
        super().__init__(
            f"the ledger {ledger}, which this user released with, cannot be read; it may hold "
            f"population {population}, and another ledger would give it a second budget. Remedy: "
            "make it readable, or move it away if it was given up; then try again."
        )


class ListDamaged(PgsrError):
    """The list of this user's ledgers cannot be read; nothing was charged."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} cannot be read, so whether another ledger holds the population cannot be "
            "told. Remedy: restore it from a backup, or delete it: state folders are noted again "
            "as releases use them."
        )


class Known(BaseModel):
    """What the list says.

    Attributes:
        ledgers: each with the state folder that it was last opened from.
        populations: each with the ledger that holds it.
    """

    model_config = ConfigDict(extra="forbid")

    ledgers: dict[str, str] = {}
    populations: dict[str, str] = {}


def note_ledger(home: Home, population: str, *, cost: Fraction) -> str | None:
    """Enter a ledger into this user's list, before anything is charged there.

    Returns:
        Why that cannot be done, to be told: some services have no folder of their own.
    """
    if not _is_of_concern(home, population, cost):
        return None
    place = _place(create=True)
    if place is None:
        return (
            "this user has no folder for the list of ledgers (XDG_DATA_HOME, or .local/share in "
            f"the user's folder): whether another ledger holds population {population} is not "
            "asked."
        )
    ours = identity_of(home.ledger_url)
    if _read().ledgers.get(ours) != str(home.root):
        with one_at_a_time(place / LOCK):
            _note(place, ledgers={ours: str(home.root)})
    return None


def holder_elsewhere(home: Home, ledger: Ledger | None, population: str) -> HeldElsewhere | None:
    """The other ledger of this user that holds a population, as the error to raise.

    Of two that hold it already, the one that was noted first goes on.

    Args:
        home: the state folder in use.
        ledger: its ledger, if there is one.
        population: its name.

    Raises:
        KnownLedgerUnreadable: it cannot be told.
        ListDamaged: nor can this.
    """
    known = _read()
    ours = identity_of(home.ledger_url)
    noted = known.populations.get(population, ours)
    others = [noted] if noted != ours else []
    if ledger is None or not ledger.holds(population):
        others += known.ledgers
    for other in others:
        if other != ours and _holds(other, population, known):
            return HeldElsewhere(population, ledger=other, home=known.ledgers.get(other, other))
    return None


def refuse_held_elsewhere(
    home: Home, ledger: Ledger | None, population: str, *, cost: Fraction
) -> None:
    """Say no before any work is done, where `only_holder` would later; writes nothing.

    Raises:
        HeldElsewhere: another ledger of this user holds the population.
        KnownLedgerUnreadable, ListDamaged: whether one does cannot be told.
    """
    if _is_of_concern(home, population, cost) and (
        refusal := holder_elsewhere(home, ledger, population)
    ):
        raise refusal


@contextmanager
def only_holder(home: Home, ledger: Ledger, population: str, *, cost: Fraction) -> Iterator[None]:
    """Reserve inside of this: of all ledgers of this user, one at most comes to hold a population.

    Whoever is first to charge or reserve anything holds the list's lock meanwhile, so that two
    processes cannot both find that nobody holds it.

    Raises:
        HeldElsewhere: another ledger of this user holds the population.
        KnownLedgerUnreadable, ListDamaged: whether one does cannot be told.
    """
    place = _place(create=True) if _is_of_concern(home, population, cost) else None
    ours = identity_of(home.ledger_url)
    if place is None or (_is_noted(ours, population) and ledger.holds(population)):
        yield
        return
    with one_at_a_time(place / LOCK):
        _note(place, ledgers={ours: str(home.root)})
        if refusal := holder_elsewhere(home, ledger, population):
            raise refusal
        yield
        _note(place, populations={population: ours})


def _is_of_concern(home: Home, population: str, cost: Fraction) -> bool:
    """Not a simulation, and not the made-up people of an example in its own folder."""
    return cost > 0 and home.example != population


def _is_noted(ledger: str, population: str) -> bool:
    known = _read()
    return ledger in known.ledgers and known.populations.get(population) == ledger


def _holds(ledger: str, population: str, known: Known) -> bool:
    if not ledger.startswith("/"):
        # A server is not asked: that would need its password.
        return known.populations.get(population) == ledger
    try:
        Path(ledger).stat()
        return _file_holds(Path(ledger), population)
    except (FileNotFoundError, NotADirectoryError):
        return False  # deleted, moved, or on a disk that is not here
    except (OSError, sqlite3.Error):
        raise KnownLedgerUnreadable(population, ledger) from None


def _file_holds(path: Path, population: str) -> bool:
    """`Ledger.holds`, of a file of any version, which is neither verified nor written."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        tables = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'measurements'"
        if connection.execute(tables).fetchone() is None:
            return False
        paid = "SELECT 1 FROM measurements WHERE population = ? AND epsilon <> '0' LIMIT 1"
        return connection.execute(paid, (population,)).fetchone() is not None


def _place(*, create: bool = False) -> Path | None:
    """Where the list is; None where this user has no place for it that others cannot write."""
    try:
        place = user_place()
        require_own(place)
        if create:
            make_private_folder(place)
    except (HomeNotSafe, StateNotWritten):
        return None
    return place


def _read() -> Known:
    place = _place()
    if place is None:
        return Known()
    try:
        return Known.model_validate_json((place / FILE).read_bytes())
    except FileNotFoundError:
        return Known()
    except (OSError, ValidationError):
        raise ListDamaged(place / FILE) from None


def _note(place: Path, **added: dict[str, str]) -> None:
    """Add to the list; whoever calls this holds its lock."""
    known = _read()
    document: dict[str, Any] = known.model_dump()
    for part, entries in added.items():
        document[part] |= entries
    if document != known.model_dump():
        write_private(place / FILE, json.dumps(document, indent=2).encode())
