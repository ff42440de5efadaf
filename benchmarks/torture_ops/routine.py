"""The operator's routine after a bad day: wait, then do what `pgsr status` says on each machine."""

from __future__ import annotations

import json
import shlex
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from benchmarks.torture_ops.machines import Machine
from benchmarks.torture_ops.office import Office

POLL_SECONDS = 1.0
# So many looks in a row must find nothing that moves.
STILL = 10


@dataclass
class Diary:
    """What was done to an office, and by hand in it."""

    kills: int = 0
    killed: int = 0
    crashes: int = 0
    resumed: int = 0

    def note(self, text: str) -> None:
        print(f"  {datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)


def settle(office: Office, diary: Diary, *, seconds: float) -> None:
    """Wait until nothing moves any more; then finish by hand what is not finished."""
    deadline = time.monotonic() + seconds
    still = 0
    while time.monotonic() < deadline and still < STILL:
        still = 0 if _moves(office) else still + 1
        time.sleep(POLL_SECONDS)
    for machine in office.workers:
        _follow_advice(machine, diary)


def _moves(office: Office) -> bool:
    """Whether a run goes on, or waits for its turn; one that Prefect takes for running may not."""
    if any(machine.has_runs() for machine in office.workers):
        return True
    return any(run["state_type"] == "SCHEDULED" for run in office.flow_runs())


def _follow_advice(machine: Machine, diary: Diary) -> None:
    said = machine.run("flows", "status", "--json")
    for standing in json.loads(said.stdout):
        if standing["next"].startswith("pgsr resume"):
            diary.note(f"{machine.name}: {standing['next']}")
            machine.run("flows", *shlex.split(standing["next"])[1:])
            diary.resumed += 1
