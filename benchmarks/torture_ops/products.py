"""Products of a made-up office: a few hundred people each, and a schedule of a few seconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import yaml

from tasks.configuration.slots import latest_slots
from tasks.keys import create_key, public_path
from tasks.series import Series

NAMES = ("dwellings", "hospitals", "taxis")
EPSILON = Fraction(1, 4)
BUDGET = 100
REGIONS = ("country", "north", "south", "east", "west")
UNITS = 160
RELEASE = "{date:%Y%m%dT%H%M%S}"
# The clock of one of them is not near the end of an hour.
ZONES = ("UTC", "Asia/Kolkata")
_HOUR = 60


@dataclass(frozen=True)
class Day:
    """Some minutes with slots every few seconds, and none before or after.

    Attributes:
        begins: a whole minute.
        minutes: how many.
        every: seconds between the slots of one product.
    """

    begins: datetime
    minutes: int
    every: int

    @classmethod
    def after(cls, moment: datetime, *, minutes: int, every: int) -> Day:
        """A day that begins with the first whole minute after a moment."""
        begins = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
        return cls(begins, minutes, every)

    @property
    def ends(self) -> datetime:
        return self.begins + timedelta(minutes=self.minutes)

    def schedule(self, offset: int) -> dict[str, str]:
        """A cron schedule with seconds, on a clock on which the day lies within one hour."""
        zone = next(z for z in ZONES if self._within_an_hour(z))
        start = self.begins.astimezone(ZoneInfo(zone))
        minutes = ",".join(str(start.minute + number) for number in range(self.minutes))
        date = f"{start.hour} {start.day} {start.month} *"
        cron = f"{minutes} {date} {offset}-59/{self.every}"
        return {"cron": cron, "timezone": zone, "catch_up": "all"}

    def _within_an_hour(self, zone: str) -> bool:
        return self.begins.astimezone(ZoneInfo(zone)).minute + self.minutes <= _HOUR


def write_product(folder: Path, name: str, schedule: dict[str, str] | None) -> Path:
    """Write the tables and the configuration of a product; returns the configuration."""
    folder.mkdir(parents=True)
    leaves = REGIONS[1:]
    regions = [f"{region},{'country' if region in leaves else ''}" for region in REGIONS]
    units = [f"{unit},{leaves[unit % len(leaves)]}" for unit in range(UNITS)]
    # Unit u has u mod 5 members.
    members = [unit for unit in range(UNITS) for _ in range(unit % 5)]
    persons = [
        f"{person},{unit},{leaves[unit % len(leaves)]}" for person, unit in enumerate(members)
    ]
    _write(folder / "regions.csv", "region,parent", regions)
    _write(folder / "units.csv", "unit,region", units)
    _write(folder / "persons.csv", "person_id,unit_id,region_id", persons)
    create_key(folder / "release.key")
    configuration = folder / "product.yaml"
    configuration.write_text(yaml.safe_dump(_configuration(name, schedule), sort_keys=False))
    return configuration


def _configuration(name: str, schedule: dict[str, str] | None) -> dict[str, Any]:
    columns = {"person": "person_id", "unit": "unit_id", "region": "region_id", "quantity": None}
    content = {
        "product": name,
        "release": RELEASE,
        "population": {"name": name, "budget": str(BUDGET), "unit_of_privacy": "person"},
        "source": {"persons": "persons.csv", "columns": columns},
        "regions": "regions.csv",
        "units": "units.csv",
        "sizes": {"max": 6, "largest_contribution": 1},
        "privacy": {"epsilon": str(EPSILON), "neighbours": "add-remove", "split": "uniform"},
        "mechanism": "cumulative",
        "publish": {"to": "../public", "formats": ["csv"], "signing_key": "release.key"},
        "resources": {"memory_limit": "512MB", "threads": 1},
    }
    return {**content, "schedule": schedule} if schedule is not None else content


def due_releases(configuration: Path, day: Day) -> set[str]:
    """The names of all releases that a day's slots stand for."""
    series = Series.open(configuration)
    assert series.schedule is not None
    just_before = day.begins - timedelta(seconds=1)
    slots = latest_slots(series.schedule, after=just_before, until=day.ends, most=1000)
    return {series.release(slot).release for slot in slots}


def public_key(configuration: Path) -> Path:
    return public_path(configuration.with_name("release.key"))


def _write(path: Path, header: str, lines: list[str]) -> None:
    path.write_text("\n".join([header, *lines]) + "\n")
