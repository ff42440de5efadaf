"""The slots of a schedule: when releases came due, and which are owed. Pure, but for the calendar.

Prefect fires the schedule, so Prefect's own calendar says when: cron in a time zone whose clock
is set forward and back is read the same way here and there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from tasks.configuration.schedule import Schedule

# More missed releases than these are a decision for a person: each spends budget.
MOST_CAUGHT_UP = 24
_FIRST_WINDOW = timedelta(minutes=1)
_WIDER = 4


def next_slots(schedule: Schedule, *, after: datetime, count: int) -> tuple[datetime, ...]:
    """The first slots after a moment, on the clock of the schedule's zone."""
    found = _dates(schedule.cron, schedule.timezone, start=after, count=count + 1)
    return tuple(slot for slot in found if slot > after)[:count]


def latest_slots(
    schedule: Schedule, *, after: datetime, until: datetime, most: int
) -> tuple[datetime, ...]:
    """The newest slots after one moment and up to another, oldest first.

    Looks back from the end through windows that grow, since there may be any number of slots
    before those that are wanted.
    """
    window = _FIRST_WINDOW
    while True:
        start = max(after, until - window)
        found = _slots_between(schedule, start, until)
        if len(found) >= most or start == after:
            return found[-most:]
        window *= _WIDER


def owed_slots(
    schedule: Schedule,
    *,
    since: datetime,
    now: datetime,
    is_published: Callable[[datetime], bool],
) -> tuple[datetime, ...]:
    """The slots that were missed and are to be made up for, oldest first.

    Args:
        schedule: with the policy: only the latest slot that came due, all of them (the newest
            `MOST_CAUGHT_UP`), or none.
        since: when the product was put on this schedule; no slot before was missed.
        now: until when slots came due.
        is_published: whether the release of a slot exists.
    """
    most = {"none": 0, "latest": 1, "all": MOST_CAUGHT_UP}[schedule.catch_up]
    if not most:
        return ()
    due = latest_slots(schedule, after=since, until=now, most=most)
    return tuple(slot for slot in due if not is_published(slot))


def _slots_between(schedule: Schedule, start: datetime, end: datetime) -> tuple[datetime, ...]:
    """Every slot after a moment and up to another; the calendar hands them out in pages."""
    found: list[datetime] = []
    while page := [
        slot
        for slot in _dates(schedule.cron, schedule.timezone, start=start, end=end)
        if slot > start
    ]:
        found += page
        start = page[-1]
    return tuple(found)


def _dates(
    cron: str,
    timezone: str,
    *,
    start: datetime,
    end: datetime | None = None,
    count: int | None = None,
) -> list[datetime]:
    from prefect.server.schemas.schedules import CronSchedule

    calendar = CronSchedule(cron=cron, timezone=timezone)
    found = asyncio.run(calendar.get_dates(n=count, start=start, end=end))
    return [datetime.fromtimestamp(slot.timestamp(), ZoneInfo(timezone)) for slot in found]
