"""kill -9 at every boundary of a run, then resume: charged once, drawn once, published once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

from tasks.failpoints import VARIABLE
from tasks.ledger.ledger import Ledger, Measurement
from tasks.publication.errors import GateNotPassed
from tests.flows.commandline import Pgsr

NAME = "household-sizes/synthetic-1"
# Every kind of stage, and every point at which something durable has just been written. A run is
# killed at one after the other, each time by the attempt that resumed it.
UP_TO_THE_DRAW = (
    "recall.started",
    "ingest.finished",
    "cumulative.finished",
    "noise.reserved",
    "noise.drawn",
    "noise.committed",
)
AFTER_THE_DRAW = (
    "cpwl.finished",
    "margins.finished",
    "validate.finished",
    "publish.staged",
    "publish.renamed",
)
MEASURED = {"noise.committed", *AFTER_THE_DRAW}


def ledger(population: Path) -> Ledger:
    return Ledger(f"sqlite:///{population / '.pgsr' / 'ledger.sqlite'}")


def measurement(population: Path) -> Measurement | None:
    return ledger(population).measurement("household-sizes", "synthetic-1")


def tables(bundle: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in bundle.glob("*.parquet")}


@pytest.mark.parametrize("points", [UP_TO_THE_DRAW, AFTER_THE_DRAW], ids=["before", "after"])
def test_a_run_killed_anywhere_resumes_with_one_charge_and_one_draw(
    pgsr: Pgsr, virginia: Path, points: tuple[str, ...]
) -> None:
    bundle = virginia / "public" / NAME
    command, drawn = ("release", "product.yaml"), None
    for point in points:
        killed = pgsr(*command, cwd=virginia, **{VARIABLE: point})
        assert killed.returncode == -signal.SIGKILL, (point, killed.stderr)
        held = measurement(virginia)
        assert (held is not None) == (point in MEASURED), point
        assert drawn is None or held == drawn, point
        assert bundle.exists() == (point == "publish.renamed"), point
        command, drawn = ("resume", NAME), held
    published = tables(bundle)

    outcome = pgsr.json("resume", NAME, cwd=virginia)

    assert Path(outcome["bundle"]) == bundle
    assert measurement(virginia) == drawn
    assert not published or tables(bundle) == published
    [account] = ledger(virginia).accounts()
    assert (account.spent, account.reserved) == (Fraction(1, 2), 0)
    assert len(ledger(virginia).charges(account.population)) == 1
    assert not list(virginia.glob("public/*/.staging*"))


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


def test_two_starts_of_one_release_at_once_charge_once_and_publish_once(
    pgsr: Pgsr, virginia: Path
) -> None:
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(pgsr, "release", "product.yaml", cwd=virginia) for _ in range(2)]
        ended = [run.result() for run in runs]
    # One may be told to try again; neither may fail in a way that nobody foresaw.
    assert {run.returncode for run in ended} <= {0, 3}, [run.stderr for run in ended]
    assert not any("operator's log" in run.stderr for run in ended), [r.stderr for r in ended]
    assert pgsr.json("release", "product.yaml", cwd=virginia)["spent"] == "1/2"
    [account] = pgsr.json("budget", cwd=virginia)
    assert len(account["charges"]) == 1


def test_a_table_that_no_gate_judged_is_not_published(
    virginia: Path, release_in_process: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows import release as flow_module

    passed = [
        {"name": "all", "suite": "all", "statement": "All.", "passed": True, "expectations": 1}
    ]
    monkeypatch.setattr(flow_module, "validate", lambda *_: passed)
    with pytest.raises(GateNotPassed):
        release_in_process(virginia / "product.yaml")
    assert not (virginia / "public" / NAME).exists()
