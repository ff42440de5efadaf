"""A crash at every boundary at which anything is persisted, then a rerun."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.torture.boundaries import Counter, die, watch
from benchmarks.torture.driver import Places, Protocol
from benchmarks.torture.mutants import DrawSeenBeforeCharge
from benchmarks.torture.processes import in_child, note_rerun
from benchmarks.torture.rows import Effort, Row, Torture, Trials


def boundaries_of(places: Places, kind: type[Protocol]) -> list[str]:
    """The kinds of all boundaries that an undisturbed release passes, in their order."""

    place = places.fresh()

    def work() -> list[str]:
        counter = Counter(-1, die)
        watch(counter)
        kind(place, reach=lambda point: counter(f"at {point}")).run()
        return counter.kinds

    return in_child(work).said or []


def crash_at_every(
    places: Places, kind: type[Protocol], *, step: int = 1, until_caught: bool = False
) -> tuple[Trials, int]:
    """Kill at every boundary (or every step-th) and run again; how many were reached."""
    trials, reached = Trials(), 0
    passed = boundaries_of(places, kind)
    for number in range(0, len(passed), step):
        if until_caught and trials.violations:
            break
        driver = kind(places.fresh())

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
    step = effort.times(1, 12)
    trials, reached = crash_at_every(places, Protocol, step=step)
    mutant, _ = crash_at_every(places, DrawSeenBeforeCharge, step=3, until_caught=True)
    share = reached / trials.tried if trials.tried else 0
    yield Row(
        "failpoint at every persisted boundary, crash, rerun",
        f"{reached}/{trials.tried} boundaries ({share:.0%}), {len(trials.violations)} violations",
        "100% of boundaries, 0 violations",
        bool(trials.tried) and reached == trials.tried and not trials.violations,
        f"draw visible before charge: {mutant.count('crashes')}",
        bool(mutant.violations),
        trials.violations,
    )


TORTURE = Torture("failpoints", run)
