"""What the event log says of products, releases and budgets; the log is all that is asked.

A broken log is told like any other: what it says is shown, and that it is broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from enum import StrEnum
from fractions import Fraction
from typing import Any

from pgsr_core.chain import Event
from tasks.configuration.model import identifier
from tasks.corrections.withdrawal import EVENT as WITHDRAWN
from tasks.ledger.bookkeeping import MEASURED, POPULATION, PUBLISHED, RAISED
from tasks.ledger.reposts import REPOSTED

COMPUTED = "computed"
VALIDATED = "validated"
SCHEDULED = "scheduled"

# Facts of each kind of event that may be shown to anyone: digests, public numbers, and what was
# announced. What is not listed here stays inside, whatever a later version may record.
PUBLIC_FACTS: Mapping[str, tuple[str, ...]] = {
    POPULATION: ("population", "budget"),
    RAISED: ("population", "before", "budget"),
    MEASURED: ("population", "digest", "sampler", "simulation", "epsilon"),
    REPOSTED: ("from", "mechanism", "digest"),
    COMPUTED: ("stage", "digest"),
    VALIDATED: ("digest", "passed", "checks"),
    PUBLISHED: ("digests",),
    WITHDRAWN: ("reason", "withdrawn_on"),
    SCHEDULED: ("cron", "timezone", "pattern"),
    "migrated": ("from", "to"),
}


class State(StrEnum):
    """Where a release stands; the public site has those that are out, published or withdrawn."""

    BEGUN = "begun"
    MEASURED = "measured, not published"
    STOPPED = "stopped by its checks"
    PUBLISHED = "published"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True)
class ReleaseHistory:
    """The events of one release."""

    product: str
    release: str
    events: tuple[Event, ...]

    @property
    def name(self) -> str:
        """PRODUCT/RELEASE."""
        return f"{self.product}/{self.release}"

    def last(self, kind: str) -> Event | None:
        """The newest event of a kind."""
        return next((event for event in reversed(self.events) if event.kind == kind), None)

    def facts(self, kind: str) -> Mapping[str, Any]:
        """What the newest event of a kind says; nothing where there is none."""
        event = self.last(kind)
        return {} if event is None else event.facts

    @property
    def state(self) -> State:
        """Where it stands."""
        if self.last(WITHDRAWN):
            return State.WITHDRAWN
        if self.last(PUBLISHED):
            return State.PUBLISHED
        if self.facts(VALIDATED).get("passed") is False:
            return State.STOPPED
        measured = self.last(MEASURED) or self.last(REPOSTED)
        return State.MEASURED if measured else State.BEGUN

    @property
    def is_out(self) -> bool:
        """Whether the public has, or had, something of it."""
        return self.state in {State.PUBLISHED, State.WITHDRAWN}

    @property
    def epsilon(self) -> Fraction | None:
        """What was charged for it; None where nothing was measured."""
        if self.last(REPOSTED):
            return Fraction(0)
        return _fraction(self.facts(MEASURED).get("epsilon"))

    @property
    def checks(self) -> Mapping[str, bool]:
        """Every check of the newest verdict, and whether it passed."""
        outcomes = self.facts(VALIDATED).get("checks")
        if not isinstance(outcomes, Mapping):
            return {}
        return {str(name): passed is True for name, passed in outcomes.items()}

    @property
    def is_simulation(self) -> bool:
        """Whether its noise protects nobody."""
        return self.facts(MEASURED).get("simulation") is True

    @property
    def published_files(self) -> Mapping[str, str]:
        """SHA-256 of every file of its bundle, as it was published."""
        files = self.facts(PUBLISHED).get("files")
        return files if isinstance(files, Mapping) else {}

    @property
    def published_on(self) -> date | None:
        """The day of the event, in UTC."""
        event = self.last(PUBLISHED)
        return None if event is None else day_of(event)

    @property
    def measurements(self) -> str | None:
        """The digest of what it was computed from; releases that share it share their noise."""
        event = self.last(MEASURED) or self.last(REPOSTED)
        digest = None if event is None else event.facts.get("digest")
        return digest if isinstance(digest, str) else None


@dataclass(frozen=True)
class ProductHistory:
    """A product, and its releases in the order in which they were begun."""

    name: str
    releases: tuple[ReleaseHistory, ...]
    schedule: Event | None

    @property
    def is_public(self) -> bool:
        """Whether anything of it is out, or announced."""
        return self.schedule is not None or any(release.is_out for release in self.releases)

    @property
    def population(self) -> str | None:
        """Whom its newest charge was to."""
        for release in reversed(self.releases):
            said = release.facts(MEASURED).get("population")
            if isinstance(said, str):
                return said
        return None


@dataclass(frozen=True)
class BudgetChange:
    """A moment at which a budget or what was spent of it changed.

    Attributes:
        day: in UTC; a day only, as the time of a run may tell something about the data.
        event: its number in the log.
        what: in words.
        charged: by this event; 0 where the budget itself changed.
        spent: so far.
        budget: the cap from then on.
    """

    day: date
    event: int
    what: str
    charged: Fraction
    spent: Fraction
    budget: Fraction

    @property
    def remaining(self) -> Fraction:
        """What is left."""
        return self.budget - self.spent


@dataclass(frozen=True)
class BudgetHistory:
    """The budget of one population, change by change; never empty."""

    population: str
    changes: tuple[BudgetChange, ...]

    @property
    def now(self) -> BudgetChange:
        """How it stands."""
        return self.changes[-1]

    @property
    def charges(self) -> tuple[BudgetChange, ...]:
        """The changes that spent something."""
        return tuple(change for change in self.changes if change.charged)


def products_of(events: Sequence[Event]) -> tuple[ProductHistory, ...]:
    """Every product, by name; a name that could lead to another folder is only in the log."""
    found: dict[str, dict[str, list[Event]]] = {}
    schedules: dict[str, Event] = {}
    for event in events:
        if event.product is None or not _is_safe(event.product):
            continue
        releases = found.setdefault(event.product, {})
        if event.release is not None and _is_safe(event.release):
            releases.setdefault(event.release, []).append(event)
        elif event.kind == SCHEDULED:
            schedules[event.product] = event
    return tuple(
        ProductHistory(
            product,
            tuple(
                ReleaseHistory(product, release, tuple(told)) for release, told in releases.items()
            ),
            schedules.get(product),
        )
        for product, releases in sorted(found.items())
    )


def budgets_of(events: Iterable[Event]) -> tuple[BudgetHistory, ...]:
    """Every population's budget over time, by name."""
    found: dict[str, list[BudgetChange]] = {}
    for event in events:
        population, day = event.facts.get("population"), day_of(event)
        if not isinstance(population, str) or day is None:
            continue
        before = found.get(population, [])
        change = _change(event, day, before[-1] if before else None)
        if change is not None:
            found[population] = [*before, change]
    return tuple(
        BudgetHistory(population, tuple(changes)) for population, changes in sorted(found.items())
    )


