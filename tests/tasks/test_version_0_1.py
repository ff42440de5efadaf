"""What version 0.1.0 published, charged and would draw by a seed stays as it was."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from pgsr_core.verification import verify_bundle
from tasks.bundles import FolderBundle
from tasks.keys import read_public_key
from tasks.ledger.inspection import check_ledger
from tasks.ledger.ledger import Ledger
from tasks.replay import replay_folder
from tasks.stages.prepare import prepare
from tests.tasks.in_process import run_stages

KEPT = Path(__file__).parents[1] / "fixtures" / "version-0.1.0"
RELEASES = ("2026-Q1", "2026-Q2", "2026-Q3")
SEEDED = json.loads((KEPT / "seeded.json").read_text())


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    with tarfile.open(KEPT / "office.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("release", RELEASES)
def test_its_bundles_verify_and_replay(office: Path, release: str) -> None:
    bundle = office / "public" / "household-sizes" / release
    verified = verify_bundle(FolderBundle(bundle), read_public_key(office / "installation.pub"))
    assert verified.verified, verified.failed
    assert replay_folder(bundle).equal


def test_its_ledger_opens_and_its_chain_holds(office: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(office / "home", tmp_path / "home"))
    url = f"sqlite:///{home / 'ledger.sqlite'}"
    ledger = Ledger(url, witness=home / "witness.json")
    assert str(ledger.account("residents").spent) == "3/2"
    for release in RELEASES:
        measurement = ledger.measurement("household-sizes", release)
        assert measurement is not None
        assert ledger.values(measurement).shape == (8, len(measurement.sizes))
    assert all(finding.passed for finding in check_ledger(url, home / "witness.json"))


@pytest.mark.parametrize("name", SEEDED)
def test_a_seeded_release_publishes_the_same_bytes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mechanism, units = name.split("-", 1)
    folder = Path(shutil.copytree(KEPT / "population", tmp_path / "office"))
    configuration = folder / "product.yaml"
    text = configuration.read_text()
    text = text.replace("mechanism: cumulative", f"mechanism: {mechanism}\nsimulate: true\nseed: 7")
    if units == "from-data":
        text = text.replace("units: units.parquet", "units: from-data")
    configuration.write_text(text)
    monkeypatch.setenv("PGSR_HOME", str(tmp_path / "state"))
    bundle = run_stages(prepare(configuration, slot=date(2026, 1, 1)))
    tables = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(bundle.glob("*.csv"))
    }
    assert tables == SEEDED[name]["tables"]
    for file, expected in SEEDED[name]["documents"].items():
        document = json.loads((bundle / file).read_text())
        del document["published_on"]
        assert besides_rewritten(document) == besides_rewritten(expected)


def besides_rewritten(document: dict[str, Any]) -> dict[str, Any]:
    """A document without what later wordings say otherwise; the first verifies, as seen above."""
    rewritten = {"wording", "assumptions", "not_protected"}
    return {name: value for name, value in document.items() if name not in rewritten}
