"""Two workers on one pool that start the same release at the same moment, again and again.

Prefect's limit of one run for each product is taken away: no guarantee may rest on it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.torture_ops.evidence import wrong
from benchmarks.torture_ops.office import Office, deploy, make_pool, opened
from benchmarks.torture_ops.products import NAMES, write_product
from benchmarks.torture_ops.routine import Diary, settle
from benchmarks.torture_ops.rows import Effort, Row, Torture
from tasks.series import Series

WORKERS = 2
FIRST_SLOT = datetime(2026, 1, 1, tzinfo=UTC)
# Runs are asked for; the schedule is only there to be deployed.
NEVER = {"cron": "0 0 29 2 *", "timezone": "UTC", "catch_up": "none"}
ROUND_SECONDS = 120
POLL_SECONDS = 0.5


def run(effort: Effort) -> Iterator[Row]:
    rounds = 1 if effort.quick else 5
    with opened(effort.folder / "office", workers=WORKERS) as office:
        name = NAMES[0]
        configuration = write_product(office.folder / name, name, NEVER)
        make_pool(office)
        deploy(office, [configuration], limited=False)
        for machine in office.workers:
            office.start_worker(machine)
        slots = [FIRST_SLOT + timedelta(days=number) for number in range(rounds)]
        ended: Counter[str] = Counter()
        diary = Diary()
        for slot in slots:
            ended += _race(office, slot, diary, seconds=ROUND_SECONDS * effort.patience)
        due = {configuration: _releases(configuration, slots)}
        settle(office, diary, seconds=ROUND_SECONDS * effort.patience)
        violations = list(wrong(office, due))
        database = office.postgresql.describe()
    yield Row(
        f"{WORKERS} workers start the same release at the same time, {rounds} rounds; {database}",
        f"runs: {', '.join(f'{n} {state.lower()}' for state, n in ended.most_common())}; "
        f"{diary.resumed} resumed by hand; {len(violations)} violations",
        "every release once: published, verified, charged; nothing else exists",
        violations,
    )


def _race(office: Office, slot: datetime, diary: Diary, *, seconds: float) -> Counter[str]:
    """Ask for the same slot twice and wait for both runs; says how they ended."""
    [deployment] = office.ask("deployments/filter")
    place = f"deployments/{deployment['id']}/create_flow_run"
    asked = [
        office.ask(place, parameters={"slot": slot.isoformat()}, state={"type": "SCHEDULED"})["id"]
        for _ in range(WORKERS)
    ]
    deadline = time.monotonic() + seconds
    runs = []
    while time.monotonic() < deadline:
        runs = [run for run in office.flow_runs() if run["id"] in asked]
        if not {_state(run) for run in runs} & {"SCHEDULED", "PENDING", "RUNNING"}:
            break
        time.sleep(POLL_SECONDS)
    for run in runs:
        diary.note(f"{slot:%Y-%m-%d}: {_state(run)} {run['state']['message'] or ''}")
    return Counter(_state(run) for run in runs)


def _state(run: dict[str, Any]) -> str:
    return str(run["state_type"])


def _releases(configuration: Path, slots: list[datetime]) -> set[str]:
    series = Series.open(configuration)
    return {series.release(slot).release for slot in slots}


TORTURE = Torture("race", run)
