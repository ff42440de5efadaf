"""What docs/operations.md promises for bad days: a key that is changed, folders that are gone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from benchmarks.torture_ops.products import EPSILON, write_product
from pgsr_core.verification import verify_bundle
from tasks.boundary import StageFailed
from tasks.bundles import FolderBundle
from tasks.doctor import examine
from tasks.keys import create_key, read_public_key
from tasks.ledger import history
from tasks.ledger.ledger import Ledger, ReleaseHasOtherMeasurements
from tasks.run import RunRef
from tasks.stages import publish as publish_stage
from tasks.stages.prepare import prepare
from tasks.storage.zones import Home
from tests.tasks.in_process import run_stages

PRODUCT = "dwellings"
FIRST, SECOND = date(2026, 1, 1), date(2026, 2, 1)


class Office:
    """A product with one signed release, and what an operator does about it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.configuration = folder / PRODUCT / "product.yaml"
        self.home = folder / PRODUCT / ".pgsr"
        self.public = folder / "public" / PRODUCT

    def release(self, slot: date) -> Path:
        return run_stages(prepare(self.configuration, slot=slot, home=Home(self.home)))

    def ref(self, slot: date) -> RunRef:
        return RunRef(str(self.home), PRODUCT, f"{slot:%Y%m%d}T000000")

    def resume(self, slot: date) -> Path:
        return run_stages(self.ref(slot))

    def ledger(self) -> Ledger:
        return self.ref(FIRST).ledger()

    def sign_with(self, name: str) -> None:
        create_key(self.configuration.with_name(name))
        text = self.configuration.read_text()
        assert "signing_key: release.key" in text
        self.configuration.write_text(text.replace("release.key", name))

    def verifies(self, bundle: Path, key: str) -> bool:
        public = read_public_key(self.configuration.with_name(key))
        return verify_bundle(FolderBundle(bundle), public).verified

    def stop_before_publication(self, slot: date) -> None:
        """Measure a release, and fail where it would be published."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(publish_stage, "publish_bundle", lambda *_: 1 / 0)
            with pytest.raises(StageFailed, match="publish"):
                self.release(slot)

    def problems(self, area: str) -> list[str]:
        """What the doctor finds."""
        found = examine(Home(self.home))
        return [finding.says for finding in found if finding.area == area and not finding.ok]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An office with one release that is published, and one that is measured and not."""
    folder = tmp_path_factory.mktemp("disasters") / "office"
    configuration = write_product(folder / PRODUCT, PRODUCT, None)
    configuration.write_text(configuration.read_text() + "margins: {repetitions: 0}\n")
    Office(folder).release(FIRST)
    Office(folder).stop_before_publication(SECOND)
    return folder


@pytest.fixture
def office(released: Path, tmp_path: Path) -> Iterator[Office]:
    """The office, put back as it was afterwards: plans hold its absolute path."""
    kept = shutil.copytree(released, tmp_path / "kept")
    found = Office(released)
    drawn = found.ledger().measurement(PRODUCT, found.ref(SECOND).release)
    yield found
    # Whatever was done, nothing was drawn or charged again.
    history._verified.clear()
    assert found.ledger().measurement(PRODUCT, found.ref(SECOND).release) == drawn
    assert found.ledger().account(PRODUCT).spent == 2 * EPSILON
    shutil.rmtree(released)
    shutil.copytree(kept, released)
    history._verified.clear()


def test_a_new_key_signs_from_now_on_and_old_bundles_verify_with_the_old_one(
    office: Office,
) -> None:
    old = office.public / office.ref(FIRST).release
    before = {path.name: path.read_bytes() for path in old.iterdir()}
    office.sign_with("release-2027.key")
    office.configuration.with_name("release.key").rename(office.folder / "offline.key")
    # What was begun under the old key is not finished under it, for it is not there.
    with pytest.raises(StageFailed, match="KeyFileProblem"):
        office.resume(SECOND)
    assert len(office.problems("keys")) == 1
    new = office.release(SECOND)
    assert office.verifies(new, "release-2027.key.pub")
    assert not office.verifies(new, "release.key.pub")
    assert office.verifies(old, "release.key.pub")
    assert not office.verifies(old, "release-2027.key.pub")
    assert {path.name: path.read_bytes() for path in old.iterdir()} == before
    assert office.problems("keys") == []


def test_a_release_begun_under_the_old_key_is_resumed_under_it(office: Office) -> None:
    office.sign_with("release-2027.key")
    assert office.verifies(office.resume(SECOND), "release.key.pub")


def test_stores_and_plans_that_are_gone_are_made_again_from_the_ledgers_measurements(
    office: Office,
) -> None:
    shutil.rmtree(office.home / "runs")
    shutil.rmtree(office.home / "confidential" / PRODUCT)
    assert office.verifies(office.release(SECOND), "release.key.pub")


def test_without_the_key_of_source_digests_a_release_is_resumed_and_not_planned_anew(
    office: Office,
) -> None:
    (office.home / "confidential" / "source-digest.key").unlink()
    with pytest.raises(ReleaseHasOtherMeasurements, match="source"):
        office.release(SECOND)
    assert office.verifies(office.resume(SECOND), "release.key.pub")


def test_a_bundle_that_is_nowhere_left_is_published_again_on_the_same_measurements(
    office: Office,
) -> None:
    bundle = office.public / office.ref(FIRST).release
    checks = json.loads((bundle / "checks.json").read_text())
    shutil.rmtree(office.public.parent)
    again = office.resume(FIRST)
    assert again.resolve() == bundle.resolve()
    assert office.verifies(again, "release.key.pub")
    assert json.loads((again / "checks.json").read_text()) == checks
