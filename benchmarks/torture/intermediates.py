"""Intermediate tables that were forged or cut: the run stops, and no noise is drawn again."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import zlib
from collections.abc import Iterator
from unittest import mock

from benchmarks.torture.driver import POPULATION, PRODUCT, RELEASE, Place, Places, Protocol
from benchmarks.torture.evidence import look, unfinished, violations
from benchmarks.torture.histories import ledger_file
from benchmarks.torture.rows import Effort, Row, Torture, Trials
from pgsr_core.errors import Refused
from tasks.storage.duck import connect
from tasks.storage.tables import MatrixStore, TableRef

STORED = {
    "a value forged": "UPDATE {0} SET value = value + 1 WHERE region_index = 1 AND size = 2",
    "a row deleted": "DELETE FROM {0} WHERE region_index = 2 AND size = 3",
    "all rows deleted": "DELETE FROM {0}",
    "a row doubled": "INSERT INTO {0} SELECT * FROM {0} LIMIT 1",
    "two rows swapped": "UPDATE {0} SET size = 4 - size WHERE region_index = 1",
    "the table dropped": "DROP TABLE {0}",
}
OF_RELEASE = "WHERE key = (SELECT key FROM measurements WHERE product = ? AND release = ?)"
IN_LEDGER = {
    "chunk of other numbers": "UPDATE measurement_chunks SET data = forged(data)",
    "chunk with a wrong byte": "UPDATE measurement_chunks "
    "SET data = CAST(x'00' || substr(data, 2) AS BLOB)",
    "chunk cut": "UPDATE measurement_chunks SET data = substr(data, 1, 20)",
    "chunk deleted": "DELETE FROM measurement_chunks",
}


class Halted(Exception):
    """The run was stopped before post-processing."""


def measured(places: Places) -> Place:
    """A release whose measurements are stored and nothing after them."""
    place = places.fresh()

    def halt(point: str) -> None:
        if point == "materialised":
            raise Halted

    with contextlib.suppress(Halted):
        Protocol(place, reach=halt).run()
    return place


def damaged_chunks(place: Place, release: str, damage: str) -> list[tuple[int, bytes]]:
    """Damage the measurements of a release in the ledger; returns what they were."""
    with contextlib.closing(sqlite3.connect(ledger_file(place))) as connection:
        connection.create_function("forged", 1, _forged)
        chunks = f"SELECT number, data FROM measurement_chunks {OF_RELEASE}"  # noqa: S608
        held = connection.execute(chunks, (PRODUCT, release)).fetchall()
        connection.execute(f"{IN_LEDGER[damage]} {OF_RELEASE}", (PRODUCT, release))
        connection.commit()
    return held


def restored_chunks(place: Place, release: str, held: list[tuple[int, bytes]]) -> None:
    """Put the measurements of a release back, as from a backup."""
    with contextlib.closing(sqlite3.connect(ledger_file(place))) as connection:
        for number, data in held:
            connection.execute(
                "INSERT OR REPLACE INTO measurement_chunks (key, number, data) SELECT key, ?, ? "
                "FROM measurements WHERE product = ? AND release = ?",
                (number, data, PRODUCT, release),
            )
        connection.commit()


def _forged(data: bytes) -> bytes:
    """A chunk that can be read, of another number."""
    content = bytearray(zlib.decompress(data))
    content[0] ^= 1
    return zlib.compress(bytes(content))


def rerun_on(place: Place) -> list[str]:
    """Run again on a damaged table; anything but a stop with nothing changed is wrong."""
    ledger = place.ledger()
    before = (ledger.head(), ledger.charges(POPULATION))
    wrong = []

    def drawn(_self: Protocol) -> None:
        wrong.append("noise was drawn again")

    with mock.patch.object(Protocol, "draw", drawn):
        try:
            Protocol(place).run()
            wrong.append("the run went on")
        except Refused:
            pass
        except Exception as error:  # a stop, but not one that says what to do
            wrong.append(f"an untyped {type(error).__name__}")
    if (ledger.head(), ledger.charges(POPULATION)) != before:
        wrong.append("the ledger was changed")
    if place.bundle(RELEASE).exists():
        wrong.append("something was published")
    return wrong


def finished_on(place: Place) -> list[str]:
    """Run again on what was restored; say what is wrong with the end."""
    try:
        Protocol(place).run()
    except Exception as error:  # whatever it is, the remedy did not help
        return [f"{type(error).__name__}: {error}"]
    seen = look(place, release=RELEASE, population=POPULATION)
    return [*violations(seen), *unfinished(seen)]


def torture(places: Places) -> Trials:
    trials, sound = Trials(), measured(places)
    for name, statement in STORED.items():
        place = places.copy_of(sound)
        with connect(place.safe_store(RELEASE), threads=1) as connection:
            connection.execute(statement.format("measurements"))
        trials.note(name, rerun_on(place))
    for name in IN_LEDGER:
        place = places.copy_of(sound)
        shutil.rmtree(place.safe_store(RELEASE).parent)
        held = damaged_chunks(place, RELEASE, name)
        trials.note(name, rerun_on(place))
        restored_chunks(place, RELEASE, held)
        trials.note(f"{name}, restored", finished_on(place))
    return trials


def read_unchecked(store: MatrixStore, ref: TableRef, *, sizes: range) -> object:
    """The mutant: rows are read without a look at their digest."""
    return store._read_matrix(ref.table, sizes)


def run(effort: Effort) -> Iterator[Row]:
    places = Places(effort.folder / "places")
    trials = torture(places)
    with mock.patch.object(MatrixStore, "read", read_unchecked):
        mutant = torture(places)
    yield Row(
        "forged or truncated intermediate table",
        trials.count("forgeries"),
        "stops, never recomputes noise",
        not trials.violations,
        f"digest not checked: {mutant.count('forgeries')}",
        bool(mutant.violations),
        trials.violations,
    )


TORTURE = Torture("intermediates", run)
