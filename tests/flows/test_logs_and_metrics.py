"""A run whose log a machine collects: JSON lines, nothing confidential in them; its metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from tests.flows.commandline import Pgsr, edit


def test_a_collected_log_holds_json_only_and_not_where_the_data_are_wrong(
    pgsr: Pgsr, virginia: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(virginia)
    edit(virginia / "product.yaml", "person: person_id", "person: region_id")
    failed = pgsr("--log-format", "json", "release", "product.yaml", cwd=virginia)
    assert failed.returncode == 2  # as without the option: the persons table is wrong
    lines = [json.loads(line) for line in failed.stderr.splitlines()]
    [stage] = [line for line in lines if line["event"] == "stage failed"]
    assert (stage["stage"], stage["release"]) == ("ingest", "synthetic-1")
    assert stage["flow_run"]
    assert lines[-1]["event"] == "command failed"
    assert "row" not in failed.stdout + failed.stderr
    log = virginia / ".pgsr" / "confidential" / "household-sizes" / "synthetic-1" / "operator.log"
    assert "(row 1, 2" in log.read_text()  # the operator finds it where only he can read

    run = CliRunner()
    shown = run.invoke(app, ["metrics"])
    assert shown.exit_code == 0
    assert 'pgsr_stage_failures{product="household-sizes"' in shown.output
    assert run.invoke(app, ["metrics", "--save"]).stdout == ""
    assert (virginia / ".pgsr" / "metrics.prom").stat().st_mode & 0o777 == 0o600
    assert run.invoke(app, ["metrics", "--rows", "--output", "x.prom"]).exit_code == 1
    assert run.invoke(app, ["metrics", "--rows", "--save"]).exit_code == 0
    assert (virginia / ".pgsr" / "confidential" / "metrics.prom").is_file()
    assert not (virginia / "x.prom").exists()
