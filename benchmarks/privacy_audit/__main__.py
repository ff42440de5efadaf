"""``python -m benchmarks.privacy_audit``: plant bugs, attack, show the matrix, write it as JSON."""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.privacy_audit.matrix import (
    Row,
    Subject,
    idle_tests,
    judge,
    prepare_process,
    subjects,
)
from benchmarks.privacy_audit.rounds import TESTS
from benchmarks.privacy_audit.verdicts import ALARM
from pgsr_core.noise.catalogue import ReleaseSampler

FILE_WIDTH = 180
WORKERS = 2
SOUND_ROUNDS, BUG_ROUNDS = 100, 20
QUICK_SOUND_ROUNDS, QUICK_BUG_ROUNDS = 2, 1
DEFAULT_OUTPUT = Path(__file__).parent.with_name("privacy-audit.json")
# Stores and ledgers of the audited products are thrown away; no need to wait for a disk.
MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # noqa: S108 (private folders)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the audit; exit code 1 if the bar is missed, 2 if nothing matches."""
    options = _parser().parse_args(arguments)
    chosen = [s for s in subjects() if _matches(s.name, options.only)]
    if not chosen:
        print(f"no row matches {options.only}; see --list", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(subject.name for subject in chosen))
        return 0
    start = time.perf_counter()
    rows = _run(chosen, quick=options.quick)
    # Whether a test has power is seen on all the bugs, not on some.
    idle = idle_tests(rows) if options.only is None else []
    holds = all(row.holds for row in rows) and not idle
    document = {
        "alarm_below": ALARM,
        "tests_that_catch_no_bug": idle,
        "holds": holds,
        "seconds": round(time.perf_counter() - start),
        "rows": [row.as_json() for row in rows],
    }
    options.output.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    console = Console(width=None if sys.stdout.isatty() else FILE_WIDTH)
    console.print(_table(rows))
    for test in idle:
        console.print(f"[red]{test}[/] catches no bug in every round")
    return 0 if holds else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.privacy_audit", description=__doc__)
    parser.add_argument(
        "--only",
        metavar="PATTERN",
        action="append",
        help="rows that match, as in 'scale*'; may be given several times",
    )
    parser.add_argument("--quick", action="store_true", help="one round a bug, two without")
    parser.add_argument("--list", action="store_true", help="only list the rows")
    parser.add_argument("--output", metavar="PATH", type=Path, default=DEFAULT_OUTPUT)
    return parser


def _matches(name: str, patterns: list[str] | None) -> bool:
    return patterns is None or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _run(chosen: Sequence[Subject], *, quick: bool) -> list[Row]:
    """All rounds, two at a time, each process with one thread."""
    rounds = [s for s in chosen for _ in range(_rounds(s, quick=quick))]
    rows = {subject: Row(subject) for subject in chosen}
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(prefix="pgsr-privacy-audit-", dir=MEMORY) as folder,
        ProcessPoolExecutor(WORKERS, mp_context=spawn, initializer=prepare_process) as pool,
    ):
        verdicts = pool.map(judge, rounds, [Path(folder)] * len(rounds))
        for subject, said in zip(_with_progress(rounds), verdicts, strict=True):
            rows[subject].note(said)
    return list(rows.values())


def _rounds(subject: Subject, *, quick: bool) -> int:
    if subject.bug:
        return QUICK_BUG_ROUNDS if quick else BUG_ROUNDS
    sound = QUICK_SOUND_ROUNDS if quick else SOUND_ROUNDS
    return sound if subject.sampler is ReleaseSampler.OPENDP else sound // 2


def _with_progress(rounds: Sequence[Subject]) -> Iterator[Subject]:
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(rounds))
        for subject in rounds:
            progress.update(task, description=subject.name)
            yield subject
            progress.advance(task)


def _table(rows: Sequence[Row]) -> Table:
    table = Table(
        title="Privacy audit: in how many rounds each test raised the alarm",
        caption=f"Alarm: p-value below {ALARM:g}, adjusted for everything that the test looked at",
    )
    table.add_column("planted bug", no_wrap=True)
    for heading in ("rounds", *TESTS, "caught"):
        table.add_column(heading, justify="right")
    for row in rows:
        cells = [str(count) if count else "·" for count in row.alarms.values()]
        caught = f"[{'green' if row.holds else 'red'}]{row.caught}"
        table.add_row(row.subject.name, str(row.rounds), *cells, caught)
    return table


if __name__ == "__main__":
    sys.exit(main())