def _change(event: Event, day: date, before: BudgetChange | None) -> BudgetChange | None:
    """What an event did to a budget; None if it did nothing."""
    spent = before.spent if before else Fraction(0)
    if event.kind in {POPULATION, RAISED}:
        budget = _fraction(event.facts.get("budget"))
        words = "budget set" if event.kind == POPULATION else "budget raised"
        if budget is None:
            return None
        return BudgetChange(day, event.sequence, words, Fraction(0), spent, budget)
    charged = _fraction(event.facts.get("epsilon"))
    if event.kind != MEASURED or not charged or before is None:
        return None
    what = f"{event.product}/{event.release}"
    return BudgetChange(day, event.sequence, what, charged, spent + charged, before.budget)


def public(event: Event) -> Event:
    """An event with what may be shown to anyone: no actor, no time of day, listed facts only."""
    shown = PUBLIC_FACTS.get(event.kind, ())
    said = {name: event.facts.get(name) for name in shown}
    facts = {name: value for name, value in said.items() if value not in (None, False)}
    return replace(event, actor="", at=str(day_of(event) or ""), facts=facts)


def day_of(event: Event) -> date | None:
    """The day of an event, in UTC; None where it is none."""
    moment = moment_of(event)
    return None if moment is None else moment.date()


def moment_of(event: Event) -> datetime | None:
    """The time of an event, in UTC; None where it is none."""
    try:
        moment = datetime.fromisoformat(event.at)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def _is_safe(name: str) -> bool:
    try:
        return identifier(name) == name
    except ValueError:
        return False


def _fraction(text: object) -> Fraction | None:
    try:
        return Fraction(str(text))
    except (ValueError, ZeroDivisionError):
        return None
