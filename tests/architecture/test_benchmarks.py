"""The benchmark harness works: every subject runs on tiny shapes and reports whole rows."""

from __future__ import annotations

import json
import math

import pytest

from benchmarks import rows
from benchmarks.__main__ import main

FIELDS = {"name", "shape", "value", "unit", "against", "bar", "holds"}


@pytest.mark.parametrize(
    "pattern",
    [
        "cpwl-*",
        "certificate",
        "tables-*",
        "generic-*",
        "isotonic-*",
        "projection-*",
        "sampler-*",
        "memory-cpwl-us",
    ],
)
def test_every_subject_runs_on_tiny_shapes_and_reports_whole_rows(pattern, tmp_path, capsys):
    output = tmp_path / "results.json"
    assert main(["--quick", "--only", pattern, "--output", str(output)]) == 0
    reported = json.loads(output.read_text())
    assert reported
    for row in reported:
        assert set(row) == FIELDS
        assert row["name"]
        assert row["shape"].startswith("tiny")
        assert math.isfinite(row["value"])
        assert (row["bar"] is None) == (row["holds"] is None)
    assert reported[0]["name"].split(",")[0] in capsys.readouterr().out


def test_a_pattern_that_matches_nothing_is_an_error_and_writes_nothing(tmp_path, capsys):
    output = tmp_path / "results.json"
    assert main(["--only", "no-such-*", "--output", str(output)]) == 2
    assert not output.exists()
    assert "--list" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("bar", "value", "holds"),
    [
        (rows.at_most(12), 12.0, True),
        (rows.at_most(12), 12.1, False),
        (rows.at_least(24), 24.0, True),
        (rows.at_least(24), 23.9, False),
        (None, 1.0, None),
    ],
)
def test_a_row_holds_exactly_when_its_value_keeps_the_bar(bar, value, holds):
    assert rows.Row("name", "shape", value, "×", "copy", bar).holds is holds


def test_margins_are_measured_by_level_and_true_count_and_held_to_their_bars(tmp_path, capsys):
    from benchmarks import margins

    output = tmp_path / "margins.json"
    assert margins.main(["--quick", "--output", str(output)]) == 0
    reported = json.loads(output.read_text())
    assert all(len(row) == len(reported["columns"]) for row in reported["rows"])
    assert "over 20" in capsys.readouterr().out
    row = dict(zip(reported["columns"], reported["rows"][0], strict=True))
    assert not margins.missed({**row, "cells": 1_000, "coverage_90": 0.85, "coverage_95": 0.9})
    assert margins.missed({**row, "cells": 1_000, "coverage_90": 0.84})
    assert not margins.missed({**row, "cells": 10, "coverage_90": 0.84})


def test_a_missed_bar_fails_the_run(tmp_path, monkeypatch):
    missed = rows.Row("solver", "tiny", 13.0, "×", "copy", rows.at_most(12))
    benchmark = rows.Benchmark("slow", lambda _: iter([missed]))
    monkeypatch.setattr("benchmarks.__main__._all_benchmarks", lambda: [benchmark])
    output = tmp_path / "results.json"
    assert main(["--output", str(output)]) == 1
    (row,) = json.loads(output.read_text())
    assert row["bar"] == "≤ 12"
    assert row["holds"] is False
