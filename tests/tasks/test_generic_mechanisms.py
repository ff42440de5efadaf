"""A release by a generic solver, stage by stage: published with a proof, or not at all."""

from __future__ import annotations

import json
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest

from pgsr_core.solvers.generic import quadratic
from pgsr_core.solvers.generic.errors import SolverTimedOut
from tasks.boundary import StageFailed
from tasks.replay import replay_folder
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
mechanism: exact-cumulative
margins: {repetitions: 5}
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


def test_out_of_time_nothing_is_published_and_a_resumed_release_takes_the_same_measurements(
    office: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_slow(*_: object) -> None:
        raise SolverTimedOut(solver="SCIP", time_limit=1800.0)

    configuration = office / "product.yaml"
    configuration.write_text(CONFIGURATION)
    ref = prepare(configuration, slot=SLOT)
    with monkeypatch.context() as patched:
        patched.setattr(quadratic._Program, "solve", too_slow)
        with pytest.raises(StageFailed, match="SolverTimedOut") as caught:
            run_stages(ref)
    assert caught.value.exit_code == 1
    assert list((office / "public").glob("*/*")) == []

    bundle = run_stages(ref)
    privacy = json.loads((bundle / "privacy.json").read_text())
    assert privacy["mechanism"]["name"] == "exact-cumulative"
    assert "Make everything fit at once" in (bundle / "report.html").read_text()
    assert replay_folder(bundle).equal
    [account] = ref.ledger().accounts()
    assert (account.spent, account.reserved) == (Fraction(1), 0)
