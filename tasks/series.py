"""A product's releases over time: which are published, which were begun, which a schedule owes.

The release's name decides, and the ledger knows the names: a slot whose release is published is
done, whoever published it and however often it comes up again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from tasks.configuration.loading import LoadedConfiguration, load_configuration
from tasks.configuration.model import Configuration, render_release
from tasks.configuration.schedule import Schedule
from tasks.configuration.slots import MOST_CAUGHT_UP, latest_slots, owed_slots
from tasks.ledger.bookkeeping import PUBLISHED
from tasks.ledger.ledger import Ledger, RunState
from tasks.run import NoSuchRun, RunRef
from tasks.stages.prepare import home_of
from tasks.storage.zones import Home

SCHEDULED = "scheduled"


@dataclass(frozen=True)
class Series:
    """The releases of one product, by the date pattern of their names."""

    loaded: LoadedConfiguration
    home: Home

    @classmethod
    def open(cls, configuration: Path, *, home: Home | None = None) -> Series:
        """Read a product's configuration; it says where its state is, unless that is named.

        Raises:
            ConfigurationError: everything that is wrong with it.
            HomeNotSafe: others may write its state folder, or it is somebody else's.
        """
        loaded = load_configuration(configuration)
        return cls(loaded, home or home_of(loaded))

    @property
    def configuration(self) -> Configuration:
        """The product."""
        return self.loaded.configuration

    @property
    def product(self) -> str:
        """Its name."""
        return self.configuration.product

    @property
    def schedule(self) -> Schedule | None:
        """When its releases come due, if the configuration says so."""
        return self.configuration.schedule

    @cached_property
    def ledger(self) -> Ledger:
        """Who decides."""
        self.home.create()
        return Ledger(self.home.ledger_url, witness=self.home.witness)

    def release(self, slot: datetime) -> RunRef:
        """The release of a slot."""
        return RunRef(str(self.home.root), self.product, render_release(self.configuration, slot))

    def is_published(self, slot: datetime) -> bool:
        """Whether the release of a slot exists."""
        return self.release(slot).release in self._published()

    def put_on_schedule(self) -> datetime | None:
        """Note the schedule in the event log if it is new; say since when it stands.

        Slots before that moment were not missed: nobody had promised them. A change of the
        names' pattern counts as a new schedule, lest every old slot come due under a new name.
        """
        if self.schedule is None:
            return None
        facts = {
            "cron": self.schedule.cron,
            "timezone": self.schedule.timezone,
            "pattern": self.configuration.release,
        }
        newest = self._newest_schedule()
        if newest is None or newest[1] != facts:
            self.ledger.record(SCHEDULED, self.product, None, **facts)
            newest = self._newest_schedule()
        return None if newest is None else newest[0]

    def missed(self, now: datetime) -> tuple[datetime, ...]:
        """The slots that came due, have no release, and are to be made up for; oldest first."""
        since = self.put_on_schedule()
        if self.schedule is None or since is None:
            return ()
        published = self._published()
        return owed_slots(
            self.schedule,
            since=since,
            now=now,
            is_published=lambda slot: self.release(slot).release in published,
        )

    def begun(self) -> tuple[datetime, ...]:
        """The slots whose releases were begun and abandoned, oldest first.

        A release that another pattern named, or that a live process works on, is left alone.
        """
        published = self._published()
        slots = [
            slot
            for state in self.ledger.run_states()
            if state.product == self.product
            and state.release not in published
            and state.may_be_taken_over(now=time.time())
            and (slot := self._slot_of(state)) is not None
        ]
        return tuple(sorted(slots))

    def is_wanted(self, slot: datetime, *, now: datetime) -> bool:
        """Whether a run that the schedule started for a slot is to make the slot's release.

        The newest slot's run always is; an earlier one's only if all are to be made up for; one
        of a moment that is no slot (any more) never is.
        """
        if self.schedule is None:
            return True
        most = MOST_CAUGHT_UP if self.schedule.catch_up == "all" else 1
        just_before = slot - timedelta(seconds=1)
        # Clocks differ a little from machine to machine: a slot that fired has come due.
        until = max(now, slot)
        return slot in latest_slots(self.schedule, after=just_before, until=until, most=most)

    def _slot_of(self, state: RunState) -> datetime | None:
        try:
            plan = RunRef(str(self.home.root), state.product, state.release).open().plan
        except (NoSuchRun, ValueError):
            return None  # no plan, or none that can be read: the policy for missed slots decides
        ours = plan.configuration.release == self.configuration.release
        return self.configuration.on_its_clock(plan.slot) if ours else None

    def _published(self) -> frozenset[str]:
        return frozenset(
            event.release
            for event in self.ledger.timeline(self.product)
            if event.kind == PUBLISHED and event.release is not None
        )

    def _newest_schedule(self) -> tuple[datetime, dict[str, str]] | None:
        for event in reversed(self.ledger.timeline(self.product)):
            if event.kind == SCHEDULED:
                since = datetime.fromisoformat(event.at).astimezone(UTC)
                return since, dict(event.facts)
        return None
