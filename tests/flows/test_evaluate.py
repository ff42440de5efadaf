"""`pgsr evaluate` as users run it: through Prefect, with workers of its own."""

from __future__ import annotations

import json
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
        "--repetitions", "2", "--time-limit", "60", "--jobs", "2", "--json",
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


def test_the_list_names_what_is_not_here(monkeypatch, capsys) -> None:
    monkeypatch.delenv("PGSR_DATA", raising=False)
    app(["evaluate", "--list"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "us_hifld_hospital_beds.csv is not in PGSR_DATA" in shown
    assert "M_c^dp" in shown
