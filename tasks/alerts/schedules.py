"""Telling of a release that came due and is not out: the one alert that no run can send."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tasks.alerts.message import Alert
from tasks.alerts.occasions import settings_for, tell_once
from tasks.configuration.alerts import Kind
from tasks.configuration.slots import latest_slots
from tasks.run import RunRef
from tasks.series import Series


def tell_missed(series: Series, *, now: datetime | None = None) -> RunRef | None:
    """Tell, once, of the newest release that is overdue; says which it is.

    Whether it will be made up for is the schedule's own policy; that it is not out yet is
    something to know in any case.
    """
    settings = settings_for(series.configuration, Kind.MISSED)
    if settings is None:
        return None
    until = (now or datetime.now(UTC)) - timedelta(minutes=settings.missed_after)
    overdue = _newest_overdue(series, until)
    if overdue is not None:
        alert = Alert(Kind.MISSED, overdue.product, overdue.release)
        tell_once(alert, settings, series.ledger)
    return overdue


def _newest_overdue(series: Series, until: datetime) -> RunRef | None:
    """The release of the last slot up to a moment, unless it is published or was never promised."""
    since = series.put_on_schedule()
    if series.schedule is None or since is None or since >= until:
        return None
    slots = latest_slots(series.schedule, after=since, until=until, most=1)
    if not slots or series.is_published(slots[-1]):
        return None
    return series.release(slots[-1])
