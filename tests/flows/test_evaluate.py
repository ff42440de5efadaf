"""`pgsr evaluate` as users run it: through Prefect, with workers of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from flows.cli.app import app


@pytest.fixture
def in_process(prefect_server: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    """The command inside this process, with the session's Prefect server."""
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

    for name, value in prefect_server.items():
        monkeypatch.setenv(name, value)
    updates = {
        PREFECT_API_URL: prefect_server["PREFECT_API_URL"],
        PREFECT_HOME: prefect_server["PREFECT_HOME"],
    }
    with temporary_settings(updates=updates):
        yield lambda *arguments: app(["evaluate", *arguments], standalone_mode=False)


def test_an_evaluation_is_made_once_and_can_be_read(in_process, tmp_path: Path, capsys) -> None:
    results = tmp_path / "results"
    arguments = [
        str(results), "--data", "synthetic-5", "--mechanisms", "cumulative,global",
        "--epsilons", "0.5", "--repetitions", "2", "--time-limit", "60", "--jobs", "2", "--json",
    ]  # fmt: skip
    in_process(*arguments)
    answer = json.loads(capsys.readouterr().out)
    assert answer["outcomes"] == {"answered": 4}
    assert answer["broken_promises"] == []
    with duckdb.connect(results / "results.duckdb", read_only=True) as connection:
        [(runs, seeds, slowest, memory)] = connection.sql(
            "SELECT count(*), count(DISTINCT seed), max(seconds), min(memory) FROM runs"
        ).fetchall()
        assert (runs, seeds) == (4, 2)
        assert 0 < slowest < 60
        assert memory > 0
        assert connection.sql("SELECT count(*) FROM errors").fetchall() == [(4 * 3,)]
        before = connection.sql("SELECT * FROM runs ORDER BY ALL").fetchall()
    figure = results / "figures" / "figure-8.svg"
    figure.unlink()
    in_process(*arguments)
    with duckdb.connect(results / "results.duckdb", read_only=True) as connection:
        assert connection.sql("SELECT * FROM runs ORDER BY ALL").fetchall() == before
    assert figure.is_file()


def test_a_signal_ends_it_at_once_with_what_was_found(tmp_path: Path) -> None:
    """Sent to the whole group as by a terminal, so that Prefect's temporary server ends too."""
    environment = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
    with subprocess.Popen(
        [sys.executable, "-m", "flows", "evaluate", str(tmp_path / "results"),
         "--data", "synthetic-5", "--mechanisms", "direct,constraint-tables",
         "--epsilons", "0.5", "--repetitions", "2"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        first = process.stderr.readline()
        assert "✓ synthetic-5 direct: 2 runs" in first
        os.killpg(process.pid, signal.SIGTERM)  # while the other one is at work, for half an hour
        _, told = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert told.strip() == (
        "note: interrupted; every run that ended is kept. The same command goes on."
    )
    with duckdb.connect(tmp_path / "results" / "results.duckdb", read_only=True) as connection:
        assert connection.sql("SELECT mechanism, count(*) FROM runs GROUP BY 1").fetchall() == [
            ("direct", 2)
        ]


def test_the_list_names_what_is_not_here(monkeypatch, capsys) -> None:
    monkeypatch.delenv("PGSR_DATA", raising=False)
    app(["evaluate", "--list"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "us_hifld_hospital_beds.csv is not in PGSR_DATA" in shown
    assert "M_c^dp" in shown
