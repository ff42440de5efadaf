"""A crash at every boundary at which anything is persisted, then a rerun."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from benchmarks.torture.boundaries import Counter, die, watch
from benchmarks.torture.driver import Places, Protocol, empty_place
from benchmarks.torture.mutants import DrawSeenBeforeCharge, TwoTransactions
from benchmarks.torture.processes import in_child, note_rerun
from benchmarks.torture.rows import Effort, Row, Torture, Trials
from benchmarks.torture.servers import postgresql

# Makes a driver of a release that nobody has begun.
Maker = Callable[[], Protocol]
# What a ledger on a server sees; the rest of a release is the same as on SQLite.
OF_THE_LEDGER = ("statement", "commit", "at ")


def boundaries_of(make: Maker) -> list[str]:
    """The kinds of all boundaries that an undisturbed release passes, in their order."""
    driver = make()

    def work() -> list[str]:
        counter = Counter(-1, die)
        watch(counter)
        replace(driver, reach=lambda point: counter(f"at {point}")).run()
        return counter.kinds

    return in_child(work).said or []


def crash_at_every(
    make: Maker,
    *,
    step: int = 1,
    only: Sequence[str] = ("",),
    until_caught: bool = False,
) -> tuple[Trials, int]:
    """Kill at every boundary of some kinds (or every step-th) and run again.

    Returns:
        the trials, and at how many of the boundaries the process was killed indeed.
    """
    trials, reached = Trials(), 0
    passed = boundaries_of(make)
    chosen = [n for n, kind in enumerate(passed) if kind.startswith(tuple(only))][::step]
    for number in chosen:
        if until_caught and trials.violations:
            break
        driver = make()

        def work(number: int = number, driver: Protocol = driver) -> list[str]:
            counter = Counter(number, die)
            watch(counter)
            replace(driver, reach=lambda point: counter(f"at {point}")).run()
            return []

        reached += in_child(work).said is None
        note_rerun(trials, f"boundary {number} ({passed[number]})", driver)
    return trials, reached


def run(effort: Effort) -> Iterator[Row]:
    places = Places(effort.folder / "places")
    trials, reached = crash_at_every(lambda: Protocol(places.fresh()), step=effort.times(1, 12))
    mutant, _ = crash_at_every(
        lambda: DrawSeenBeforeCharge(places.fresh()), step=3, until_caught=True
    )
    what = "failpoint at every persisted boundary, crash, rerun"
    yield _row(what, trials, reached, "draw visible before charge", mutant)
    with postgresql(effort.folder) as database:
        yield _on_server(effort, database("ledger"))


def _on_server(effort: Effort, url: str) -> Row:
    """Every release is one of the same ledger, as in an office where several machines release."""
    place, numbers = empty_place(effort.folder / "on-server", url), itertools.count()

    def make(kind: type[Protocol]) -> Protocol:
        number = next(numbers)
        return kind(place, release=f"r{number}", population=f"p{number}")

    boundaries_of(lambda: make(Protocol))  # makes the tables
    trials, reached = crash_at_every(
        lambda: make(Protocol), step=effort.times(1, 12), only=OF_THE_LEDGER
    )
    mutant, _ = crash_at_every(lambda: make(TwoTransactions), only=("commit",), until_caught=True)
    what = "failpoint at every statement and commit on PostgreSQL, crash, rerun"
    return _row(what, trials, reached, "two transactions", mutant)


def _row(what: str, trials: Trials, reached: int, broken: str, mutant: Trials) -> Row:
    share = reached / trials.tried if trials.tried else 0
    return Row(
        what,
        f"{reached}/{trials.tried} boundaries ({share:.0%}), {len(trials.violations)} violations",
        "100% of boundaries, 0 violations",
        bool(trials.tried) and reached == trials.tried and not trials.violations,
        f"{broken}: {mutant.count('crashes')}",
        bool(mutant.violations),
        trials.violations,
    )


TORTURE = Torture("failpoints", run)
