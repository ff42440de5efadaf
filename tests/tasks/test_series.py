"""A product's releases over time: what its schedule owes, and what was begun and abandoned."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from tasks.ledger.ledger import Ledger
from tasks.ledger.owner import owner_of
from tasks.ledger.runs import SILENCE_SECONDS, RunState
from tasks.order import Order, find_order, open_or_prepare, place_order
from tasks.run import NoSuchRun
from tasks.series import Series
from tasks.stages.prepare import prepare

SCHEDULE = 'schedule: {cron: "0 6 1 * *", timezone: Europe/Berlin, catch_up: all}\n'


@pytest.fixture
def product(virginia_population, tmp_path):
    """The fixture's product, on a monthly schedule since long ago."""
    folder = tmp_path / "virginia"
    shutil.copytree(virginia_population, folder)
    path = folder / "product.yaml"
    text = path.read_text().replace("release: synthetic-1", 'release: "{date:%Y-%m}"')
    path.write_text(text + SCHEDULE)
    return path


def put_on_schedule(path, *, at):
    """Note the schedule in the ledger as it would have been at another time."""
    series = Series.open(path)
    series.home.create()
    clock = Ledger(series.home.ledger_url, clock=at.timestamp)
    schedule = series.schedule
    facts = {"cron": schedule.cron, "timezone": schedule.timezone}
    clock.record("scheduled", series.product, None, **facts, pattern=series.configuration.release)
    return series


def names(series, slots):
    return [series.release(slot).release for slot in slots]


NOW = datetime(2026, 8, 15, tzinfo=UTC)


def test_nothing_was_missed_before_the_product_was_put_on_its_schedule(product):
    series = Series.open(product)
    assert series.missed(datetime.now(UTC)) == ()
    assert [event.kind for event in series.ledger.timeline()] == ["scheduled"]
    assert Series.open(product).missed(datetime.now(UTC)) == ()
    assert len(series.ledger.timeline()) == 1  # told once


def test_slots_since_then_are_missed_until_their_release_is_published(product):
    series = put_on_schedule(product, at=datetime(2026, 5, 15, tzinfo=UTC))
    assert names(series, series.missed(NOW)) == ["2026-06", "2026-07", "2026-08"]
    series.ledger.record("published", series.product, "2026-07")
    series.ledger.record("published", "another-product", "2026-08")
    assert names(series, series.missed(NOW)) == ["2026-06", "2026-08"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0 6 1 * *", "0 7 1 * *"),
        ("Europe/Berlin", "UTC"),
        ("{date:%Y-%m}", "{date:%Y-%m}-new"),  # else every old slot would be released again
    ],
)
def test_a_changed_schedule_or_pattern_of_names_owes_nothing_of_the_past(product, old, new):
    put_on_schedule(product, at=datetime(2026, 5, 15, tzinfo=UTC))
    product.write_text(product.read_text().replace(old, new))
    assert Series.open(product).missed(datetime.now(UTC)) == ()


@pytest.mark.parametrize(("policy", "earlier"), [("latest", False), ("none", False), ("all", True)])
def test_a_run_of_the_newest_slot_is_wanted_and_of_an_earlier_one_if_all_are(
    product, policy, earlier
):
    product.write_text(product.read_text().replace("catch_up: all", f"catch_up: {policy}"))
    series = Series.open(product)
    first, second = (datetime(2026, month, 1, 4, tzinfo=UTC) for month in (7, 8))
    assert series.is_wanted(second, now=NOW)
    assert series.is_wanted(first, now=NOW) == earlier
    assert not series.is_wanted(second + timedelta(minutes=3), now=NOW)  # no slot (any more)
    # The clock of the worker may lag behind the server's.
    assert series.is_wanted(second, now=second - timedelta(seconds=2))


def test_a_release_that_was_begun_and_abandoned_is_found_and_another_pattern_is_not(product):
    series = Series.open(product)
    slot = datetime(2026, 7, 1, 6, tzinfo=series.schedule.zone)
    ref = prepare(product, slot=slot)
    assert ref.release == "2026-07"
    assert series.begun() == ()  # prepared, and nobody has started it
    ref.note(state="failed", stage="ingest", error="RuntimeError")
    assert series.begun() == (slot,)
    ref.note(state="running", stage="ingest")  # this very process is at it
    assert series.begun() == ()
    ref.note(state="failed", stage="ingest", error="RuntimeError")
    product.write_text(product.read_text().replace("{date:%Y-%m}", "{date:%m-%Y}"))
    assert Series.open(product).begun() == ()


def test_an_ordered_release_without_a_plan_is_prepared_when_it_is_resumed(product):
    series = Series.open(product)
    slot = datetime(2026, 7, 1, 6, tzinfo=series.schedule.zone)
    ref = series.release(slot)
    with pytest.raises(NoSuchRun):
        open_or_prepare(ref)
    place_order(ref, Order(configuration=product, slot=slot))
    assert find_order(ref) == Order(configuration=product, slot=slot)
    assert open_or_prepare(ref).plan.slot == slot


def state(owner, *, updated=0.0, kind="running"):
    return RunState("p", "r", kind, "noise", str(owner), updated, None)


def test_a_run_of_a_process_that_is_gone_is_dead_and_may_be_taken_over():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = owner_of(process.pid)
    assert state(owner).shown == "running"
    assert not state(owner).may_be_taken_over(now=time.time())
    process.communicate(b"\n")
    assert state(owner).shown == "dead"
    assert state(owner).may_be_taken_over(now=time.time())
    assert state(owner, kind="published").shown == "published"


def test_a_run_of_another_machine_is_tried_again_only_after_a_long_silence():
    elsewhere = "another-machine/1/2/3"
    assert state(elsewhere).shown == "running"
    assert not state(elsewhere).may_be_taken_over(now=SILENCE_SECONDS)
    assert state(elsewhere).may_be_taken_over(now=SILENCE_SECONDS + 1)


def test_a_run_that_a_clock_far_ahead_noted_may_be_taken_over():
    assert state("another-machine/1/2/3").may_be_taken_over(now=-(10**9))
