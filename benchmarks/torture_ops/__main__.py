"""``python -m benchmarks.torture_ops``: run, show a table, write the rows as JSON."""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.torture_ops.rows import Effort, Row, Torture

FILE_WIDTH = 200
DEFAULT_OUTPUT = Path(__file__).parent.with_name("torture-ops.json")
SUBJECTS = ("race", "day")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tortures; exit code 1 if a row does not hold, 2 if nothing matches."""
    options = _parser().parse_args(arguments)
    chosen = [t for t in all_tortures() if _matches(t.name, options.only)]
    if not chosen:
        print(f"nothing matches {options.only}; see benchmarks/torture_ops", file=sys.stderr)
        return 2
    rows: list[Row] = []
    for torture in chosen:
        rows += _run(torture, options)
    document = [row.as_json() for row in rows]
    options.output.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    Console(width=None if sys.stdout.isatty() else FILE_WIDTH).print(_table(rows))
    return 0 if all(row.holds for row in rows) else 1


def all_tortures() -> Iterator[Torture]:
    for subject in SUBJECTS:
        yield importlib.import_module(f"benchmarks.torture_ops.{subject}").TORTURE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torture_ops", description=__doc__)
    parser.add_argument("--only", metavar="PATTERN", action="append", help="names that match")
    parser.add_argument("--quick", action="store_true", help="little of everything")
    parser.add_argument("--keep", action="store_true", help="keep the folders, to look at logs")
    parser.add_argument(
        "--patience",
        metavar="TIMES",
        type=float,
        default=1.0,
        help="wait longer: a busy machine",
    )
    parser.add_argument("--output", metavar="PATH", type=Path, default=DEFAULT_OUTPUT)
    return parser


def _matches(name: str, patterns: list[str] | None) -> bool:
    return patterns is None or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _run(torture: Torture, options: argparse.Namespace) -> list[Row]:
    start = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="pgsr-ops-"))
    try:
        rows = list(torture.run(Effort(options.quick, folder, options.patience)))
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    seconds = f"{time.perf_counter() - start:.0f} s"
    for row in rows:
        print(f"{torture.name}: {row.figure} ({seconds})", file=sys.stderr, flush=True)
        for violation in row.violations:
            print(f"  {violation}", file=sys.stderr, flush=True)
    return rows


def _table(rows: Sequence[Row]) -> Table:
    table = Table(title="Operations", show_lines=True)
    for heading in ("what", "figure", "required", "holds"):
        table.add_column(heading)
    for row in rows:
        holds = "[green]yes" if row.holds else "[red]no"
        table.add_row(row.name, row.figure, row.required, holds)
    return table


if __name__ == "__main__":
    sys.exit(main())
