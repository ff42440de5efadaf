"""A clock that is moved by a year either way: neither order nor verification depend on it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.torture.driver import PRODUCT, Place, Places, Protocol
from benchmarks.torture.rows import Effort, Row, Torture, Trials
from pgsr_core.chain import Event, verify_chain
from tasks.ledger.inspection import check_ledger

YEAR = 365.25 * 86_400
MOVES = (0.0, YEAR, -YEAR, 0.0)


def moved(places: Places, years: tuple[float, ...]) -> Place:
    """Measure one release after another, each under a clock that was moved meanwhile."""
    place = places.fresh()
    for number, shift in enumerate(years):
        there = replace(place, clock=lambda shift=shift: time.time() + shift)
        driver = Protocol(there, release=f"r{number}", population=f"p{number}")
        driver.measure(there.ledger())
        driver.measure(there.ledger())
    return place


def in_order(events: tuple[Event, ...]) -> list[str]:
    """What is wrong with the order in which releases were measured."""
    kinds = [event.release for event in events if event.kind == "measured"]
    return [] if kinds == [f"r{n}" for n in range(len(kinds))] else ["another order"]


def run(effort: Effort) -> Iterator[Row]:
    places, trials, mutant = Places(effort.folder / "places"), Trials(), Trials()
    for years in (MOVES, tuple(-shift for shift in MOVES)):
        place = moved(places, years)
        ledger = place.as_new_process()
        events = ledger.timeline(PRODUCT)
        wrong = in_order(events)
        if len([event for event in events if event.kind == "measured"]) != len(years):
            wrong.append("another number of measurements")
        if not verify_chain(ledger.timeline(), head=ledger.head()).intact:
            wrong.append("the chain does not verify")
        findings = check_ledger(place.url, place.home.witness)
        wrong += [finding.detail for finding in findings if not finding.passed]
        trials.note(f"clock moved {years}", wrong)
        by_time = tuple(sorted(events, key=lambda event: event.at))
        mutant.note("ordered by time", in_order(by_time))
    yield Row(
        "clock moved by a year either way",
        trials.count(f"histories of {len(MOVES)} releases"),
        "order and verification unaffected",
        not trials.violations,
        f"events ordered by their time: {mutant.count('histories')}",
        bool(mutant.violations),
        trials.violations,
    )


TORTURE = Torture("clocks", run)
