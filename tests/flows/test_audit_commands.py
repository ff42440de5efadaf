"""`pgsr audit replay` and `log`, `pgsr doctor` and `purge` on one real release."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest

from tests.flows.commandline import Pgsr, edit

NAME = "household-sizes/synthetic-1"


# The server of the tests has no secret, which the doctor rightly complains of.
NO_SERVER = {"PREFECT_API_URL": ""}


@dataclass(frozen=True)
class Office:
    """A folder with a signed release in it, made by a process whose umask closes nothing."""

    folder: Path
    pgsr: Pgsr

    @property
    def home(self) -> Path:
        return self.folder / ".pgsr"

    @property
    def bundle(self) -> Path:
        return self.folder / "public" / NAME

    def __call__(self, *arguments: str | Path, **environment: str) -> Any:
        return self.pgsr(*arguments, cwd=self.folder, **environment)

    def json(self, *arguments: str | Path, **environment: str) -> Any:
        return self.pgsr.json(*arguments, cwd=self.folder, **environment)


@pytest.fixture(scope="module")
def released(
    prefect_server: dict[str, str],
    virginia_population: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Office:
    folder = tmp_path_factory.mktemp("office") / "office"
    shutil.copytree(virginia_population, folder)
    office = Office(folder, Pgsr(prefect_server, warm=True))
    before = os.umask(0)
    try:
        assert office("keys", "new", "release.key").returncode == 0
        edit(
            folder / "product.yaml", "  to: public\n", "  to: public\n  signing_key: release.key\n"
        )
        office.json("release", "product.yaml")
    finally:
        os.umask(before)
    return office


@pytest.fixture
def office(released: Office, tmp_path: Path) -> Iterator[Office]:
    """The released office, put back as it was after a test that spoils it."""
    kept = tmp_path / "kept"
    shutil.copytree(released.folder, kept)
    yield released
    shutil.rmtree(released.folder)
    shutil.copytree(kept, released.folder)


def test_a_release_replays_from_its_bundle_alone(released: Office, tmp_path: Path) -> None:
    elsewhere = Path(shutil.copytree(released.bundle, tmp_path / "bundle"))
    shown = released.pgsr("audit", "replay", elsewhere, cwd=tmp_path)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "Equal" in shown.stdout
    assert "Stage isotonic again" in shown.stdout
    assert "Stage cpwl again" in shown.stdout
    (elsewhere / "group_sizes.parquet").unlink()  # CSV alone says as much
    said = released.pgsr.json(
        "audit", "replay", elsewhere, cwd=tmp_path, NUMBA_NUM_THREADS="1", PGSR_HOME="/nowhere"
    )
    assert said["equal"] is True


def test_a_release_replays_from_the_ledger_and_all_places_are_compared(released: Office) -> None:
    said = released.json("audit", "replay", NAME)
    assert said["equal"] is True
    text = json.dumps(said)
    for place in ("the ledger", "the safe store", "checks.json", "group_sizes.csv"):
        assert place in text


def test_prefects_pages_show_plan_spend_progress_stages_and_checks(
    released: Office, prefect_server: dict[str, str]
) -> None:
    key = NAME.replace("/", "-")
    asked = httpx.post(
        f"{prefect_server['PREFECT_API_URL']}/artifacts/filter",
        json={"artifacts": {"key": {"like_": f"{key}-%"}}, "sort": "CREATED_DESC"},
    )
    found = asked.json()
    # Other tests release under the same name on the same server.
    [flow_run] = {a["flow_run_id"] for a in found if released.bundle.as_uri() in str(a["data"])}
    shown: dict[str, list[Any]] = {}
    for artifact in found:
        if artifact["flow_run_id"] == flow_run:
            shown.setdefault(artifact["key"].removeprefix(f"{key}-"), []).append(artifact["data"])
    plans = shown["plan"]
    assert set(shown) == {"plan", "progress", "stages", "checks"}
    assert shown["progress"] == [100]
    assert "spent\n0.5 of 4, remaining 3.5" in plans[0]
    assert "(file://" in plans[0]
    assert released.bundle.as_uri() not in plans[-1]  # it was not there when the run began
    stages = {row["stage"]: row["digest"] for row in json.loads(shown["stages"][0])}
    assert list(stages)[:3] == ["noise", "isotonic", "cpwl"]
    published = json.loads((released.bundle / "checks.json").read_text())
    assert stages["cpwl"] == stages["gates"] == published["table_digests"]["group_sizes"]
    checks = json.loads(shown["checks"][0])
    assert {row["check"] for row in checks} == {check["name"] for check in published["checks"]}
    assert {row["outcome"] for row in checks} == {"passed"}


def test_a_changed_bundle_is_different_and_no_bundle_is_unreadable(office: Office) -> None:
    table = office.bundle / "group_sizes.csv"
    table.write_text(table.read_text().replace(",1\n", ",2\n", 1))
    for what in (office.bundle, NAME):
        different = office("audit", "replay", what)
        assert different.returncode == 1, different.stderr
        assert "DIFFERENT" in different.stdout
        assert "group_sizes.csv" in different.stdout
    (office.bundle / "privacy.json").write_text("{}")
    unreadable = office("audit", "replay", office.bundle)
    assert unreadable.returncode == 2
    assert "Remedy" in unreadable.stderr
    assert office("audit", "replay", "no/such/folder").returncode == 2
    assert office("audit", "replay", "no-such/release").returncode == 2


def test_a_changed_table_of_the_safe_store_is_different(office: Office) -> None:
    store = office.home / "runs" / NAME / "safe.duckdb"
    with duckdb.connect(str(store)) as connection:
        connection.execute("UPDATE isotonic SET value = value + 1 WHERE region_index = 0")
    different = office("audit", "replay", NAME)
    assert different.returncode == 1, different.stderr
    assert "isotonic" in different.stdout
    store.unlink()
    assert office("audit", "replay", NAME).returncode == 2


def test_a_release_made_under_umask_000_has_nothing_for_the_doctor(released: Office) -> None:
    said = released.json("doctor", **NO_SERVER)
    assert said["ok"] is True
    shown = released("doctor", **NO_SERVER)
    assert shown.returncode == 0
    assert "Everything is in order" in shown.stdout


def test_the_doctor_names_the_command_that_closes_an_open_file(office: Office) -> None:
    store = office.home / "confidential" / NAME / "confidential.duckdb"
    store.chmod(0o644)
    shown = office("doctor", COLUMNS="400")
    assert shown.returncode == 1
    assert "problem" in shown.stdout
    assert f"chmod 600 {store}" in shown.stdout
    assert oct(store.stat().st_mode & 0o777) == "0o644"


def test_after_a_purge_the_truth_is_gone_and_the_release_verifies_replays_and_reruns(
    office: Office,
) -> None:
    confidential = office.home / "confidential" / NAME
    (confidential / "operator.log").write_text("a row position")
    unasked = office("purge", NAME)
    assert unasked.returncode == 2
    assert "--yes" in unasked.stderr
    assert (confidential / "confidential.duckdb").is_file()
    done = office.json("purge", NAME, "--yes")
    assert {"confidential.duckdb", "operator.log"} <= set(done["deleted"])
    assert not confidential.exists()
    assert office.json("purge", NAME)["deleted"] == []  # nothing left to ask about
    assert office("audit", "verify", office.bundle, "--key", "release.key.pub").returncode == 0
    assert office.json("audit", "replay", NAME)["equal"] is True
    assert office.json("doctor", **NO_SERVER)["ok"] is True
    again = office.json("release", "product.yaml")
    assert again["spent"] == "1/2"
    assert not (confidential / "confidential.duckdb").exists()


def test_a_release_that_was_not_published_is_not_purged(office: Office) -> None:
    edit(office.folder / "product.yaml", "release: synthetic-1", "release: synthetic-2")
    stopped = office("release", "product.yaml", PGSR_FAILPOINT="noise.committed")
    assert stopped.returncode != 0
    refused = office("purge", "household-sizes/synthetic-2", "--yes")
    assert refused.returncode == 1
    assert "pgsr resume household-sizes/synthetic-2" in refused.stderr
    examined = office("doctor", "--json")
    assert examined.returncode == 1
    remedies = {f["remedy"] for f in json.loads(examined.stdout)["findings"] if not f["ok"]}
    assert "pgsr resume household-sizes/synthetic-2" in remedies
    assert office("purge", "../../etc", "--yes").returncode == 2


def test_the_log_tells_who_did_what_when_what_was_spent_and_which_checks_passed(
    released: Office, tmp_path: Path
) -> None:
    lineage = tmp_path / "lineage.jsonl"
    said = released.json("audit", "log", NAME, "--verify", "--open-lineage", lineage)
    assert said["intact"] is True
    kinds = [event["kind"] for event in said["events"]]
    assert kinds.index("measured") < kinds.index("computed") < kinds.index("published")
    assert {event["actor"] for event in said["events"]} != {""}
    [measured] = [event for event in said["events"] if event["kind"] == "measured"]
    assert measured["facts"]["epsilon"] == "1/2"
    jobs = {json.loads(line)["job"]["name"] for line in lineage.read_text().splitlines()}
    stages = ("noise", "isotonic", "cpwl", "margins", "margins_by_level", "validate", "publish")
    assert jobs == {f"household-sizes.{stage}" for stage in stages}
    shown = released("audit", "log", "--kind", "measured", "--kind", "validated")
    assert shown.returncode == 0
    assert "1/2" in shown.stdout
    assert "passed" in shown.stdout
    assert "published" not in shown.stdout
    assert released.json("audit", "log", "--until", "2001-01-01")["events"] == []
    assert released.json("audit", "log", "--product", "taxis")["events"] == []


def test_a_log_that_was_edited_is_told_by_verify_and_refused_elsewhere(office: Office) -> None:
    with closing(sqlite3.connect(office.home / "ledger.sqlite")) as connection:
        connection.execute(
            "UPDATE events SET actor = ? WHERE kind = 'measured'", ["[red]\x1b[2Jnobody"]
        )
        connection.commit()
    broken = office("audit", "log", "--verify")
    assert broken.returncode == 1
    assert "edited" in broken.stderr
    assert "[red]?[2Jnobody" in broken.stdout
    assert "\x1b" not in broken.stdout + broken.stderr
    assert office("audit", "log").returncode == 1
    assert office("doctor").returncode == 1
