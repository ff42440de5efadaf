"""The whole pipeline through the command line, on a small real population."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tasks.ledger.ledger import Ledger
from tests.flows.commandline import Pgsr, broken_promises, edit

HOUSEHOLDS = 13_787
NAME = "household-sizes/synthetic-1"


@dataclass(frozen=True)
class Published:
    """A release of the fixture's product as it is, and what was said of it."""

    folder: Path
    outcome: dict[str, Any]

    @property
    def bundle(self) -> Path:
        return Path(self.outcome["bundle"])

    def ledger(self) -> Ledger:
        return Ledger(f"sqlite:///{self.folder / '.pgsr' / 'ledger.sqlite'}")


@pytest.fixture(scope="module")
def first(
    virginia_population: Path,
    prefect_server: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Published:
    folder = tmp_path_factory.mktemp("released") / "virginia"
    shutil.copytree(virginia_population, folder)
    return Published(
        folder, Pgsr(prefect_server, warm=True).json("release", "product.yaml", cwd=folder)
    )


@pytest.fixture
def published(first: Published, tmp_path: Path) -> Iterator[Published]:
    """One release for many tests, put back as it was after each."""
    kept = shutil.copytree(first.folder, tmp_path / "kept")
    yield first
    shutil.rmtree(first.folder)
    shutil.copytree(kept, first.folder)


def group_count(folder: Path) -> int:
    with duckdb.connect() as connection:
        [(units,)] = connection.sql(f"SELECT count(*) FROM '{folder}/units.parquet'").fetchall()
    return int(units)


def test_a_release_keeps_every_promise_and_is_signed_by_its_installation(
    pgsr: Pgsr, published: Published
) -> None:
    groups = group_count(published.folder)
    assert broken_promises(published.bundle, groups=groups, sizes=8) == []
    public = pgsr("keys", "public", ".pgsr/signing.key", cwd=published.folder)
    (published.folder / "office.pub").write_text(public.stdout)
    said = pgsr.json(
        "audit", "verify", published.bundle, "--key", "office.pub", cwd=published.folder
    )
    assert said["verified"]
    assert said["keyid"] == published.outcome["keyid"]
    head = said["provenance"]["ledger_head"]
    assert published.ledger().timeline()[head["sequence"] - 1].hash == head["hash"]


@pytest.mark.parametrize("mechanism", ["direct", "global"])
def test_other_mechanisms_keep_every_promise_when_checked_by_an_independent_script(
    pgsr: Pgsr, virginia: Path, mechanism: str
) -> None:
    edit(virginia / "product.yaml", "mechanism: cumulative", f"mechanism: {mechanism}")
    outcome = pgsr.json("release", "product.yaml", cwd=virginia)
    assert outcome["spent"] == outcome["epsilon"] == "1/2"
    assert outcome["checks"]
    assert all(outcome["checks"].values())
    bundle = Path(outcome["bundle"])
    assert broken_promises(bundle, groups=group_count(virginia), sizes=8) == []


def test_units_from_data_publish_sizes_from_one_and_keep_the_number_of_groups_found(
    pgsr: Pgsr, virginia: Path
) -> None:
    edit(virginia / "product.yaml", "units: units.parquet", "units: from-data")
    bundle = Path(pgsr.json("release", "product.yaml", cwd=virginia)["bundle"])
    assert broken_promises(bundle, groups=HOUSEHOLDS, sizes=7) == []
    privacy = json.loads((bundle / "privacy.json").read_text())
    assert "equal" in json.dumps(privacy)  # ε holds between neighbours with equal G


def test_the_independent_script_finds_one_changed_cell(published: Published) -> None:
    bundle = published.bundle
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS FROM '{bundle}/group_sizes.parquet'")
        connection.execute(
            "UPDATE t SET count = count + 1 WHERE level = 4 AND size = 3 AND rowid = "
            "(SELECT min(rowid) FROM t WHERE level = 4 AND size = 3)"
        )
        connection.execute(f"COPY t TO '{bundle}/group_sizes.parquet'")
    found = {
        promise
        for promise, _ in broken_promises(bundle, groups=group_count(published.folder), sizes=8)
    }
    assert {"consistency", "faithfulness", "both formats say the same"} <= found


def test_running_a_release_again_does_nothing_and_says_so(pgsr: Pgsr, published: Published) -> None:
    assert published.outcome["changed"] is True
    bundle = published.bundle
    before = {path.name: path.read_bytes() for path in bundle.iterdir()}
    events = published.ledger().timeline()
    for command in (("release", "product.yaml"), ("resume", NAME)):
        again = pgsr(*command, "--json", cwd=published.folder)
        assert again.returncode == 0
        assert "published already: nothing was charged, drawn or changed" in again.stderr
        assert json.loads(again.stdout) == {**published.outcome, "changed": False}
    assert {path.name: path.read_bytes() for path in bundle.iterdir()} == before
    assert published.ledger().timeline() == events


def test_the_same_name_with_other_data_or_budget_is_refused_and_says_what_differs(
    pgsr: Pgsr, published: Published
) -> None:
    virginia = published.folder
    edit(virginia / "product.yaml", "epsilon: '0.5'", "epsilon: '0.25'")
    [persons, *_] = sorted((virginia / "persons").glob("*.parquet"))
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE fewer AS FROM '{persons}' OFFSET 1")
        connection.execute(f"COPY fewer TO '{persons}'")
    refused = pgsr("release", "product.yaml", cwd=virginia)
    assert refused.returncode == 2
    assert "epsilon (1/2 then, 1/4 now)" in refused.stderr
    assert re.search(r"source \([0-9a-f]{12}… then, [0-9a-f]{12}… now\)", refused.stderr)
    assert "never drawn again" in refused.stderr
    for remedy in ("a name of its own", "pgsr withdraw", "pgsr repost"):
        assert remedy in refused.stderr
    [account] = pgsr.json("budget", cwd=virginia)
    assert account["spent"] == "1/2"


def test_a_release_that_passes_the_budget_is_refused_with_both_figures(
    pgsr: Pgsr, virginia: Path
) -> None:
    edit(virginia / "product.yaml", "epsilon: '0.5'", "epsilon: '4.5'")
    refused = pgsr("release", "product.yaml", cwd=virginia)
    assert refused.returncode == 1
    assert "requested epsilon 4.5, remaining 4" in refused.stderr
    assert not (virginia / "public" / "household-sizes").exists()
    checked = pgsr("check", "product.yaml", cwd=virginia)
    assert checked.returncode == 1


def test_check_prints_the_plan_and_touches_nothing(pgsr: Pgsr, virginia: Path) -> None:
    before = sorted(virginia.rglob("*"))
    plan = pgsr.json("check", "product.yaml", cwd=virginia)
    assert [level["scale"] for level in plan["levels"]] == ["8"] * 4  # 4 levels share 1/2
    assert plan["cost"] == "1/2"
    shown = pgsr("check", "product.yaml", cwd=virginia)
    assert shown.returncode == 0
    assert "Nothing was touched" in shown.stdout
    assert sorted(virginia.rglob("*")) == before


def test_a_simulation_is_marked_everywhere_and_spends_nothing(pgsr: Pgsr, virginia: Path) -> None:
    (virginia / "product.yaml").write_text(
        (virginia / "product.yaml").read_text() + "simulate: true\nseed: 7\n"
    )
    outcome = pgsr.json("release", "product.yaml", cwd=virginia)
    assert outcome["simulation"] is True
    assert outcome["spent"] == "0"
    for name in ("privacy.json", "checks.json", "datapackage.json", "report.html"):
        assert "NOT PRIVATE" in (Path(outcome["bundle"]) / name).read_text()


def test_status_and_budget_tell_where_a_release_stands(pgsr: Pgsr, published: Published) -> None:
    [state] = pgsr.json("status", cwd=published.folder)
    assert (state["state"], state["stage"], state["next"]) == ("published", "publish", "")
    [account] = pgsr.json("budget", cwd=published.folder)
    assert account["remaining"] == "7/2"
    [charge] = account["charges"]
    assert (charge["release"], charge["epsilon"]) == (NAME, "1/2")
    assert charge["noise"]["scales"] == ["8"] * 4
    assert account["together"]["epsilon"] == "1/2"
    shown = pgsr("status", cwd=published.folder)
    assert NAME in shown.stdout


def test_prefect_keeps_run_names_stages_and_an_artifact_with_the_plan(
    pgsr: Pgsr, published: Published
) -> None:
    database = Path(pgsr.environment["PREFECT_HOME"]) / "prefect.db"
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        runs = {name for (name,) in connection.execute("SELECT name FROM flow_run")}
        stages = {name for (name,) in connection.execute("SELECT name FROM task_run")}
        artifacts = [str(data) for (data,) in connection.execute("SELECT data FROM artifact")]
    assert NAME in runs
    assert {"ingest", "cumulative", "noise", "isotonic", "cpwl", "margins"} <= stages
    assert {"validate", "publish"} <= stages
    assert any("expected error of a cell" in text for text in artifacts)


def test_the_embedded_default_needs_no_server(virginia: Path) -> None:
    outcome = Pgsr({"PREFECT_API_URL": ""}).json("release", "product.yaml", cwd=virginia)
    assert Path(outcome["report"]).is_file()
    assert (virginia / ".pgsr" / "prefect").is_dir()


def test_a_date_template_names_the_release_and_finds_the_source(pgsr: Pgsr, virginia: Path) -> None:
    configuration = virginia / "product.yaml"
    edit(configuration, "release: synthetic-1", 'release: "{date:%Y}-Q{quarter}"')
    edit(configuration, "persons: persons/*.parquet", 'persons: "{date:%Y}/*.parquet"')
    (virginia / "persons").rename(virginia / "2026")
    plan = pgsr.json("check", "product.yaml", "--date", "2026-08-15", cwd=virginia)
    assert plan["release"] == "household-sizes/2026-Q3"
    missing = pgsr("check", "product.yaml", "--date", "2027-08-15", cwd=virginia)
    assert missing.returncode == 2


def test_a_signed_release_verifies_offline_and_a_changed_one_does_not(
    pgsr: Pgsr, virginia: Path
) -> None:
    edit(virginia / "product.yaml", "split: uniform", "split: optimise, sampler: fast-exact")
    assert pgsr("keys", "new", "release.key", cwd=virginia).returncode == 0
    edit(virginia / "product.yaml", "  to: public\n", "  to: public\n  signing_key: release.key\n")
    bundle = Path(pgsr.json("release", "product.yaml", cwd=virginia)["bundle"])
    verify = ("audit", "verify", bundle, "--key", "release.key.pub")
    verified = pgsr(*verify, cwd=virginia)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    privacy = json.loads((bundle / "privacy.json").read_text())
    assert privacy["mechanism"]["sampler"] == "fast-exact"
    assert len({level["scale"]["exact"] for level in privacy["levels"]}) == 4
    table = bundle / "group_sizes.csv"
    table.write_text(table.read_text().replace(",1\n", ",2\n", 1))
    assert pgsr(*verify, cwd=virginia).returncode == 1


def test_a_signing_key_that_cannot_be_used_is_refused_before_anything_is_spent(
    pgsr: Pgsr, virginia: Path
) -> None:
    (virginia / "release.key").write_text("not a key")
    (virginia / "release.key").chmod(0o600)
    edit(virginia / "product.yaml", "  to: public\n", "  to: public\n  signing_key: release.key\n")
    refused = pgsr("release", "product.yaml", cwd=virginia)
    assert refused.returncode == 2
    assert "Remedy" in refused.stderr
    assert not (virginia / ".pgsr" / "ledger.sqlite").exists()
