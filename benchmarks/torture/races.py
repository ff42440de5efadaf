"""Many processes that start the same release at the same moment, on SQLite and PostgreSQL."""

from __future__ import annotations

import multiprocessing
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from typing import Any, TypeVar

from benchmarks.torture.driver import MEASUREMENTS, Place, Protocol, digest_of, empty_place
from benchmarks.torture.evidence import look, unfinished, violations
from benchmarks.torture.mutants import NoKey, UnhurriedNonAtomicPublish
from benchmarks.torture.processes import in_child
from benchmarks.torture.rows import Effort, Row, Torture, Trials
from benchmarks.torture.servers import postgresql
from pgsr_core.errors import Unavailable
from tasks.ledger.ledger import Reservation
from tasks.publication.place import recorded_digests

RACERS = 8
SECONDS = 120
T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """How a racer ended a round: whether it drew, and the draw that it read or its error."""

    round: int
    drew: bool
    read: str | None = None
    error: str | None = None


class Starter(Protocol):
    """Goes as far as the draw; waits for the one who draws, and remembers if it drew itself."""

    drew = False

    def draw(self) -> Any:
        self.drew = True
        return super().draw()

    def result(self) -> str:
        """Do it, and return the digest of the draw that could be read afterwards."""
        ledger = self.place.ledger()
        held = patiently(lambda: ledger.reserve(self.request()), pause=0.005)
        if isinstance(held, Reservation):
            held = self.draw_and_commit(ledger, held)
        return digest_of(MEASUREMENTS, ledger.values(held))


class Publisher(Starter):
    """Goes all the way, again and again until it is told that the release is published."""

    def result(self) -> str:
        return recorded_digests(patiently(self.run, pause=0.05).folder)[MEASUREMENTS]


def patiently(action: Callable[[], T], *, pause: float) -> T:
    """Try again, after about that many seconds, as long as the answer is that this is safe."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            return action()
        except Unavailable:
            if time.monotonic() > end:
                raise
            # Not all at the same moment again: one file of DuckDB has one writer.
            time.sleep(pause * secrets.choice((0.5, 1, 2, 4)))


class StarterWithoutKey(NoKey, Starter):
    """Finds nobody else's measurement."""


class PublisherOfParts(UnhurriedNonAtomicPublish, Publisher):
    """Others see its bundle before it is whole."""


def race(place: Place, kind: type[Starter], rounds: int, gate: Barrier, said: SimpleQueue) -> None:
    for number in range(rounds):
        racer = kind(place, release=f"round-{number}", population=f"people-{number}")
        gate.wait(timeout=SECONDS)
        # Opened anew each round: in the first one all of them create the tables.
        try:
            read = racer.result()
        except Exception as error:  # everybody goes on to the next round
            said.put(Outcome(number, racer.drew, error=f"{type(error).__name__}: {error}"))
        else:
            said.put(Outcome(number, racer.drew, read))


def races(place: Place, kind: type[Starter], *, rounds: int) -> Trials:
    context = multiprocessing.get_context("fork")
    gate, said = context.Barrier(RACERS), context.SimpleQueue()
    racers = [
        context.Process(target=race, args=(place, kind, rounds, gate, said)) for _ in range(RACERS)
    ]
    for racer in racers:
        racer.start()
    outcomes: list[Outcome] = []
    while len(outcomes) < RACERS * rounds and _some_alive_or_said(racers, said):
        if not said.empty():
            outcomes.append(said.get())
    for racer in racers:
        racer.join(timeout=SECONDS)
    trials = Trials()
    for number in range(rounds):
        of_round = [outcome for outcome in outcomes if outcome.round == number]
        # Looked at elsewhere: a process that has used DuckDB must not fork.
        wrong = in_child(lambda: _judge(place, kind, number, of_round)).said  # noqa: B023
        trials.note(f"round {number}", wrong or [])
    return trials


def _some_alive_or_said(racers: list[Any], said: SimpleQueue) -> bool:
    time.sleep(0 if not said.empty() else 0.002)
    return not said.empty() or any(racer.is_alive() for racer in racers)


def _judge(
    place: Place, kind: type[Starter], number: int, outcomes: list[Outcome]
) -> Iterator[str]:
    seen = look(place, release=f"round-{number}", population=f"people-{number}")
    yield from violations(seen)
    if issubclass(kind, Publisher):
        yield from unfinished(seen)
    if len(outcomes) != RACERS:
        yield f"{RACERS - len(outcomes)} processes died"
    yield from (outcome.error for outcome in outcomes if outcome.error is not None)
    draws = sum(outcome.drew for outcome in outcomes)
    if (seen.charges, draws) != (1, 1):
        yield f"{seen.charges} charges, {draws} draws"
    if {outcome.read for outcome in outcomes} != seen.drawn:
        yield "not everybody read the same draw"


@dataclass(frozen=True)
class Course:
    """One kind of race: who runs, what comes of it, and the mutant that must be caught."""

    name: str
    racer: type[Starter]
    figure: str
    rounds: tuple[int, int]
    mutant_name: str
    mutant: type[Starter]


STARTS = Course(
    "concurrent starts of one release",
    Starter,
    "1 charge, 1 draw",
    (50, 2),
    "no key",
    StarterWithoutKey,
)
PUBLICATIONS = Course(
    "concurrent runs of one release to its publication",
    Publisher,
    "1 charge, 1 draw, 1 bundle of it",
    (12, 1),
    "non-atomic publish, file after file",
    PublisherOfParts,
)


def run(effort: Effort) -> Iterator[Row]:
    with postgresql(effort.folder) as database:
        for course in (STARTS, PUBLICATIONS):
            for server in ("SQLite", "PostgreSQL"):
                name = f"{course.racer.__name__}_{server}".lower()
                urls = [
                    database(f"{name}_{kind}") if server == "PostgreSQL" else None
                    for kind in ("sound", "mutant")
                ]
                places = [
                    empty_place(effort.folder / f"{name}-{number}", url)
                    for number, url in enumerate(urls)
                ]
                yield _row(course, server, places, effort.times(*course.rounds))


def _row(course: Course, server: str, places: list[Place], rounds: int) -> Row:
    trials = races(places[0], course.racer, rounds=rounds)
    mutant = races(places[1], course.mutant, rounds=2)
    good = trials.tried - len({wrong.split(":")[0] for wrong in trials.violations})
    return Row(
        f"{course.name}, {RACERS} processes, {server}",
        f"{course.figure} in {good} of {rounds} rounds",
        f"{course.figure} in {rounds} of {rounds} rounds",
        good == rounds,
        f"{course.mutant_name}: {mutant.count('rounds')}",
        bool(mutant.violations),
        trials.violations,
    )


TORTURE = Torture("races", run)
