"""kill -9 at every boundary of a run, then resume: charged once, drawn once, published once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tasks.failpoints import VARIABLE
from tasks.ledger.ledger import Ledger, Measurement
from tests.flows.commandline import Pgsr

NAME = "household-sizes/synthetic-1"
BEFORE_THE_DRAW = [
    "recall.started",
    "ingest.started",
    "ingest.finished",
    "cumulative.finished",
    "noise.started",
    "noise.reserved",
    "noise.drawn",
]
AFTER_THE_DRAW = [
    "noise.committed",
    "noise.finished",
    "isotonic.started",
    "isotonic.finished",
    "cpwl.finished",
    "validate.started",
    "validate.finished",
    "publish.staged",
    "publish.renamed",
    "publish.finished",
]


def measurement(population: Path) -> Measurement | None:
    ledger = Ledger(f"sqlite:///{population / '.pgsr' / 'ledger.sqlite'}")
    return ledger.measurement("household-sizes", "synthetic-1")


def tables(bundle: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in bundle.glob("*.parquet")}


@pytest.mark.parametrize("point", [*BEFORE_THE_DRAW, *AFTER_THE_DRAW])
def test_a_run_killed_anywhere_resumes_with_one_charge_and_one_draw(
    pgsr: Pgsr, virginia: Path, point: str
) -> None:
    killed = pgsr("release", "product.yaml", cwd=virginia, **{VARIABLE: point})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    before = measurement(virginia)
    assert (before is not None) == (point in AFTER_THE_DRAW)
    bundle = virginia / "public" / NAME
    published = tables(bundle)
    assert bool(published) == (point in {"publish.renamed", "publish.finished"})

    outcome = pgsr.json("resume", NAME, cwd=virginia)

    assert Path(outcome["bundle"]) == bundle
    after = measurement(virginia)
    assert after is not None
    if before is not None:
        assert after == before
    if published:
        assert tables(bundle) == published
    [account] = pgsr.json("budget", cwd=virginia)
    assert account["spent"] == "1/2"
    assert account["reserved"] == "0"
    assert len(account["charges"]) == 1
    assert not list(virginia.glob("public/*/.staging*"))


def test_status_says_that_a_killed_run_died_and_what_to_run(pgsr: Pgsr, virginia: Path) -> None:
    pgsr("release", "product.yaml", cwd=virginia, **{VARIABLE: "isotonic.started"})
    [state] = pgsr.json("status", cwd=virginia)
    assert state["stage"] == "isotonic"
    assert state["next"] == f"pgsr resume {NAME}"
    assert "died" in pgsr("status", cwd=virginia).stdout


def test_the_same_measurements_always_give_the_same_tables(pgsr: Pgsr, virginia: Path) -> None:
    bundle = Path(pgsr.json("release", "product.yaml", cwd=virginia)["bundle"])
    published = tables(bundle)
    for path in bundle.iterdir():
        path.unlink()
    bundle.rmdir()
    (virginia / ".pgsr" / "runs" / NAME / "safe.duckdb").unlink()
    pgsr.json("release", "product.yaml", cwd=virginia)
    assert tables(bundle) == published


def test_resume_needs_neither_source_nor_truth_once_measured(pgsr: Pgsr, virginia: Path) -> None:
    pgsr("release", "product.yaml", cwd=virginia, **{VARIABLE: "noise.committed"})
    for part in (virginia / "persons").iterdir():
        part.unlink()
    (virginia / ".pgsr" / "confidential" / NAME / "confidential.duckdb").unlink()
    assert pgsr.json("resume", NAME, cwd=virginia)["spent"] == "1/2"
