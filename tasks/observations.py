"""What each stage took: time and memory, in the run's folder; for the office alone.

Durations may tell something about the data, so they are in no bundle and no public place. The
number of rows does tell, so it is kept in the confidential zone, and goes when that is purged.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from tasks.run import RunRef
from tasks.storage.zones import Home, StateNotWritten, make_private_folder, write_private

FILE = "observations.json"
# What Linux counts in kilobytes other systems count in bytes.
_RESIDENT_UNIT = 1024 if sys.platform == "linux" else 1


class Observation(BaseModel, frozen=True):
    """The last attempt at a stage, and how many there were.

    Attributes:
        seconds: how long it took, by a clock that is never set.
        peak_bytes: the most memory that its process had held until then.
        ended: when, in seconds since 1970.
        error: what may be said of what stopped it (tasks/outside.py); None if it finished.
        attempts: all so far.
        failures: how many of them failed.
        flow_run: Prefect's id of the run that made the last one.
    """

    seconds: float
    peak_bytes: int
    ended: float
    error: str | None
    attempts: int
    failures: int
    flow_run: str | None = None


_BY_STAGE = TypeAdapter(dict[str, Observation])


def observe(
    ref: RunRef, stage: str, *, seconds: float, error: str | None, flow_run: str | None = None
) -> Observation:
    """Note that an attempt at a stage ended; what cannot be noted never stops a stage."""
    known = observations(ref.folder.safe)
    before = known.get(stage)
    seen = Observation(
        seconds=seconds,
        peak_bytes=peak_bytes(),
        ended=time.time(),
        error=error,
        attempts=(before.attempts if before else 0) + 1,
        failures=(before.failures if before else 0) + (error is not None),
        flow_run=flow_run,
    )
    _write(ref.folder.safe, _BY_STAGE.dump_json({**known, stage: seen}))
    return seen


def note_rows(ref: RunRef, rows: int) -> None:
    """Note how many rows were read, where only what is confidential is kept."""
    _write(ref.folder.confidential, json.dumps({"rows": rows}).encode())


def observations(folder: Path) -> dict[str, Observation]:
    """What was noted of each stage of a run; nothing where the file is missing or damaged."""
    try:
        return _BY_STAGE.validate_json((folder / FILE).read_bytes())
    except (OSError, ValidationError):
        return {}


def noted_rows(folder: Path) -> int | None:
    """How many rows were read, while the confidential folder is there."""
    try:
        return int(json.loads((folder / FILE).read_bytes())["rows"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def observed_runs(home: Home) -> list[tuple[str, str]]:
    """Product and release of every run of an installation that left something to look at."""
    files = sorted((home.root / "runs").glob(f"*/*/{FILE}"))
    return [(file.parent.parent.name, file.parent.name) for file in files]


def peak_bytes() -> int:
    """The most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RESIDENT_UNIT


def _write(folder: Path, content: bytes) -> None:
    with suppress(StateNotWritten):
        make_private_folder(folder)
        write_private(folder / FILE, content)
