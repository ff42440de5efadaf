"""Event logs made up in memory: a few years of releases, charged to one population."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgsr_core.chain import GENESIS, Event, append

POPULATION = "residents"


def log(told: Sequence[tuple[str, str, str | None, str | None, dict[str, Any]]]) -> list[Event]:
    """Chain events of (at, kind, product, release, facts)."""
    events: list[Event] = []
    head = GENESIS
    for at, kind, product, release, facts in told:
        event = append(
            head,
            at=at,
            actor="somebody@somewhere",
            kind=kind,
            product=product,
            release=release,
            facts=facts,
        )
        events.append(event)
        head = event.head
    return events


def charged(day: str, release: str, epsilon: str, *, product: str = "sizes") -> Any:
    """A measurement of a release."""
    facts = {"population": POPULATION, "epsilon": epsilon, "digest": release, "key": release}
    return (f"{day}T06:00:00.000+00:00", "measured", product, release, facts)


def budget(day: str, amount: str) -> Any:
    """The population's entry into the ledger."""
    facts = {"population": POPULATION, "budget": amount}
    return (f"{day}T05:00:00.000+00:00", "population", "sizes", "first", facts)


def raised(day: str, amount: str) -> Any:
    """A raised budget."""
    facts = {"population": POPULATION, "before": "?", "budget": amount, "reason": "SECRETREASON"}
    return (f"{day}T05:00:00.000+00:00", "budget-raised", None, None, facts)


def scheduled(day: str, cron: str, pattern: str, *, product: str = "sizes") -> Any:
    """A product put on a schedule."""
    facts = {"cron": cron, "timezone": "UTC", "pattern": pattern}
    return (f"{day}T07:00:00.000+00:00", "scheduled", product, None, facts)
