"""Intermediate tables that were forged or cut: the run stops, and no noise is drawn again."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from unittest import mock

from benchmarks.torture.driver import POPULATION, RELEASE, Place, Places, Protocol
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
IN_LEDGER = {
    "chunk forged": "UPDATE measurement_chunks SET data = CAST(x'00' || substr(data, 2) AS BLOB)",
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


def torture(places: Places) -> Trials:
    trials, sound = Trials(), measured(places)
    for name, statement in STORED.items():
        place = places.copy_of(sound)
        with connect(place.safe_store(RELEASE), threads=1) as connection:
            connection.execute(statement.format("measurements"))
        trials.note(name, rerun_on(place))
    for name, statement in IN_LEDGER.items():
        place = places.copy_of(sound)
        shutil.rmtree(place.safe_store(RELEASE).parent)
        with contextlib.closing(sqlite3.connect(ledger_file(place))) as connection:
            connection.execute(statement)
            connection.commit()
        trials.note(name, rerun_on(place))
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
