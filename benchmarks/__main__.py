"""``python -m benchmarks``: run, show a table, write the rows as JSON."""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.rows import Benchmark, Effort, Row

SUBJECTS = (
    "cpwl",
    "tables",
    "generic_solvers",
    "isotonic",
    "projection",
    "sampler",
    "memory",
    "first_call",
)
FILE_WIDTH = 180
DEFAULT_OUTPUT = Path(__file__).with_name("results.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks; exit code 1 if a bar is missed, 2 if nothing matches."""
    options = _parser().parse_args(arguments)
    chosen = [b for b in _all_benchmarks() if _matches(b.name, options.only)]
    if options.list:
        print("\n".join(benchmark.name for benchmark in chosen))
        return 0
    if not chosen:
        print(f"no benchmark matches {options.only}; see --list", file=sys.stderr)
        return 2
    effort = Effort(quick=options.quick, repetitions=1 if options.quick else options.repetitions)
    rows = list(_run(chosen, effort))
    options.output.write_text(
        json.dumps([row.as_json() for row in rows], indent=2, ensure_ascii=False) + "\n"
    )
    Console(width=None if sys.stdout.isatty() else FILE_WIDTH).print(_table(rows))
    return 1 if any(row.holds is False for row in rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only",
        metavar="PATTERN",
        action="append",
        help="names that match, as in 'cpwl-*'; may be given several times",
    )
    parser.add_argument("--quick", action="store_true", help="tiny shapes, no bars")
    parser.add_argument("--list", action="store_true", help="only list the names")
    parser.add_argument("--output", metavar="PATH", type=Path, default=DEFAULT_OUTPUT)
    parser.add_argument("--repetitions", metavar="N", type=int, default=7, help="best of N")
    return parser


def _all_benchmarks() -> Iterator[Benchmark]:
    for subject in SUBJECTS:
        yield from importlib.import_module(f"benchmarks.{subject}").BENCHMARKS


def _matches(name: str, patterns: list[str] | None) -> bool:
    return patterns is None or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _run(chosen: Sequence[Benchmark], effort: Effort) -> Iterator[Row]:
    for number, benchmark in enumerate(chosen, start=1):
        print(f"[{number}/{len(chosen)}] {benchmark.name} …", file=sys.stderr, flush=True)
        start = time.perf_counter()
        yield from benchmark.run(effort)
        print(f"    {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)


def _table(rows: Sequence[Row]) -> Table:
    table = Table(title="Ratios measured in one run")
    for heading in ("what", "on", "value", "unit", "against", "bar", "holds"):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    for row in rows:
        verdict = {True: "[green]yes", False: "[red]no", None: ""}[row.holds]
        bar = "" if row.bar is None else str(row.bar)
        value = f"{row.value:,.3g}" if row.value < 1_000 else f"{row.value:,.0f}"
        table.add_row(row.name, row.shape, value, row.unit, row.against, bar, verdict)
    return table


if __name__ == "__main__":
    sys.exit(main())
