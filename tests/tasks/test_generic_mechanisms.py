"""Releases by generic solvers, stage by stage: published with a proof, or not at all."""

from __future__ import annotations

import json
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest

from pgsr_core.solvers.generic import quadratic
from pgsr_core.solvers.generic.errors import SolverTimedOut
from tasks.boundary import StageFailed
from tasks.corrections.reposting import prepare_repost
from tasks.replay import replay_folder
from tasks.run import RunRef
from tasks.stages.prepare import prepare
from tests.tasks.in_process import run_stages

SLOT = date(2026, 1, 1)
CONFIGURATION = """\
product: households
release: "1"
population: {name: residents, budget: "2", unit_of_privacy: person}
source: {persons: persons.csv, columns: {person: person, unit: unit, region: region}}
regions: regions.csv
units: units.csv
sizes: {max: 3}
privacy: {epsilon: "1"}
mechanism: MECHANISM
margins: {repetitions: 0}
publish: {to: public, formats: [csv]}
"""


@pytest.fixture
def office(tmp_path: Path) -> Path:
    units = [("u1", "n"), ("u2", "n"), ("u3", "s"), ("u4", "s"), ("u5", "s")]
    people = ["u1", "u1", "u2", "u3", "u3", "u3", "u4"]
    region = dict(units)
    (tmp_path / "regions.csv").write_text("region,parent\nall,\nn,all\ns,all\n")
    (tmp_path / "units.csv").write_text("unit,region\n" + "".join(f"{u},{r}\n" for u, r in units))
    rows = (f"p{number},{unit},{region[unit]}\n" for number, unit in enumerate(people))
    (tmp_path / "persons.csv").write_text("person,unit,region\n" + "".join(rows))
    return tmp_path


def prepared(office: Path, mechanism: str) -> RunRef:
    configuration = office / "product.yaml"
    configuration.write_text(CONFIGURATION.replace("MECHANISM", mechanism))
    return prepare(configuration, slot=SLOT)


def test_a_generic_solver_publishes_what_a_replay_finds_again(office: Path) -> None:
    bundle = run_stages(prepared(office, "exact-cumulative"))
    privacy = json.loads((bundle / "privacy.json").read_text())
    assert privacy["mechanism"]["name"] == "exact-cumulative"
    assert replay_folder(bundle).equal


def test_out_of_time_nothing_is_published_and_the_measurements_serve_another_mechanism(
    office: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_slow(*_: object) -> None:
        raise SolverTimedOut(solver="SCIP", time_limit=1800.0)

    ref = prepared(office, "exact-cumulative")
    monkeypatch.setattr(quadratic._Program, "solve", too_slow)
    with pytest.raises(StageFailed, match="SolverTimedOut") as caught:
        run_stages(ref)
    assert caught.value.exit_code == 1
    assert not (office / "public").exists()
    bundle = run_stages(prepare_repost(ref, release="2", mechanism="cumulative"))
    assert (bundle / "group_sizes.csv").is_file()
    [account] = ref.ledger().accounts()
    assert (account.spent, account.reserved) == (Fraction(1), 0)
