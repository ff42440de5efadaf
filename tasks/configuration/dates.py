"""Dates in configurations: cron expressions, and templates in release names and source paths.

Templates such as ``{date:%Y-%m}`` and ``{quarter}`` are filled in for the time of a slot, on the
clock of the schedule's time zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time, tzinfo

from cronsim import CronSim, CronSimError

DateTemplate = re.compile(r"\{(?:date:(?P<format>[^{}]*)|(?P<quarter>quarter))\}")
_DIRECTIVES = re.compile(r"(?:%[YmdHMSjVGuy]|[A-Za-z0-9_.-])+")

# What every reader of cron understands: numbers and names (mon, jan); no L, W, # or ?. And no range
# that ends where it begins: Prefect takes 1-1 for every day.
_CRON_FIELD = re.compile(r"(?!.*\b(\w+)-\1\b)(?:[0-9*,/-]|[A-Za-z]{3})+", re.IGNORECASE)
_WITH_SECONDS = 6


def check_cron(cron: str) -> None:
    """Refuse what is no cron expression, or one that never comes due.

    Five fields, or six, the last of which are the seconds.

    Raises:
        ValueError: with what is wanted.
    """
    fields = cron.split()
    if len(fields) == _WITH_SECONDS:  # Prefect takes them last, this reader first
        fields = [fields[-1], *fields[:-1]]
    slots: Iterator[datetime] = iter(())
    if all(_CRON_FIELD.fullmatch(field) for field in fields):
        with suppress(CronSimError):
            slots = CronSim(" ".join(fields), datetime(2000, 1, 1, tzinfo=UTC))
    if next(slots, None) is None:
        raise ValueError(
            "must have five fields (minute, hour, day, month, weekday) and come due at some time, "
            'such as "0 6 1 1,4,7,10 *"'
        )


def check_template(text: str) -> None:
    """Refuse placeholders that are not date templates.

    Raises:
        ValueError: with what is allowed.
    """
    rest = DateTemplate.sub("", text)
    formats = [match["format"] for match in DateTemplate.finditer(text) if not match["quarter"]]
    if "{" in rest or "}" in rest or not all(_DIRECTIVES.fullmatch(f or "") for f in formats):
        raise ValueError(
            "the only placeholders are {quarter} and {date:…} with %Y %m %d %H %M %S %j %V %G %u %y"
        )


def has_template(text: str) -> bool:
    """Whether a text differs from slot to slot."""
    return DateTemplate.search(text) is not None


def on_the_clock(slot: date, zone: tzinfo | None) -> datetime:
    """A slot as a time zone's clock shows it; a bare date is its midnight there.

    Args:
        slot: a moment, or a date or time without a zone, which is meant in this one.
        zone: None is the machine's own.
    """
    if not isinstance(slot, datetime):
        slot = datetime.combine(slot, time())
    if slot.tzinfo is None and zone is not None:
        return slot.replace(tzinfo=zone)
    return slot.astimezone(zone)


def render(text: str, slot: date) -> str:
    """Fill in a template for a slot; text without a template comes back as it is."""

    def fill(match: re.Match[str]) -> str:
        if match["quarter"]:
            return str((slot.month + 2) // 3)
        return slot.strftime(match["format"])

    return DateTemplate.sub(fill, text)
