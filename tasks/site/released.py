"""What of the event log the public site is made of: releases and budgets, not attempts.

Whether a run stopped may depend on confidential records, and so may when and how often it was
tried again. So the public sees of each release that is out what led to it, once, and what was
charged; it does not see reservations, repetitions, alerts, or releases that are not out. What was
charged for one of those is shown: it was measured, and what became of it then follows from the
measurements and public facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pgsr_core.chain import Event
from tasks.corrections.withdrawal import EVENT as WITHDRAWN
from tasks.ledger.bookkeeping import MEASURED, POPULATION, PUBLISHED, RAISED
from tasks.ledger.reposts import REPOSTED
from tasks.site.history import COMPUTED, SCHEDULED, VALIDATED

_LEADING_TO_A_RELEASE = frozenset({MEASURED, REPOSTED, COMPUTED, VALIDATED, PUBLISHED})
Release = tuple[str | None, str | None]


def released(events: Sequence[Event]) -> tuple[Event, ...]:
    """The events that the public may see, in order and with numbers of their own.

    The ledger's own numbers would tell how many others there are. A population enters with its
    first charge or raise: it was entered in the ledger by an attempt.
    """
    shown = _with_populations(events, _shown(events))
    return tuple(replace(event, sequence=number) for number, event in enumerate(shown, start=1))


def _shown(events: Sequence[Event]) -> Iterator[Event]:
    out = {_release(event) for event in events if event.kind in {PUBLISHED, WITHDRAWN}}
    decisive = _decisive(events)
    for event in events:
        if event.kind == POPULATION:
            continue
        if (
            event.product is None
            or event.kind in {SCHEDULED, WITHDRAWN}
            or (_release(event) in out and decisive.get(_step(event)) == event.sequence)
            or _is_charge(event)
        ):
            yield event


def _decisive(events: Sequence[Event]) -> dict[tuple[object, ...], int]:
    """For each step of each release, the last event until it was published: that one led to it."""
    published = {_release(event): event.sequence for event in events if event.kind == PUBLISHED}
    return {
        _step(event): event.sequence
        for event in events
        if event.kind in _LEADING_TO_A_RELEASE
        and event.sequence <= published.get(_release(event), event.sequence)
    }


def _step(event: Event) -> tuple[object, ...]:
    return (*_release(event), event.kind, str(event.facts.get("stage")))


def _release(event: Event) -> Release:
    return event.product, event.release


def _is_charge(event: Event) -> bool:
    return event.kind == MEASURED and str(event.facts.get("epsilon", "0")) != "0"


def _with_populations(events: Sequence[Event], shown: Iterator[Event]) -> Iterator[Event]:
    entered = {str(e.facts.get("population")): e for e in events if e.kind == POPULATION}
    for event in shown:
        if event.kind in {MEASURED, RAISED}:
            entry = entered.pop(str(event.facts.get("population")), None)
            if entry is not None:
                yield replace(entry, at=event.at, product=None, release=None)
        yield event
