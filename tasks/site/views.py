"""What the pages show, ready for their templates: releases, products, budgets, events."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any

from pgsr_core.budget import show
from pgsr_core.chain import Event, Head
from tasks import timeline
from tasks.corrections.withdrawal import EVENT as WITHDRAWN
from tasks.site.bundles import Bundle
from tasks.site.figures import budget_svg
from tasks.site.forecast import Pace, Scheduled, at_pace, by_schedule
from tasks.site.history import (
    VALIDATED,
    BudgetHistory,
    ProductHistory,
    ReleaseHistory,
    State,
    day_of,
    moment_of,
    public,
)
from tasks.site.settings import settings_of
from tasks.timeline import Log

MOST_COMPARED = 8
"""Of so many newest releases any two are compared: more would be pages without end."""


@dataclass(frozen=True)
class Verification:
    """Whether the log is what was written.

    Attributes:
        events: how many of them the site shows.
        head: the newest that the site may show; None where there is none.
        as_of: the day of the last event that the site shows.
        problems: in words that may name files of the installation; for operators.
        areas: what is affected, for everybody.
    """

    events: int
    head: Head | None
    as_of: date | None
    problems: tuple[str, ...]
    areas: tuple[str, ...]

    @property
    def intact(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.problems


@dataclass(frozen=True)
class ComparisonLink:
    """A release to compare with, and the page that does."""

    earlier: ReleaseView
    page: str


@dataclass(frozen=True)
class ReleaseView:
    """What the pages show of a release."""

    history: ReleaseHistory
    bundle: Bundle | None
    no_bundle: str
    replaced_by: str | None
    comparisons: tuple[ComparisonLink, ...] = ()

    @property
    def folder(self) -> str:
        """Of its pages, in the site."""
        return f"products/{self.history.product}/releases/{self.history.release}"

    @property
    def page(self) -> str:
        """Its own page."""
        return f"{self.folder}/index.html"

    @property
    def is_good(self) -> bool:
        """Whether it is out and stands."""
        return self.history.state is State.PUBLISHED and not self.history.is_simulation

    @property
    def is_bad(self) -> bool:
        """Whether it should not be used."""
        return self.history.state in {State.WITHDRAWN, State.STOPPED}

    @property
    def withdrawn(self) -> Mapping[str, Any] | None:
        """When and why it was withdrawn; the first notice counts."""
        events = (event for event in self.history.events if event.kind == WITHDRAWN)
        return next((event.facts for event in events), None)

    @property
    def charged(self) -> str:
        """What was charged for it."""
        return "–" if self.history.epsilon is None else show(self.history.epsilon)

    @property
    def checks_passed(self) -> int:
        """How many did."""
        return sum(self.history.checks.values())

    @property
    def has_report(self) -> bool:
        """Whether its report can be shown."""
        return self.bundle is not None and self.bundle.report is not None

    @property
    def settings(self) -> dict[str, str]:
        """How it was configured."""
        return {} if self.bundle is None else settings_of(self.bundle)

    @property
    def mechanism(self) -> str:
        """Its name."""
        return _said(self.bundle, "mechanism", "name") or "–"

    @property
    def replaces(self) -> str | None:
        """The release that it corrects."""
        return _said(self.bundle, "lineage", "replaces")

    @property
    def reposted_from(self) -> str | None:
        """The release whose measurements it rests on."""
        return _said(self.bundle, "lineage", "reposted_from")


@dataclass(frozen=True)
class ProductView:
    """What the pages show of a product."""

    history: ProductHistory
    releases: tuple[ReleaseView, ...]

    @property
    def name(self) -> str:
        """Its name."""
        return self.history.name

    @property
    def population(self) -> str | None:
        """Whom it is about."""
        return self.history.population

    @property
    def schedule(self) -> Mapping[str, Any] | None:
        """When its releases come due, where the log says so."""
        event = self.history.schedule
        return None if event is None else event.facts

    @property
    def page(self) -> str:
        """Its own page."""
        return f"products/{self.name}/index.html"

    @property
    def compared(self) -> tuple[ReleaseView, ...]:
        """Those that are compared with an earlier one, newest first."""
        return tuple(release for release in reversed(self.releases) if release.comparisons)


@dataclass(frozen=True)
class BudgetView:
    """What the pages show of a budget."""

    history: BudgetHistory
    pace: Pace | None
    scheduled: Scheduled | None
    svg: str

    @property
    def population(self) -> str:
        """Whose it is."""
        return self.history.population

    @property
    def cap(self) -> str:
        """What may be spent."""
        return show(self.history.now.budget)

    @property
    def spent(self) -> str:
        """What was."""
        return show(self.history.now.spent)

    @property
    def left(self) -> str:
        """What remains."""
        return show(self.history.now.remaining)

    @property
    def charges(self) -> int:
        """How many releases were charged."""
        return len(self.history.charges)

    @property
    def planned(self) -> bool:
        """Whether the chart shows a schedule's forecast."""
        return self.scheduled is not None and bool(self.scheduled.spending)

    @property
    def paced(self) -> bool:
        """Whether the chart shows the pace's forecast."""
        return self.pace is not None and self.pace.used_up is not None

    @property
    def rows(self) -> list[dict[str, object]]:
        """Change by change."""
        return [
            {
                "event": change.event,
                "day": change.day,
                "what": change.what,
                "charged": show(change.charged) if change.charged else "",
                "spent": show(change.spent),
                "budget": show(change.budget),
                "left": show(change.remaining),
            }
            for change in self.history.changes
        ]

    @property
    def short(self) -> str:
        """The forecast in a few words: the schedule's, else that of the pace."""
        if not self.history.now.remaining:
            return "used up"
        if self.scheduled is not None and self.scheduled.refused_on is not None:
            fits = f"{self.scheduled.fitting} more by schedule"
            return f"{fits}; the one due on {self.scheduled.refused_on} does not fit"
        if self.pace is not None and self.pace.used_up is not None:
            return f"used up on {self.pace.used_up} at the pace so far"
        return "none"

    @property
    def forecast(self) -> tuple[str, ...]:
        """The forecasts in sentences."""
        if not self.history.now.remaining:
            return ("The budget is used up: nothing more can be released unless it is raised.",)
        return (self._at_pace(), self._by_schedule())

    def _at_pace(self) -> str:
        if self.pace is None:
            return (
                "At the pace so far: no forecast, because there were not two charges on "
                "different days."
            )
        charges = self.history.charges
        when = (
            f"the remaining {self.left} is used up on {self.pace.used_up}"
            if self.pace.used_up
            else f"the remaining {self.left} lasts for more than a hundred years"
        )
        return (
            f"At the pace so far: from {charges[0].day} to {charges[-1].day}, ε was charged at a "
            f"rate of about {float(self.pace.a_year):.3g} a year; at that pace {when}."
        )

    def _by_schedule(self) -> str:
        planned = self.scheduled
        if planned is None:
            return "By schedule: no forecast, because no product on a schedule spends this budget."
        who = ", ".join(planned.products)
        more = f"{planned.fitting} more release{'' if planned.fitting == 1 else 's'}"
        if planned.refused is None:
            return f"By the schedule of {who}: at least {more} fit."
        return (
            f"By the schedule of {who}, each release at the cost of the product's last: {more} "
            f"fit; {planned.refused}, due on {planned.refused_on}, does not."
        )


