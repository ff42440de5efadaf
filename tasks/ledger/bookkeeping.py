"""Whether the books agree with the event log: every charge, measurement and budget, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from sqlalchemy import Connection, Row, select

from pgsr_core.canonical import json_digest
from pgsr_core.chain import Event
from tasks.ledger.reposts import REPOSTED
from tasks.ledger.schema import charges, measurements, populations

MEASURED = "measured"
POPULATION = "population"
RAISED = "budget-raised"
PUBLISHED = "published"


def contradictions(connection: Connection, events: Iterable[Event]) -> list[str]:
    """What the tables and the events do not agree on, in words; nothing if all is well."""
    told = tuple(events)
    measured = [event for event in told if event.kind == MEASURED]
    budgets = [event for event in told if event.kind in {POPULATION, RAISED}]
    reposted = [event for event in told if event.kind == REPOSTED]
    try:
        return [
            *_of_measurements(connection, measured),
            *_of_reposts(measured, reposted),
            *_of_budgets(connection, budgets),
        ]
    except (TypeError, ValueError, ZeroDivisionError):
        return ["a charge, measurement or budget holds what cannot be read"]


def _of_measurements(connection: Connection, measured: Sequence[Event]) -> Iterator[str]:
    told = {str(event.facts.get("key")): event for event in measured}
    committed = select(measurements).where(measurements.c.digest.is_not(None))
    held = {row.key: row for row in connection.execute(committed)}
    charged = {row.key: row for row in connection.execute(select(charges))}
    if len(told) != len(measured):
        yield "a measurement was recorded twice"
    for key in sorted(told.keys() | held.keys() | charged.keys()):
        event, row, charge = told.get(key), held.get(key), charged.get(key)
        if event is None:
            yield f"{_name(row)} is in the ledger without an event that it was measured"
        elif row is None:
            yield f"the measurement of {event.product}/{event.release} is missing"
        elif charge is None:
            yield f"the charge of {event.product}/{event.release} is missing"
        else:
            yield from _differences(event, row, charge)


def _differences(event: Event, row: Row[Any], charge: Row[Any]) -> Iterator[str]:
    name = f"{event.product}/{event.release}"
    facts = event.facts
    described = json_digest(row.descriptor)
    held = {
        "product": (row.product, event.product),
        "release": (row.release, event.release),
        "digest": (row.digest, facts.get("digest")),
        "sampler": (row.sampler, facts.get("sampler")),
        "population": (row.population, facts.get("population")),
        "epsilon": (str(row.epsilon), facts.get("epsilon")),
        "charged population": (charge.population, facts.get("population")),
        "charge": (str(charge.epsilon), facts.get("epsilon")),
        # Events of version 0.1 do not say these.
        "groups": (row.groups, facts.get("groups", row.groups)),
        "simulation": (row.simulation, facts.get("simulation", row.simulation)),
        "descriptor": (described, facts.get("descriptor", described)),
    }
    for what, (stored, told) in held.items():
        if stored != told:
            yield f"the {what} of {name} is not what was recorded when it was measured"


def _of_reposts(measured: Sequence[Event], reposted: Sequence[Event]) -> Iterator[str]:
    """A reposted release rests on a measurement of its product, and has none of its own."""
    known = {(e.product, e.facts.get("key"), e.facts.get("digest")) for e in measured}
    names = [(e.product, e.release) for e in (*measured, *reposted)]
    for event in reposted:
        if (event.product, event.facts.get("key"), event.facts.get("digest")) not in known:
            yield f"{event.product}/{event.release} was reposted from measurements that are unknown"
        if names.count((event.product, event.release)) > 1:
            yield f"{event.product}/{event.release} stands for several measurements"


def _of_budgets(connection: Connection, told: Sequence[Event]) -> Iterator[str]:
    recorded = {str(e.facts.get("population")): str(e.facts.get("budget")) for e in told}
    held = {row.name: row.budget for row in connection.execute(select(populations))}
    for name in sorted(recorded.keys() | held.keys()):
        if name not in recorded:
            yield f"population {name} is in the ledger without an event"
        elif name not in held:
            yield f"population {name} is missing"
        elif held[name] != _fraction(recorded[name]):
            yield f"the budget of population {name} is not what was recorded"


def _fraction(text: str) -> Fraction | None:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None


def _name(row: Row[Any] | None) -> str:
    return "a charge" if row is None else f"a measurement of {row.product}/{row.release}"
