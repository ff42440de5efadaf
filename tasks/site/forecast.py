"""When a budget will be used up: at the pace so far, and by the schedules that spend it.

Both start from the log alone and from its last event, so the same log gives the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from tasks.configuration.dates import render
from tasks.site.history import BudgetHistory, ProductHistory

if TYPE_CHECKING:
    from tasks.configuration.schedule import Schedule

MOST_DAYS = 36_525
"""A forecast for more than a hundred years is none."""
MOST_SLOTS = 1_000
_PAGE = 100


@dataclass(frozen=True)
class Pace:
    """The pace so far.

    Attributes:
        a_year: ε in 365.25 days.
        used_up: the day on which nothing is left; None if that is further than MOST_DAYS away.
    """

    a_year: Fraction
    used_up: date | None


@dataclass(frozen=True)
class Scheduled:
    """What the schedules will spend.

    Attributes:
        products: whose releases were counted.
        fitting: how many more releases the budget allows.
        refused: the first release for which nothing is left; None if all of MOST_SLOTS fit.
        refused_on: the day on which it comes due.
        spending: day and remaining budget after each release that fits.
    """

    products: tuple[str, ...]
    fitting: int
    refused: str | None
    refused_on: date | None
    spending: tuple[tuple[date, Fraction], ...]


@dataclass(frozen=True)
class _Slot:
    due: datetime
    name: str
    cost: Fraction


def at_pace(history: BudgetHistory) -> Pace | None:
    """Go on as from the first charge to the last: every later charge paid for the days before it.

    None where there were not two charges on different days.
    """
    charges = history.charges
    if not charges or charges[0].day >= charges[-1].day:
        return None
    days = (charges[-1].day - charges[0].day).days
    a_day = sum((charge.charged for charge in charges[1:]), Fraction(0)) / days
    left = math.ceil(max(Fraction(0), history.now.remaining) / a_day)
    used_up = charges[-1].day + timedelta(days=left) if left <= MOST_DAYS else None
    return Pace(a_day * Fraction("365.25"), used_up)


def by_schedule(
    history: BudgetHistory, products: Sequence[ProductHistory], *, after: datetime
) -> Scheduled | None:
    """Let every scheduled release cost what its product's last one did, until one does not fit.

    Args:
        history: of the population.
        products: all; those that are scheduled and charged this population last are counted.
        after: from when on slots come due.
    """
    spenders = [
        product
        for product in products
        if product.schedule is not None
        and product.population == history.population
        and _last_cost(product)
    ]
    slots = [slot for product in spenders for slot in _slots(product, history, after)]
    if not slots:
        return None
    remaining = history.now.remaining
    spending: list[tuple[date, Fraction]] = []
    names = tuple(product.name for product in spenders)
    for slot in sorted(slots, key=lambda slot: (slot.due, slot.name)):
        if slot.cost > remaining:
            return Scheduled(names, len(spending), slot.name, slot.due.date(), tuple(spending))
        remaining -= slot.cost
        spending.append((slot.due.date(), remaining))
    return Scheduled(names, len(spending), None, None, tuple(spending))


def _last_cost(product: ProductHistory) -> Fraction:
    costs = [release.epsilon for release in product.releases if release.epsilon]
    return costs[-1] if costs else Fraction(0)


def _slots(product: ProductHistory, history: BudgetHistory, after: datetime) -> Iterator[_Slot]:
    """The releases that come due, until this product alone would have spent what remains."""
    schedule, pattern = _schedule_of(product)
    if schedule is None:
        return
    from tasks.configuration.slots import next_slots

    cost = _last_cost(product)
    wanted = min(MOST_SLOTS, math.floor(history.now.remaining / cost) + 1)
    names = {release.release for release in product.releases}
    for _ in range(0, MOST_SLOTS, _PAGE):
        due = next_slots(schedule, after=after, count=_PAGE)
        for slot in due:
            name = render(pattern, slot)
            # Several slots may come due for one release; the first of them makes it.
            if name not in names:
                names.add(name)
                yield _Slot(slot, f"{product.name}/{name}", cost)
                wanted -= 1
            if not wanted:
                return
        if not due:
            return
        after = due[-1]


def _schedule_of(product: ProductHistory) -> tuple[Schedule | None, str]:
    """The schedule that the log recorded last; None where it cannot be read."""
    from tasks.configuration.schedule import Schedule

    facts = product.schedule.facts if product.schedule is not None else {}
    try:
        schedule = Schedule(cron=str(facts["cron"]), timezone=str(facts["timezone"]))
        return schedule, str(facts["pattern"])
    except (KeyError, ValueError):
        return None, ""
