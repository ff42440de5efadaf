"""Many folders with a state folder each, and one population, at the same moment: one purse."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing.synchronize import Barrier
from pathlib import Path
from unittest import mock

from benchmarks.torture.driver import EPSILON, Place, Protocol, empty_place
from benchmarks.torture.rows import Effort, Row, Torture, Trials
from tasks.ledger import holders
from tasks.ledger.holders import HeldElsewhere, only_holder
from tasks.ledger.ledger import Ledger, Reservation

FOLDERS = 6
SECONDS = 120
USER_DATA = "XDG_DATA_HOME"


def charge(place: Place, population: str, gate: Barrier) -> None:
    """Reserve, draw and commit as the noise stage does, from a folder of its own."""
    protocol = Protocol(place, population=population)
    gate.wait(timeout=SECONDS)
    ledger = place.ledger()
    try:
        with only_holder(place.home, ledger, population, cost=EPSILON):
            time.sleep(0.01)  # the worst moment: it was asked, and nothing is written yet
            held = ledger.reserve(protocol.request())
    except HeldElsewhere:
        return
    if isinstance(held, Reservation):
        protocol.draw_and_commit(ledger, held)


def rounds(folder: Path, number: int) -> Trials:
    """Let all folders go for a new population, as often as is said, and count who was charged."""
    context = multiprocessing.get_context("fork")
    trials = Trials()
    for turn in range(number):
        gate = context.Barrier(FOLDERS)
        places = [empty_place(folder / f"{turn}-{each}") for each in range(FOLDERS)]
        racers = [
            context.Process(target=charge, args=(place, f"people-{turn}", gate)) for place in places
        ]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join(timeout=SECONDS)
        died = [f"exit code {racer.exitcode}" for racer in racers if racer.exitcode]
        charged = sum(_spent(place.ledger(), f"people-{turn}") for place in places)
        wrong = [] if charged == 1 else [f"{charged} of {FOLDERS} ledgers were charged"]
        trials.note(f"round {turn}", [*died, *wrong])
    return trials


def _spent(ledger: Ledger, population: str) -> bool:
    return any(account.population == population and account.spent for account in ledger.accounts())


@contextmanager
def user_of(folder: Path) -> Iterator[Path]:
    """A user whose list of ledgers is empty."""
    folder.mkdir()
    with mock.patch.dict(os.environ, {USER_DATA: str(folder / "data")}):
        yield folder


def run(effort: Effort) -> Iterator[Row]:
    number = effort.times(40, 2)
    with user_of(effort.folder / "sound") as folder:
        trials = rounds(folder, number)
    unlocked = mock.patch.object(holders, "one_at_a_time", return_value=nullcontext())
    with user_of(effort.folder / "mutant") as folder, unlocked:
        mutant = rounds(folder, 3)
    good = number - len({wrong.split(":")[0] for wrong in trials.violations})
    yield Row(
        f"{FOLDERS} folders with ledgers of their own, one population, at once",
        f"1 ledger was charged in {good} of {number} rounds",
        f"1 ledger was charged in {number} of {number} rounds",
        good == number,
        f"no lock around the look and the reservation: {mutant.count('rounds')}",
        bool(mutant.violations),
        trials.violations,
    )


TORTURE = Torture("purses", run)
