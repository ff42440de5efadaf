"""``python -m benchmarks.torture``: run, show a table, write the rows as JSON."""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.torture.rows import Effort, Row, Torture
from benchmarks.torture.running import MEMORY, all_tortures, run_one

FILE_WIDTH = 200
WORKERS = 2
DEFAULT_OUTPUT = Path(__file__).parent.with_name("torture.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tortures; exit code 1 if a row does not hold, 2 if nothing matches."""
    options = _parser().parse_args(arguments)
    chosen = [t for t in all_tortures() if _matches(t.name, options.only)]
    if not chosen:
        print(f"no torture matches {options.only}; see benchmarks/torture", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="pgsr-torture-", dir=MEMORY) as folder:
        rows = list(_run(chosen, Effort(options.quick, Path(folder))))
    options.output.write_text(
        json.dumps([row.as_json() for row in rows], indent=2, ensure_ascii=False) + "\n"
    )
    Console(width=None if sys.stdout.isatty() else FILE_WIDTH).print(_table(rows))
    return 0 if all(row.passed for row in rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torture", description=__doc__)
    parser.add_argument(
        "--only",
        metavar="PATTERN",
        action="append",
        help="names that match, as in 'race*'; may be given several times",
    )
    parser.add_argument("--quick", action="store_true", help="few trials of everything")
    parser.add_argument("--output", metavar="PATH", type=Path, default=DEFAULT_OUTPUT)
    return parser


def _matches(name: str, patterns: list[str] | None) -> bool:
    return patterns is None or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _run(chosen: Sequence[Torture], effort: Effort) -> Iterator[Row]:
    """Run each in a new process, two at a time; rows come in the order of the subjects."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, mp_context=spawn, max_tasks_per_child=1) as pool:
        for rows in pool.map(run_one, [t.name for t in chosen], [effort] * len(chosen)):
            yield from rows


def _table(rows: Sequence[Row]) -> Table:
    table = Table(title="Torture", show_lines=True)
    for heading in ("what", "figure", "required", "holds", "mutant", "caught"):
        table.add_column(heading)
    for row in rows:
        holds, caught = (
            "[green]yes" if verdict else "[red]no" for verdict in (row.holds, row.mutant_caught)
        )
        table.add_row(row.name, row.figure, row.required, holds, row.mutant, caught)
    return table


if __name__ == "__main__":
    sys.exit(main())
