"""The slots of a schedule: when they come due, which are owed, and what cron is taken."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.configuration.dates import check_cron, on_the_clock, render
from tasks.configuration.schedule import Schedule
from tasks.configuration.slots import MOST_CAUGHT_UP, latest_slots, next_slots, owed_slots

BERLIN = ZoneInfo("Europe/Berlin")
QUARTERS = Schedule(cron="0 6 1 1,4,7,10 *", timezone="Europe/Berlin", catch_up="all")
SUMMER = datetime(2026, 8, 15, tzinfo=UTC)


def under(policy):
    return QUARTERS.model_copy(update={"catch_up": policy})


def nothing_published(_slot):
    return False


def test_a_slot_keeps_its_hour_when_the_clocks_change():
    slots = next_slots(QUARTERS, after=SUMMER, count=3)
    assert [slot.hour for slot in slots] == [6, 6, 6]
    assert [slot.utcoffset() for slot in slots] == [timedelta(hours=h) for h in (2, 1, 2)]


def test_a_slot_belongs_to_the_day_of_its_time_zone():
    # Half past eleven in the evening in London is the next year in Berlin.
    slot = datetime(2026, 12, 31, 23, 30, tzinfo=UTC)
    assert render("{date:%Y}-Q{quarter}", on_the_clock(slot, BERLIN)) == "2027-Q1"
    assert render("{date:%Y}-Q{quarter}", on_the_clock(slot, ZoneInfo("UTC"))) == "2026-Q4"


def test_a_date_without_a_zone_is_meant_in_the_zone_of_the_schedule():
    assert on_the_clock(date(2026, 7, 1), BERLIN) == datetime(2026, 7, 1, tzinfo=BERLIN)
    assert on_the_clock(datetime(2026, 7, 1, 6), BERLIN) == datetime(2026, 7, 1, 6, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("policy", "names"),
    [("none", []), ("latest", ["2026-07"]), ("all", ["2025-10", "2026-01", "2026-04", "2026-07"])],
)
def test_the_policy_says_which_missed_slots_are_owed(policy, names):
    owed = owed_slots(
        under(policy),
        since=datetime(2025, 9, 1, tzinfo=UTC),
        now=SUMMER,
        is_published=nothing_published,
    )
    assert [slot.strftime("%Y-%m") for slot in owed] == names


def test_a_slot_whose_release_exists_is_not_owed_and_no_earlier_one_takes_its_place():
    def published(slot):
        return slot.month == 7

    since = datetime(2025, 9, 1, tzinfo=UTC)
    assert owed_slots(under("latest"), since=since, now=SUMMER, is_published=published) == ()
    owed = owed_slots(under("all"), since=since, now=SUMMER, is_published=published)
    assert [slot.month for slot in owed] == [10, 1, 4]


def test_no_slot_before_the_product_was_put_on_its_schedule_is_owed():
    slot = datetime(2026, 7, 1, 6, tzinfo=BERLIN)
    for since, owed in ((slot - timedelta(seconds=1), (slot,)), (slot, ())):
        found = owed_slots(QUARTERS, since=since, now=SUMMER, is_published=nothing_published)
        assert found == owed


def test_catching_up_is_bounded_and_takes_the_newest():
    every_day = Schedule(cron="0 6 * * *", catch_up="all")
    owed = owed_slots(
        every_day,
        since=SUMMER - timedelta(days=4000),
        now=SUMMER,
        is_published=nothing_published,
    )
    assert len(owed) == MOST_CAUGHT_UP
    assert owed[-1] == datetime(2026, 8, 14, 6, tzinfo=UTC)


@settings(max_examples=20)
@given(
    cron=st.sampled_from(
        ["0 6 1 1,4,7,10 *", "30 2 * * *", "*/7 * * * *", "0 0 29 2 *", "* * * * * */20"]
    ),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"]),
    until=st.datetimes(datetime(2025, 1, 1), datetime(2027, 12, 31)),
    most=st.integers(1, 5),
    window=st.timedeltas(timedelta(seconds=1), timedelta(hours=2)),
)
def test_looking_back_finds_what_counting_forward_finds(cron, zone, until, most, window):
    schedule = Schedule(cron=cron, timezone=zone)
    until = until.replace(tzinfo=UTC)
    after = until - window
    forward = []
    while not forward or forward[-1] <= until:
        forward += next_slots(schedule, after=forward[-1] if forward else after, count=100)
    forward = [slot for slot in forward if slot <= until]
    assert list(latest_slots(schedule, after=after, until=until, most=most)) == forward[-most:]


@pytest.mark.parametrize(
    "cron",
    ["0 6 1 1,4,7,10 *", "*/5 * * * *", "0 0 * * mon-fri", "0 0 29 feb *", "* * * * * */20"],
)
def test_cron_expressions_are_taken_and_prefect_takes_them_too(cron):
    check_cron(cron)
    assert next_slots(Schedule(cron=cron), after=SUMMER, count=1)


@pytest.mark.parametrize(
    "cron",
    ["", "daily", "@daily", "* * * *", "61 * * * *", "0 0 30 2 *", "r * * * *", "0 6 L * *", "5 x"],
)
def test_what_is_no_cron_expression_or_never_comes_due_is_refused(cron):
    with pytest.raises(ValueError, match="five fields"):
        check_cron(cron)


@pytest.mark.parametrize(
    "cron", ["0 6 1-1 * *", "0 6 * 2,3-3 *", "0 6 * * mon-Mon", "5-5/20 * * * *"]
)
def test_a_range_of_one_which_prefect_takes_for_all_is_refused(cron):
    with pytest.raises(ValueError, match="five fields"):
        check_cron(cron)


@pytest.mark.parametrize("cron", ["0 6 1-11 * *", "0 6 11-12 * *", "0 6 2-4,5-9 * *"])
def test_a_range_that_only_looks_like_one_of_one_is_taken(cron):
    check_cron(cron)
