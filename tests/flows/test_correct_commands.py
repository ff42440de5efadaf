"""`pgsr withdraw` and `pgsr repost` on the command line, from release to verification."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from flows.cli.app import app
from tasks.corrections.withdrawal import ReleaseWithdrawn
from tasks.keys import create_key
from tasks.stages.prepare import prepare
from tests.flows.commandline import edit
from tests.tasks.in_process import run_stages

NAME = "household-sizes/synthetic-1"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def said(*arguments: str | Path) -> dict:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    # Progress may stand before the document.
    return json.loads(done.stdout[done.stdout.index("{") :])


def test_a_release_is_withdrawn_and_reposted_and_everybody_is_told(
    virginia: Path,
    release_in_process: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(virginia)
    create_key(virginia / "release.key")
    edit(virginia / "product.yaml", "mechanism:", "margins: {repetitions: 0}\nmechanism:")
    edit(virginia / "product.yaml", "  to: public\n", "  to: public\n  signing_key: release.key\n")
    run_stages(prepare(virginia / "product.yaml", slot=date(2026, 1, 1)))
    bundle = virginia / "public" / NAME
    verify = ("audit", "verify", bundle, "--key", "release.key.pub")
    assert "WITHDRAWN" not in run(*verify).output

    withdrawn = run("withdraw", NAME, "--reason", "Two [counties] were swapped.")
    assert withdrawn.exit_code == 0, withdrawn.output
    assert "Two [counties] were swapped." in withdrawn.output
    assert said("withdraw", NAME, "--reason", "again")["new"] is False
    verified = run(*verify)
    assert verified.exit_code == 0
    assert "Verified" in verified.output
    assert "WITHDRAWN" in verified.output
    assert "Two [counties] were swapped." in verified.output
    assert said(*verify)["withdrawn"]["reason"] == "Two [counties] were swapped."
    assert "withdrawn" in run("status").output
    assert "swapped" in run("audit", "log", NAME).output
    with pytest.raises(ReleaseWithdrawn):
        release_in_process(virginia / "product.yaml")
    assert isinstance(run("resume", NAME).exception, ReleaseWithdrawn)
    assert "withdrawn" in run("status").output  # still

    reposted = run("repost", NAME, "--as", "revised", "--mechanism", "global")
    assert reposted.exit_code == 0, reposted.output
    assert "Spent    nothing" in reposted.output
    assert (virginia / "public" / "household-sizes" / "revised" / "report.html").is_file()
    assert said("audit", "log", "--verify")["intact"] is True
    (bundle.parent / "synthetic-1.withdrawn.dsse.json").write_bytes(b"{}")
    assert "not accepted" in run(*verify).output
