"""The hash chain of the event log: how an event is made, and what a broken chain tells.

Every event carries the hash of the one before it, so the last hash stands for all of them. What a
chain alone cannot show is a missing tail: for that it is compared with a head kept elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pgsr_core.canonical import json_digest

GENESIS_HASH = "0" * 64
# How many unexplained events are tried at each other's places before they are just called edited.
_TRIED_PLACES = 64

Damage = Literal["edited", "deleted", "reordered", "truncated", "forked"]


@dataclass(frozen=True)
class Head:
    """The last event of a chain: its number and its hash."""

    sequence: int
    hash: str


GENESIS = Head(0, GENESIS_HASH)


@dataclass(frozen=True)
class Event:
    """Who did what and when; facts hold digests and public numbers only.

    Attributes:
        sequence: 1 for the first event; no number is left out.
        at: when, by the clock of who wrote it. Order rests on the sequence alone.
        actor: who.
        kind: what.
        product: of which product, where it is about one.
        release: of which release, where it is about one.
        facts: what else is known.
        previous: the hash of the event before; zeros for the first.
        hash: SHA-256 of the canonical JSON (RFC 8785) of everything above.
    """

    sequence: int
    at: str
    actor: str
    kind: str
    product: str | None
    release: str | None
    facts: Mapping[str, Any]
    previous: str
    hash: str

    @property
    def head(self) -> Head:
        """The head of a chain that ends here."""
        return Head(self.sequence, self.hash)

    def is_intact(self) -> bool:
        """Whether the hash is that of the contents."""
        try:
            return event_hash(self) == self.hash
        except (TypeError, ValueError):  # what cannot be canonical JSON was never hashed as such
            return False


@dataclass(frozen=True)
class Break:
    """One place where a chain is broken."""

    damage: Damage
    sequence: int
    detail: str

    def __str__(self) -> str:
        return f"{self.damage} at event {self.sequence}: {self.detail}"


@dataclass(frozen=True)
class ChainReport:
    """What verification found; the head is that of the events as they are."""

    head: Head
    length: int
    breaks: tuple[Break, ...]

    @property
    def intact(self) -> bool:
        """Whether nothing is broken."""
        return not self.breaks


def event_hash(event: Event) -> str:
    """SHA-256 of the canonical JSON of everything but the hash itself."""
    return json_digest(
        {
            "sequence": event.sequence,
            "at": event.at,
            "actor": event.actor,
            "kind": event.kind,
            "product": event.product,
            "release": event.release,
            "facts": dict(event.facts),
            "previous": event.previous,
        }
    )


def append(
    previous: Head,
    *,
    at: str,
    actor: str,
    kind: str,
    product: str | None,
    release: str | None,
    facts: Mapping[str, Any],
) -> Event:
    """Make the event that follows a head."""
    bare = Event(
        sequence=previous.sequence + 1,
        at=at,
        actor=actor,
        kind=kind,
        product=product,
        release=release,
        facts=facts,
        previous=previous.hash,
        hash="",
    )
    return replace(bare, hash=event_hash(bare))


def verify_chain(
    events: Iterable[Event], *, start: Head = GENESIS, head: Head | None = None
) -> ChainReport:
    """Verify events in the order in which they are kept, and say precisely what is broken.

    Args:
        events: those after `start`.
        start: where verification begins; all events by default.
        head: a head that was noted elsewhere and must be in the chain.
    """
    kept = list(events)
    altered = [event for event in kept if not event.is_intact()]
    breaks = [*_altered_events(altered), *_broken_links(kept, start, {id(e) for e in altered})]
    last = kept[-1].head if kept else start
    if head is not None:
        breaks += _against_head(kept, start, head)
    breaks.sort(key=lambda found: found.sequence)
    return ChainReport(last, len(kept), tuple(breaks))


def _altered_events(altered: Sequence[Event]) -> list[Break]:
    """Tell an event that only changed its place from one whose contents changed."""
    places = [event.sequence for event in altered[:_TRIED_PLACES]]
    found: list[Break] = []
    for event in altered:
        place = next((p for p in places if replace(event, sequence=p).is_intact()), None)
        if place is None:
            found.append(Break("edited", event.sequence, "its contents do not match its hash"))
        else:
            detail = f"it was written as event {place}"
            found.append(Break("reordered", event.sequence, detail))
    return found


def _broken_links(kept: Sequence[Event], start: Head, altered: set[int]) -> list[Break]:
    """Check numbers and links. Invariant: `before` is the head of the events read so far."""
    found: list[Break] = []
    before, before_altered = start, False
    numbers: set[int] = set()
    for event in kept:
        expected = before.sequence + 1
        if event.sequence in numbers:
            found.append(Break("forked", event.sequence, "two events have this number"))
        elif event.sequence > expected:
            missing = f"events {expected} to {event.sequence - 1} are missing"
            found.append(Break("deleted", expected, missing))
        elif event.sequence < expected:
            detail = f"it stands after event {before.sequence}"
            found.append(Break("reordered", event.sequence, detail))
        # An altered event was reported already; its neighbour's link says nothing more.
        elif event.previous != before.hash and not before_altered and id(event) not in altered:
            found.append(_other_predecessor(event, before, start))
        numbers.add(event.sequence)
        before, before_altered = event.head, id(event) in altered
    return found


def _other_predecessor(event: Event, before: Head, start: Head) -> Break:
    if before == start:
        detail = f"it does not follow the event {start.sequence} that was seen before"
        return Break("forked", event.sequence, detail)
    return Break(
        "edited", before.sequence, f"event {event.sequence} followed another event of this number"
    )


def _against_head(kept: Sequence[Event], start: Head, head: Head) -> list[Break]:
    last = kept[-1].sequence if kept else start.sequence
    if last < head.sequence:
        detail = f"events up to {head.sequence} were seen, and the chain ends here"
        return [Break("truncated", last, detail)]
    hashes = {event.sequence: event.hash for event in kept} | {start.sequence: start.hash}
    known = hashes.get(head.sequence)
    if known is None or known == head.hash:
        return []  # before the start, or a gap that was reported as such
    return [Break("forked", head.sequence, "another event of this number was seen before")]
