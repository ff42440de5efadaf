"""A day in production: schedules of a few seconds, workers that die, a database that restarts."""

from __future__ import annotations

import json
import random
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.torture_ops.evidence import unfinished, wrong
from benchmarks.torture_ops.machines import Machine
from benchmarks.torture_ops.office import Office, deploy, make_pool, opened
from benchmarks.torture_ops.products import NAMES, Day, due_releases, write_product
from benchmarks.torture_ops.rows import Effort, Row, Torture

SEED = 7
WORKERS = 2
KILLS = 10
EVERY = 15
MINUTES = 3
# Kills come in the first part of the day; the slots of the rest are the "next slots" that finish
# what was left.
KILLS_UNTIL = 0.8
WHOLE_MACHINE = 0.7
SETTLE_SECONDS = 240
POLL_SECONDS = 1.0


@dataclass
class Diary:
    """What was done to the office."""

    kills: int = 0
    processes: int = 0
    restarts: int = 0
    resumed: int = 0
    lines: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        line = f"{datetime.now(UTC):%H:%M:%S} {text}"
        self.lines.append(line)
        print(f"  {line}", file=sys.stderr, flush=True)


def run(effort: Effort) -> Iterator[Row]:
    kills, minutes = (2, 1) if effort.quick else (KILLS, MINUTES)
    with opened(effort.folder / "office", workers=WORKERS) as office:
        diary = Diary()
        due = _live_through(office, diary, effort, kills=kills, minutes=minutes)
        violations = list(wrong(office, due))
    releases = sum(len(names) for names in due.values())
    yield Row(
        f"a day in production: {len(NAMES)} products, {WORKERS} workers, a slot every "
        f"{EVERY / len(NAMES):.0f} s, a worker killed {kills} times, PostgreSQL crashed once",
        f"{releases} releases due; {diary.kills} kills of {diary.processes} processes, "
        f"{diary.restarts} restart; {diary.resumed} resumed by hand; "
        f"{len(violations)} violations",
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
    _disturb(office, diary, day, kills=kills)
    _sleep_until(day.ends)
    diary.note("no more slots; settling")
    _settle(office, diary, due, seconds=SETTLE_SECONDS * effort.patience)
    return due


def _disturb(office: Office, diary: Diary, day: Day, *, kills: int) -> None:
    """Kill a worker at random moments of the day, and crash the database in the middle."""
    chance = random.Random(SEED)  # noqa: S311 (when to kill)
    span = (day.ends - day.begins).total_seconds() * KILLS_UNTIL
    moments = sorted(chance.uniform(0, span) for _ in range(kills))
    for number, moment in enumerate(moments):
        _sleep_until(day.begins, moment)
        if number == kills // 2:
            office.postgresql.crash_and_restart()
            diary.restarts += 1
            diary.note("PostgreSQL crashed and was started again")
        machine = chance.choice(office.workers)
        whole = chance.random() < WHOLE_MACHINE
        diary.processes += machine.lose_power() if whole else machine.kill("worker")
        diary.kills += 1
        diary.note(f"killed {machine.name}{'' if whole else ' (its runs go on)'}")
        office.start_worker(machine)


def _settle(office: Office, diary: Diary, due: Mapping[Path, Set[str]], *, seconds: float) -> None:
    """Wait for what is under way; then do what `pgsr status` says, machine by machine."""
    deadline = time.monotonic() + seconds
    while unfinished(office, due) and time.monotonic() < deadline:
        if _is_idle(office):
            for machine in office.workers:
                _follow_advice(machine, diary)
            break
        time.sleep(POLL_SECONDS)


def _is_idle(office: Office) -> bool:
    """Whether no worker has a run any more."""
    waiting = {"SCHEDULED", "PENDING", "RUNNING"}
    return not any(run["state_type"] in waiting for run in office.flow_runs())


def _follow_advice(machine: Machine, diary: Diary) -> None:
    said = machine.run("flows", "status", "--json")
    for standing in json.loads(said.stdout):
        if standing["next"].startswith("pgsr resume"):
            diary.note(f"{machine.name}: {standing['next']}")
            machine.run("flows", *shlex.split(standing["next"])[1:])
            diary.resumed += 1


def _sleep_until(moment: datetime, seconds: float = 0.0) -> None:
    time.sleep(max(0.0, moment.timestamp() + seconds - time.time()))


TORTURE = Torture("day", run)
