"""The torture harness works: quick rows are whole, hold, and catch their mutants."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.torture.__main__ import main

ROOT = Path(__file__).parents[2]
FIELDS = {"name", "figure", "required", "holds", "mutant", "mutant_caught", "violations"}
QUICK = ["bundles", "clocks", "histories", "intermediates", "purses"]


def test_quick_rows_are_whole_hold_and_catch_their_mutants(tmp_path: Path) -> None:
    """In a process of its own, because tortures fork and kill."""
    output = tmp_path / "torture.json"
    only = [argument for name in QUICK for argument in ("--only", name)]
    command = [sys.executable, "-m", "benchmarks.torture", "--quick", "--output", str(output)]
    done = subprocess.run([*command, *only], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(output.read_text())
    assert len(rows) == len(QUICK)
    for row in rows:
        assert set(row) == FIELDS
        assert row["holds"] is True
        assert row["mutant_caught"] is True


def test_a_pattern_that_matches_nothing_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    output = tmp_path / "torture.json"
    assert main(["--only", "no-such-*", "--output", str(output)]) == 2
    assert not output.exists()
