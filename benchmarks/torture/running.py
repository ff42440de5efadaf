"""The subjects of the torture, and how one is run in a process of its own.

A process that has used DuckDB has threads and must not fork, so no two subjects share one.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.torture.rows import Effort, Row, Torture

# The longest first.
SUBJECTS = (
    "edits",
    "crowd",
    "obstacles",
    "intruders",
    "machine",
    "failpoints",
    "disks",
    "kills",
    "races",
    "protocol_mutants",
    "bundles",
    "histories",
    "clocks",
    "intermediates",
    "purses",
)
# What a killed process wrote stays in the page cache, on a disk or not; this one is fast.
MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # noqa: S108 (private folders)


def all_tortures() -> Iterator[Torture]:
    for subject in SUBJECTS:
        yield importlib.import_module(f"benchmarks.torture.{subject}").TORTURE


def run_one(name: str, effort: Effort) -> list[Row]:
    [torture] = [known for known in all_tortures() if known.name == name]
    folder = effort.folder / name
    folder.mkdir()
    start = time.perf_counter()
    rows = list(torture.run(Effort(effort.quick, folder)))
    seconds = f"{time.perf_counter() - start:.1f} s"
    figures = "; ".join(row.figure for row in rows)
    print(f"{name}: {figures} ({seconds})", file=sys.stderr, flush=True)
    for row in rows:
        for violation in [] if row.holds else row.as_json()["violations"]:
            print(f"  {row.name}: {violation}", file=sys.stderr, flush=True)
    return rows