@dataclass(frozen=True)
class EventRow:
    """An event as a row of a table."""

    sequence: int
    at: str
    actor: str
    kind: str
    about: str
    page: str | None
    spent: str
    checks: str
    facts: str
    hash: str
    is_bad: bool


def verification_of(log: Log, events: Sequence[Event], heads: Collection[Head]) -> Verification:
    """Sum up what was found in the log, for a site that shows these events and heads of it."""
    days = [day for event in events if (day := day_of(event)) is not None]
    return Verification(
        events=len(events),
        head=max(heads, key=lambda head: head.sequence, default=None),
        as_of=days[-1] if days else None,
        problems=log.problems,
        areas=tuple(sorted({problem.partition(":")[0] for problem in log.problems})),
    )


def budget_views(
    budgets: Sequence[BudgetHistory], products: Sequence[ProductHistory], events: Sequence[Event]
) -> tuple[BudgetView, ...]:
    """Every budget, with its forecasts and its chart."""
    moments = [moment for event in events if (moment := moment_of(event)) is not None]
    found = []
    for history in budgets:
        now = max(moments)
        pace = at_pace(history)
        scheduled = by_schedule(history, products, after=now)
        svg = budget_svg(history, until=now.date(), pace=pace, scheduled=scheduled)
        found.append(BudgetView(history, pace, scheduled, svg))
    return tuple(found)


def public_heads(log: Log, releases: Sequence[ReleaseView]) -> frozenset[Head]:
    """The heads that are out: of signed bundles and of notices of withdrawal.

    A hash confirms a guess at what was hashed, the time of day and the person among it, so
    the hashes of all other events stay inside. So does the last one: it would tell of attempts.
    """
    signed = (r.bundle.signature for r in releases if r.bundle is not None)
    out = {signature.head for signature in signed if signature is not None}
    return frozenset(
        event.head for event in log.events if event.head in out or event.kind == WITHDRAWN
    )


def event_rows(
    events: Sequence[Event],
    pages: Mapping[tuple[str, str], str],
    *,
    heads: Collection[Head],
    internal: bool,
) -> tuple[EventRow, ...]:
    """Events as rows, with these heads; the public sees what is public of them."""
    hashes = {head.hash for head in heads}
    return tuple(_event_row(event, pages, hashes, internal=internal) for event in events)


def _event_row(
    event: Event,
    pages: Mapping[tuple[str, str], str],
    hashes: Collection[str],
    *,
    internal: bool,
) -> EventRow:
    shown = event if internal else public(event)
    failed = event.kind == VALIDATED and event.facts.get("passed") is not True
    spent = timeline.spent(shown)
    return EventRow(
        sequence=event.sequence,
        at=timeline.moment(event) if internal else shown.at,
        actor=shown.actor,
        kind=event.kind,
        about="/".join(part for part in (event.product, event.release) if part),
        page=pages.get((event.product or "", event.release or "")),
        spent=show(Fraction(spent)) if _is_number(spent) else spent,
        checks=timeline.checks(shown),
        facts=timeline.describe(shown) if internal or shown.facts else "",
        hash=event.hash if event.hash in hashes else "",
        is_bad=failed or event.kind == WITHDRAWN,
    )


def _is_number(text: str) -> bool:
    try:
        Fraction(text)
    except (ValueError, ZeroDivisionError):
        return False
    return True


def _said(bundle: Bundle | None, *path: str) -> str | None:
    found: Any = None if bundle is None else bundle.privacy
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return None if found is None else str(found)
