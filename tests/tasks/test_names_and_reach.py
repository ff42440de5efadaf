"""Names that something else needs, and sizes that nobody could publish: refused in the plan."""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from pgsr_core.attestation.withdrawal import notice_name
from pgsr_core.hierarchy import RegionTree
from pgsr_core.limits import (
    MOST_CELLS,
    MOST_REGIONS,
    largest_consistent_value,
    largest_isotonic_value,
)
from pgsr_core.solvers.cpwl import solve
from pgsr_core.verification import tables as verifier
from tasks.configuration import reach
from tasks.configuration.loading import ConfigurationError, Problem, load_configuration
from tasks.configuration.names import why_not_new
from tasks.run import RunRef
from tasks.stages.prepare import prepare
from tasks.storage.zones import split_run_name
from tests.tasks import test_plan

SLOT = date(2026, 7, 1)
NOTICE = notice_name("2026-Q1")
folder = test_plan.folder


def problems(folder: Path, **changes: str) -> list[Problem]:
    with pytest.raises(ConfigurationError) as caught:
        test_plan.planned(folder, **changes)
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("release", NOTICE),
        ("release", NOTICE.upper()),
        ("release", "2026-Q{quarter}.withdrawn.dsse.json"),
        ("release", "{date:%Y.withdrawn.dsse.json}"),
        ("release", "Index.html"),
        ("release", "com{quarter}"),
        ("product", NOTICE),
        ("product", "catalogue.json"),
        ("product", "operator.log"),
        ("product", "Source-Digest.key"),
        ("product", "nul.x"),
        ("product", "taxis."),
    ],
)
def test_a_name_that_something_else_needs_is_refused_on_its_line(
    folder: Path, key: str, name: str
) -> None:
    [problem] = problems(folder, **{key: f'"{name}"'})
    assert problem.key == key
    assert problem.line is not None


@pytest.mark.parametrize("name", ["2026-Q1.withdrawn", "console", "index", "operator.log", "a.b"])
def test_names_that_only_look_alike_are_taken(name: str) -> None:
    assert why_not_new(name) is None


def test_a_release_of_an_older_version_with_such_a_name_is_still_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr("tasks.configuration.loading.refused_names", lambda _: ())
        older.setattr("tasks.configuration.plan.new_release", str)
        test_plan.planned(folder, release=NOTICE)
        ref = prepare(folder / "product.yaml", slot=SLOT)
    with pytest.raises(ConfigurationError):
        load_configuration(folder / "product.yaml")
    product, release = split_run_name(ref.name)
    assert RunRef(ref.home, product, release).open().plan.release == NOTICE


# --- size -------------------------------------------------------------------------------------


def test_what_the_verifier_takes_and_what_is_released_have_one_limit() -> None:
    assert verifier.MOST_CELLS is MOST_CELLS is reach.MOST_CELLS
    assert verifier.MOST_REGIONS is MOST_REGIONS is reach.MOST_REGIONS


def test_more_counts_than_a_verifier_reads_are_refused_before_anything_is_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "MOST_CELLS", 5 * 21)  # five regions, sizes 0 to 20
    test_plan.planned(folder)
    monkeypatch.setattr(reach, "MOST_CELLS", 5 * 21 - 1)
    [problem] = problems(folder)
    assert problem.key == "sizes.max"
    assert "the largest size can be 19" in problem.message
    test_plan.planned(folder, sizes="{max: 19}")


def test_more_regions_than_a_verifier_reads_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "MOST_REGIONS", 4)
    assert [problem.key for problem in problems(folder)] == ["regions"]


@pytest.mark.parametrize("mechanism", ["cumulative", "global"])
def test_what_exact_arithmetic_could_not_hold_is_refused_before_anything_is_measured(
    folder: Path, mechanism: str
) -> None:
    """A million sizes leave room for values up to 9.2 million; noise of scale 3·10⁵ passes it."""
    sizes = "{max: 1000000, largest_contribution: 1}"
    privacy = '{epsilon: "0.00001", split: uniform}'
    [problem] = problems(folder, mechanism=mechanism, sizes=sizes, privacy=privacy)
    assert problem.key == "sizes.max"
    assert str(largest_isotonic_value(10**6)) in problem.message
    test_plan.planned(folder, mechanism=mechanism, sizes=sizes)
    test_plan.planned(folder, mechanism="direct", sizes=sizes, privacy=privacy)
    if mechanism == "global":  # it needs the isotonic fix for simulated margins only
        no_margins = "{repetitions: 0}"
        test_plan.planned(
            folder, mechanism=mechanism, sizes=sizes, privacy=privacy, margins=no_margins
        )


def test_the_solver_takes_whatever_is_within_the_limit() -> None:
    tree = RegionTree.from_table(["r", "a", "b", "c"], ["", "r", "r", "r"])
    limit = largest_consistent_value(regions=tree.regions, levels=tree.levels)
    noisy = np.full((4, 2), limit, dtype=np.int64)
    noisy[1] = -limit
    assert solve(tree, noisy, groups=limit).counts[0].sum() == limit


def test_noise_of_a_scale_beyond_all_reason_is_still_refused(folder: Path) -> None:
    privacy = '{epsilon: "0.000000001", split: uniform}'
    assert [problem.key for problem in problems(folder, privacy=privacy)] == ["privacy.epsilon"]


def test_a_public_number_of_groups_counts_as_well(folder: Path) -> None:
    plan = test_plan.planned(folder, sizes="{max: 1000000}").plan
    tree = RegionTree.from_table(["r"], [""])
    for groups, refused in ((9_000_000, False), (9_300_000, True), (None, False)):
        found = reach.out_of_reach(
            plan.configuration, plan.mechanism, tree, scales=[Fraction(1)], groups=groups
        )
        assert bool(list(found)) is refused
