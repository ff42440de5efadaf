"""The schedule of a product: when its releases come due, and what is done about a missed one."""

from __future__ import annotations

from typing import Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field, field_validator

from tasks.configuration.dates import check_cron
from tasks.configuration.section import Section


class Schedule(Section):
    """When releases come due, on the clock of which time zone, and what is done if one is missed.

    Attributes:
        catch_up: of slots that were missed, the latest is made up for, or all, or none.
    """

    cron: str = Field(max_length=200)
    timezone: str = "UTC"
    catch_up: Literal["latest", "all", "none"] = "latest"

    @field_validator("cron")
    @classmethod
    def _comes_due(cls, cron: str) -> str:
        check_cron(cron)
        return cron

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in available_timezones():
            raise ValueError("is not a known time zone; name it like Europe/Berlin or UTC")
        return name

    @property
    def zone(self) -> ZoneInfo:
        """The time zone on whose clock slots are named."""
        return ZoneInfo(self.timezone)
