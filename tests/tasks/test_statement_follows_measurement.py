"""What is stated is what was drawn: a plan that changed after the draw is refused everywhere."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pgsr_core.description import Description, UnreadableDescription
from tasks.boundary import StageFailed
from tasks.corrections.reposting import prepare_repost
from tasks.ledger import history, locks
from tasks.ledger.ledger import Ledger, ReleaseHasOtherMeasurements
from tasks.run import RunRef
from tasks.stages.margins import margins
from tasks.stages.noise import recall
from tasks.stages.post_process import post_process
from tasks.stages.prepare import prepare
from tasks.stages.publish import publish
from tasks.stages.validate import validate
from tasks.storage.tables import TableRef
from tests.tasks.in_process import run_stages

SLOT = date(2026, 1, 1)
NO_TABLE = TableRef("group_sizes", "0" * 64)


@pytest.fixture(scope="module")
def released(virginia_population: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An office with one release of ε = 1/2."""
    folder = tmp_path_factory.mktemp("stated") / "office"
    shutil.copytree(virginia_population, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGSR_HOME", str(folder / "state"))
        run_stages(prepare(folder / "product.yaml", slot=SLOT))
    return folder


@pytest.fixture
def ref(released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunRef]:
    """The release, not published yet; all is put back as it was afterwards."""
    kept = shutil.copytree(released, tmp_path / "kept")
    shutil.rmtree(released / "public")
    monkeypatch.setenv("PGSR_HOME", str(released / "state"))
    yield RunRef(str(released / "state"), "household-sizes", "synthetic-1")
    shutil.rmtree(released)
    shutil.copytree(kept, released)
    history._verified.clear()


def change_plan(ref: RunRef, change: Callable[[dict[str, Any]], None]) -> None:
    """Do to the stored plan what another process, or a hand, might have done to it."""
    document = json.loads(ref.folder.plan.read_text())
    change(document)
    ref.folder.plan.write_text(json.dumps(document))


def smaller_epsilon(plan: dict[str, Any]) -> None:
    plan["configuration"]["privacy"]["epsilon"] = "1/40"
    for level in plan["levels"]:
        level["epsilon"] = str(Fraction(level["epsilon"]) / 20)
        level["scale"] = str(Fraction(level["scale"]) * 20)


def larger_scale(plan: dict[str, Any]) -> None:
    plan["levels"][-1]["scale"] = "1000"


def other_split(plan: dict[str, Any]) -> None:
    first, last = plan["levels"][0], plan["levels"][-1]
    first["epsilon"], last["epsilon"] = (
        "1/100",
        str(Fraction(first["epsilon"]) + Fraction(last["epsilon"]) - Fraction(1, 100)),
    )


def other_neighbours(plan: dict[str, Any]) -> None:
    plan["configuration"]["privacy"]["neighbours"] = "replace"


def larger_contribution(plan: dict[str, Any]) -> None:
    plan["configuration"]["sizes"]["largest_contribution"] = 7


def other_sensitivity(plan: dict[str, Any]) -> None:
    plan["sensitivity"] = 7


def other_sampler(plan: dict[str, Any]) -> None:
    plan["configuration"]["privacy"]["sampler"] = "fast-exact"


def other_unit_of_privacy(plan: dict[str, Any]) -> None:
    plan["configuration"]["population"]["unit_of_privacy"] = "household"


def other_population(plan: dict[str, Any]) -> None:
    plan["configuration"]["population"]["name"] = "somebody-else"


def other_units(plan: dict[str, Any]) -> None:
    plan["units_digest"] = "0" * 64


def a_simulation(plan: dict[str, Any]) -> None:
    plan["configuration"]["simulate"] = True


CHANGES = [
    smaller_epsilon,
    larger_scale,
    other_split,
    other_neighbours,
    larger_contribution,
    other_sensitivity,
    other_sampler,
    other_unit_of_privacy,
    other_population,
    other_units,
    a_simulation,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_plan_that_says_anything_else_of_the_draw_is_refused(
    ref: RunRef, change: Callable[[dict[str, Any]], None]
) -> None:
    change_plan(ref, change)
    with pytest.raises(ReleaseHasOtherMeasurements, match=r"Remedy: .*restore what was changed"):
        ref.open_measured()


STAGES: dict[str, Callable[[RunRef], object]] = {
    "recall": recall.fn,
    "isotonic": lambda ref: post_process("isotonic").fn(ref, NO_TABLE),
    "cpwl": lambda ref: post_process("cpwl").fn(ref, NO_TABLE),
    "margins": lambda ref: margins.fn(ref, NO_TABLE, NO_TABLE),
    "validate": lambda ref: validate.fn(ref, NO_TABLE, None),
    "publish": lambda ref: publish.fn(ref, NO_TABLE, None, []),
}


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_right_of_the_barrier_refuses_a_plan_that_changed_after_the_draw(
    ref: RunRef, stage: str
) -> None:
    change_plan(ref, smaller_epsilon)
    with pytest.raises(StageFailed) as failed:
        STAGES[stage](ref)
    assert (failed.value.stage, failed.value.error) == (stage, "ReleaseHasOtherMeasurements")
    assert not ref.folder.plan.parent.joinpath("public").exists()


def test_a_run_by_a_changed_plan_publishes_nothing(ref: RunRef, released: Path) -> None:
    change_plan(ref, smaller_epsilon)
    with pytest.raises(StageFailed, match="ReleaseHasOtherMeasurements"):
        run_stages(ref)
    assert not (released / "public").exists()


def test_a_changed_plan_is_not_reposted(ref: RunRef) -> None:
    change_plan(ref, smaller_epsilon)
    with pytest.raises(ReleaseHasOtherMeasurements, match=r"epsilon \(1/2 then, 1/40 now\)"):
        prepare_repost(ref, release="second")


def test_the_right_configuration_puts_a_changed_plan_right(ref: RunRef, released: Path) -> None:
    change_plan(ref, smaller_epsilon)
    bundle = run_stages(prepare(released / "product.yaml", slot=SLOT))
    stated = json.loads((bundle / "privacy.json").read_text())
    assert stated["epsilon"]["exact"] == "1/2"


def test_numbers_of_the_statement_are_the_ledgers_not_the_plans(
    ref: RunRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if nothing compared the two: that is a second line of defence."""
    from tasks.ledger.measurements import Measurement

    change_plan(ref, smaller_epsilon)
    change_plan(ref, other_unit_of_privacy)
    monkeypatch.setattr(Measurement, "require_description", lambda *_: None)
    bundle = run_stages(ref)
    stated = json.loads((bundle / "privacy.json").read_text())
    assert stated["epsilon"]["exact"] == "1/2"
    assert stated["unit_of_privacy"] == "person"
    assert {level["scale"]["exact"] for level in stated["levels"]} == {"8"}
    envelope = json.loads((bundle / "provenance.dsse.json").read_text())
    signed = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
    assert '"1/2"' in json.dumps(signed)
    assert '"1/40"' not in json.dumps(signed)


def test_measurements_of_an_earlier_version_need_no_more_than_they_have(ref: RunRef) -> None:
    """The first ledgers kept neither sampler nor unit of privacy nor, at first, the noise."""
    measurement = ref.open().measurement()
    kept = {
        part: said
        for part, said in measurement.descriptor.items()
        if part not in {"sampler", "unit_of_privacy", "noise"}
    }
    earlier = replace(measurement, descriptor=kept)
    planned = ref.open().plan.measurement_descriptor("anything")
    earlier.require_description(planned, ref.product, ref.release)
    assert Description.read(kept).scales == Description.read(measurement.descriptor).scales


def test_a_description_that_cannot_be_read_states_nothing() -> None:
    with pytest.raises(UnreadableDescription, match="pgsr ledger check"):
        Description.read({"epsilon": "1/2"})


def test_a_plan_is_not_replaced_while_its_reservation_lives(
    ref: RunRef, released: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process on a machine that nobody can ask may still be drawing by it."""
    from tasks.ledger.ledger import ReservedElsewhere
    from tasks.ledger.owner import Owner
    from tasks.stages.prepare import measurement_request

    configuration = released / "product.yaml"
    text = configuration.read_text().replace("release: synthetic-1", "release: synthetic-2")
    configuration.write_text(text)
    begun = prepare(configuration, slot=SLOT)
    elsewhere = Owner("another-machine", 17, "1", "abc")
    with monkeypatch.context() as patch:
        patch.setattr("tasks.ledger.measurements.this_process", lambda: elsewhere)
        begun.ledger().reserve(measurement_request(begun.open()))
    plan = begun.folder.plan.read_bytes()
    configuration.write_text(text.replace("epsilon: '0.5'", "epsilon: '0.025'"))
    assert configuration.read_text() != text
    with pytest.raises(ReservedElsewhere):
        prepare(configuration, slot=SLOT)
    assert begun.folder.plan.read_bytes() == plan


def test_the_lock_of_a_release_is_shared_by_a_process_and_refused_to_others(ref: RunRef) -> None:
    with ref.alone(), ref.alone():
        file = ref.installation.root / locks.LOCKS_FOLDER / f"{ref.name}.lock"
        other = locks._FileLock(ref.installation.root / "ledger.sqlite", ref.name)
        assert file.is_file()
        assert not other.take()
    assert other.take()
    with pytest.raises(locks.ReleaseInUse, match="pgsr status"), ref.alone():
        pass
    other.release()


def test_a_lock_does_not_outlive_an_error(ref: RunRef) -> None:
    with pytest.raises(RuntimeError), ref.alone():
        raise RuntimeError
    other = locks._FileLock(ref.installation.root / "ledger.sqlite", ref.name)
    assert other.take()
    other.release()


def test_homes_that_share_a_ledger_share_the_lock(
    ref: RunRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{ref.installation.root / 'ledger.sqlite'}"
    monkeypatch.setenv("PGSR_LEDGER_URL", url)
    other = RunRef(str(tmp_path / "another-home"), ref.product, ref.release)
    file_lock = locks._FileLock(Path(url.removeprefix("sqlite:///")), ref.name)
    assert file_lock.take()
    try:
        with pytest.raises(locks.ReleaseInUse):
            Ledger(url, witness=ref.installation.witness).alone(
                other.product, other.release
            ).__enter__()
    finally:
        file_lock.release()
