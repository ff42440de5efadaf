"""A ledger that was edited, cut, reordered or put back: told when opened, checked and read."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from benchmarks.torture.driver import PRODUCT, Place, Places, Protocol
from benchmarks.torture.rows import Effort, Row, Torture
from pgsr_core.errors import Refused
from tasks.ledger.witness import Witness
from tasks.timeline import read_log

RELEASES = 2
CUT = (
    "DELETE FROM events WHERE sequence > {0};"
    "UPDATE head SET sequence = {0}, hash = (SELECT hash FROM events WHERE sequence = {0})"
)
BOOKS = {
    "charge deleted": "DELETE FROM charges WHERE rowid = 1",
    "charge made smaller": "UPDATE charges SET epsilon = '1/300' WHERE rowid = 1",
    "charge moved": "INSERT INTO populations VALUES ('others', '1');"
    "UPDATE charges SET population = 'others'",
    "digest changed": "UPDATE measurements SET digest = printf('%064d', 7) WHERE rowid = 1",
    "to be drawn again": "UPDATE measurements SET digest = NULL",
    "budget raised": "UPDATE populations SET budget = '100'",
    "head deleted": "DELETE FROM head",
    "all events deleted": "DELETE FROM events",
}


def edits(events: int) -> dict[str, str]:
    """Every event edited, deleted, swapped with the next, and cut off with all after it."""
    made = dict(BOOKS)
    for n in range(1, events + 1):
        made[f"event {n} edited"] = f"UPDATE events SET actor = 'x@y' WHERE sequence = {n}"  # noqa: S608
        made[f"event {n} emptied"] = f"UPDATE events SET facts = '{{}}' WHERE sequence = {n}"  # noqa: S608
        made[f"event {n} deleted"] = f"DELETE FROM events WHERE sequence = {n}"  # noqa: S608
        if n < events:
            made[f"cut after {n}"] = CUT.format(n)
            made[f"events {n} and {n + 1} swapped"] = (
                f"UPDATE events SET sequence = -1 WHERE sequence = {n};"  # noqa: S608
                f"UPDATE events SET sequence = {n} WHERE sequence = {n + 1};"
                f"UPDATE events SET sequence = {n + 1} WHERE sequence = -1"
            )
    return made


def ledger_file(place: Place) -> Path:
    return place.home.root / "ledger.sqlite"


def edited(place: Place, script: str) -> None:
    with contextlib.closing(sqlite3.connect(ledger_file(place))) as connection:
        connection.executescript(script)
        connection.commit()


def told(place: Place) -> bool:
    """Whether opening refuses it, and check and log find something wrong."""
    try:
        place.as_new_process()
    except Refused:
        log = read_log(place.home)  # verified with everything that `pgsr ledger check` looks at
        return log is not None and bool(log.problems)
    return False


def sound_ledger(places: Places) -> tuple[Place, list[Path]]:
    """A ledger with a few measured releases, and a backup of it after each step."""
    place, backups = places.fresh(), []
    for number in range(RELEASES):
        driver = Protocol(place, release=f"r{number}", population=f"p{number}")
        ledger = place.ledger()
        for step in (driver.measure, lambda to: to.record("computed", PRODUCT, "r", digest="d")):
            step(ledger)
            backup = place.root / f"backup-{len(backups)}.sqlite"
            with contextlib.closing(sqlite3.connect(ledger_file(place))) as connection:
                connection.execute("VACUUM INTO ?", [str(backup)])
            backups.append(backup)
    return place, backups


def undetected(places: Places) -> tuple[int, list[str]]:
    """Damage copies of a sound ledger in every way; how many ways, and which were not told."""
    sound, backups = sound_ledger(places)
    ways: dict[str, Callable[[Place], object]] = {
        name: (lambda place, script=script: edited(place, script))
        for name, script in edits(sound.ledger().head().sequence).items()
    }
    ways |= {
        f"rolled back to {old.name}": (
            lambda place, old=old: shutil.copyfile(old, ledger_file(place))
        )
        for old in backups[:-1]
    }
    missed = []
    for name, damage in ways.items():
        place = places.copy_of(sound)
        if told(place):
            missed.append(f"{name}: told before anything was done")
        damage(place)
        if not told(place):
            missed.append(name)
    return len(ways), missed


def run(effort: Effort) -> Iterator[Row]:
    places = Places(effort.folder / "places")
    ways, missed = undetected(places)
    with mock.patch.object(Witness, "read", return_value=None):
        _, unseen = undetected(places)
    yield Row(
        "ledger edited, deleted, reordered, truncated, rolled back",
        f"{ways - len(missed)} of {ways} detected",
        "100% detected",
        not missed,
        f"a ledger without its witness: {len(unseen)} not detected",
        bool(unseen),
        missed,
    )


TORTURE = Torture("histories", run)
