"""``python -m benchmarks.torture``: run, show a table, write the rows as JSON."""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.torture.rows import Effort, Row, Torture

# Those that fork come first: a process that has used DuckDB has threads, and is not forked.
SUBJECTS = (
    "failpoints",
    "kills",
    "disks",
    "races",
    "protocol_mutants",
    "bundles",
    "histories",
    "clocks",
    "intermediates",
    "machine",
)
FILE_WIDTH = 200
DEFAULT_OUTPUT = Path(__file__).parent.with_name("torture.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tortures; exit code 1 if a row does not hold, 2 if nothing matches."""
    options = _parser().parse_args(arguments)
    chosen = [t for t in _all_tortures() if _matches(t.name, options.only)]
    if not chosen:
        print(f"no torture matches {options.only}; see benchmarks/torture", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="pgsr-torture-") as folder:
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


def _all_tortures() -> Iterator[Torture]:
    for subject in SUBJECTS:
        yield importlib.import_module(f"benchmarks.torture.{subject}").TORTURE


def _matches(name: str, patterns: list[str] | None) -> bool:
    return patterns is None or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _run(chosen: Sequence[Torture], effort: Effort) -> Iterator[Row]:
    for number, torture in enumerate(chosen, start=1):
        print(f"[{number}/{len(chosen)}] {torture.name} …", file=sys.stderr, flush=True)
        start = time.perf_counter()
        folder = effort.folder / torture.name
        folder.mkdir()
        yield from torture.run(Effort(effort.quick, folder))
        print(f"    {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)


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
