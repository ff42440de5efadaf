"""What cannot be published is not charged; a run that was killed leaves none of its data."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb

from tasks.ledger.ledger import Ledger
from tests.flows.commandline import Pgsr, edit

SPILL_SECONDS = 240
NAME = "household-sizes/synthetic-1"


def charges(folder: Path) -> list[object]:
    ledger = Ledger.existing(f"sqlite:///{folder / '.pgsr' / 'ledger.sqlite'}")
    accounts = () if ledger is None else ledger.accounts()
    return [account for account in accounts if account.spent or account.reserved]


def test_a_place_that_is_taken_is_refused_by_check_and_release_and_costs_nothing(
    pgsr: Pgsr, virginia: Path
) -> None:
    taken = virginia / "public" / NAME
    taken.mkdir(parents=True)
    (taken / "somebody else's").touch()
    checked = pgsr("check", "product.yaml", cwd=virginia)
    assert checked.returncode == 1
    assert "Remedy:" in checked.stderr
    assert [path.name for path in (virginia / ".pgsr").iterdir()] == ["example.json"]
    released = pgsr("release", "product.yaml", cwd=virginia)
    assert released.returncode == 1
    assert "Remedy:" in released.stderr
    assert charges(virginia) == []
    assert [path.name for path in taken.iterdir()] == ["somebody else's"]


def test_what_a_run_spilled_before_it_was_killed_is_gone_after_the_next_command(
    pgsr: Pgsr, virginia: Path, prefect_server: dict[str, str]
) -> None:
    with duckdb.connect() as connection:
        connection.sql(
            f"SELECT person_id || ' with a long name ' || n AS person_id, * EXCLUDE (person_id) "
            f"FROM '{virginia}/persons/*.parquet', range(60) AS times(n)"
        ).write_parquet(str(virginia / "many.parquet"))
    edit(virginia / "product.yaml", "persons/*.parquet", "many.parquet")
    with (virginia / "product.yaml").open("a") as file:
        file.write("resources: {memory_limit: 80MB, threads: 1}\n")
    run = subprocess.Popen(
        [sys.executable, "-m", "flows", "release", "product.yaml"],
        cwd=virginia,
        env={**os.environ, **prefect_server},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    folder = virginia / ".pgsr" / "confidential" / NAME
    deadline = time.monotonic() + SPILL_SECONDS
    while not spilled(folder) and run.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    assert spilled(folder)
    pgsr("doctor", "--home", ".pgsr", cwd=virginia)
    assert spilled(folder) == []
    assert not list(folder.glob(".spill-*"))


def spilled(folder: Path) -> list[Path]:
    return list(folder.glob(".spill-*/duckdb_temp*"))
