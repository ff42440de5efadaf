"""A day in production: schedules of a few seconds, workers that die, a database that restarts."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Set
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.torture_ops.evidence import wrong
from benchmarks.torture_ops.office import Office, deploy, make_pool, opened
from benchmarks.torture_ops.products import NAMES, Day, due_releases, write_product
from benchmarks.torture_ops.routine import Diary, settle
from benchmarks.torture_ops.rows import Effort, Row, Torture

SEED = 7
WORKERS = 2
KILLS = 10
EVERY = 15
MINUTES = 3
WHOLE_MACHINE = 0.7
# A run's: to start, and to make a release or two.
USUAL_SECONDS = 8
KILLING_SECONDS = 200
POLL_SECONDS = 0.2
SETTLE_SECONDS = 240


def run(effort: Effort) -> Iterator[Row]:
    kills, minutes = (2, 1) if effort.quick else (KILLS, MINUTES)
    with opened(effort.folder / "office", workers=WORKERS) as office:
        diary = Diary()
        due = _live_through(office, diary, effort, kills=kills, minutes=minutes)
        violations = list(wrong(office, due))
        if (diary.kills, diary.crashes) != (kills, 1):
            violations.append(f"only {diary.kills} kills and {diary.crashes} crashes came about")
        database = office.postgresql.describe()
    releases = sum(len(names) for names in due.values())
    yield Row(
        f"a day in production: {len(NAMES)} products, {WORKERS} workers, a slot every "
        f"{EVERY / len(NAMES):.0f} s, a worker killed {kills} times, the database crashed once; "
        f"{database}",
        f"{releases} releases due; {diary.kills} kills ({diary.killed} processes), "
        f"{diary.crashes} crash; {diary.resumed} resumed by hand; {len(violations)} violations",
        "every due release once: published, verified, charged; nothing else exists",
        violations,
    )


def _live_through(
    office: Office, diary: Diary, effort: Effort, *, kills: int, minutes: int
) -> Mapping[Path, Set[str]]:
    start = datetime.now(UTC)
    make_pool(office)
    # How long that took says how long the rest of the preparations will.
    now = datetime.now(UTC)
    day = Day.after(now + 4 * (now - start), minutes=minutes, every=EVERY)
    configurations = [
        write_product(office.folder / name, name, day.schedule(number * EVERY // len(NAMES)))
        for number, name in enumerate(NAMES)
    ]
    deploy(office, configurations)
    for machine in office.workers:
        office.start_worker(machine)
    due = {path: due_releases(path, day) for path in configurations}
    diary.note(f"the day begins at {day.begins:%H:%M:%S} and ends at {day.ends:%H:%M:%S}")
    _sleep_until(day.begins)
    _disturb(office, diary, kills=kills, seconds=KILLING_SECONDS * effort.patience)
    _sleep_until(day.ends)
    diary.note("no more slots; settling")
    settle(office, diary, seconds=SETTLE_SECONDS * effort.patience)
    return due


def _disturb(office: Office, diary: Diary, *, kills: int, seconds: float) -> None:
    """Kill a machine, or its worker, in the middle of its work, again and again.

    As long as every product has a run to come: what nobody begun is left to the next slot.
    """
    chance = random.Random(SEED)  # noqa: S311 (whom to kill, when and how)
    deadline = time.monotonic() + seconds
    while diary.kills < kills and time.monotonic() < deadline and _slots_to_come(office):
        at_work = [machine for machine in office.workers if machine.has_runs()]
        if not at_work:
            time.sleep(POLL_SECONDS)
            continue
        machine = chance.choice(at_work)
        time.sleep(chance.uniform(0, USUAL_SECONDS))
        if diary.kills == kills // 2:
            office.postgresql.crash_and_restart()
            diary.crashes += 1
            diary.note("PostgreSQL crashed and was started again")
        whole = chance.random() < WHOLE_MACHINE
        diary.killed += machine.lose_power() if whole else machine.lose_worker()
        diary.kills += 1
        diary.note(f"killed {machine.name}{'' if whole else ' (its runs go on)'}")
        office.start_worker(machine)


def _slots_to_come(office: Office) -> bool:
    """Whether every product has a run that nobody has taken yet."""
    waiting = [
        run["deployment_id"] for run in office.flow_runs() if run["state_type"] == "SCHEDULED"
    ]
    return len(set(waiting)) == len(NAMES)


def _sleep_until(moment: datetime, seconds: float = 0.0) -> None:
    time.sleep(max(0.0, moment.timestamp() + seconds - time.time()))


TORTURE = Torture("day", run)
