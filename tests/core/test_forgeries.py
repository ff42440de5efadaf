"""Ten forgeries, each signed by the publisher, every digest and listing fitting: all refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pgsr_core.documents import wordings
from pgsr_core.documents.words import PRIVATE_SAMPLERS
from pgsr_core.noise.catalogue import ReleaseSampler
from pgsr_core.verification import Verification, verify_bundle
from pgsr_core.verification.replayed import with_replay
from tasks.publication.facts import CheckFacts
from tests.core.example_bundle import KEY, Draft, example, passed_checks
from tests.core.honest_bundle import EPSILON, LARGEST_SIZE, Made, make, replace_table

COMMAND = "pgsr audit replay BUNDLE"


def verify(draft: Draft, *, replay: bool | None = None) -> Verification:
    bundle = draft.signed()
    found = verify_bundle(bundle, KEY.public)
    return with_replay(found, bundle, wanted=replay, command=COMMAND)


def failures(draft: Draft) -> set[str]:
    """What does not hold; never because a file was damaged: everything was signed again."""
    found = verify(draft)
    failed = {item.name for item in found.failed}
    assert failed.isdisjoint({"signature", "files-present", "files-unchanged", "nothing-extra"})
    return failed


@pytest.fixture(scope="module")
def honest() -> Made:
    return make()


@pytest.fixture
def draft(honest: Made) -> Draft:
    return copy.deepcopy(honest.draft)


def privacy(draft: Draft) -> dict[str, Any]:
    return draft.documents["privacy.json"]


@pytest.mark.parametrize("mechanism", ["cumulative", "direct", "global"])
def test_an_honest_bundle_is_verified_and_replayed(mechanism: str) -> None:
    found = verify(make(mechanism).draft)
    assert found.verified, found.failed
    assert found.not_checked == ()
    said = {item.name: item.sentence for item in found.items}
    assert "Mean squared standardised residual" in said["noise-as-stated"]
    assert "replay:recomputed:group_sizes" in said
    assert "replay:recomputed:margins" in said


def test_1_words_that_state_a_hundredth_of_epsilon_are_refused(draft: Draft) -> None:
    stated = privacy(draft)["statement"]
    assert "ε = 3/2 (1.5)" in stated[0]
    stated[0] = stated[0].replace("3/2 (1.5)", "3/200 (0.015)")
    assert failures(draft) == {"words"}


def _household(document: dict[str, Any]) -> None:
    document["unit_of_privacy"] = "household"


def _household_in_words(document: dict[str, Any]) -> None:
    document["statement"] = [s.replace("person", "household") for s in document["statement"]]


@pytest.mark.parametrize(
    "forge",
    [
        _household,
        _household_in_words,
        lambda document: document.update(assumptions=[]),
        lambda document: document.update(invariants=[]),
        lambda document: document.update(not_protected=[]),
        lambda document: document["assumptions"].pop(),
        lambda document: document.update(definition="no privacy whatever"),
        lambda document: document.update(neighbours_in_words="There are none."),
        lambda document: document["mechanism"].update(noise="none"),
        lambda document: document["mechanism"].update(notation="M"),
        lambda document: document["sensitivity"].update(formula="1 = 1"),
        lambda document: document["lineage"]["additional_epsilon"].update(exact="0", decimal=0.0),
        lambda document: document.update(epsilon_really="100"),
        lambda document: document["levels"][0].update(note="not measured"),
        lambda document: document.update(notice="NOT PRIVATE — SIMULATION"),
        lambda document: document.update(wording=3),
        lambda document: document.pop("wording"),
        lambda document: document.pop("definition"),
    ],
)
def test_2_another_unit_of_privacy_and_emptied_or_added_words_are_refused(
    draft: Draft, forge: Callable[[dict[str, Any]], object]
) -> None:
    forge(privacy(draft))
    assert "words" in failures(draft)


def test_3_the_truth_as_the_release_with_margins_of_no_width_is_refused() -> None:
    made = make()
    replace_table(made, "group_sizes", made.truth)
    replace_table(made, "margins", np.stack([made.truth] * 4))
    replace_table(made, "margins_by_level", np.zeros((2, 3, LARGEST_SIZE + 1), dtype=np.int64))
    assert failures(made.draft) == {
        "replay:recomputed:group_sizes",
        "replay:recomputed:margins",
        "replay:recomputed:margins_by_level",
    }
    left_out = verify(made.draft, replay=False)
    assert left_out.verified
    assert [str(what) for what in left_out.not_checked] == [
        f"that the released tables and margins follow from the measurements; run {COMMAND}"
    ]


def test_4_a_hundredth_of_epsilon_and_scales_to_fit_for_the_same_noise_are_refused() -> None:
    assert failures(make(epsilon=EPSILON / 100).draft) == {"noise-as-stated"}


@pytest.mark.parametrize("mechanism", ["cumulative", "direct"])
def test_5_measurements_without_noise_are_refused(mechanism: str) -> None:
    made = make(mechanism, drawn_with=None)
    found = verify(made.draft)
    [item] = found.failed
    assert item.name == "noise-as-stated"
    assert "residual 0.000 over" in item.sentence


def test_noise_of_a_larger_epsilon_than_is_stated_is_refused() -> None:
    assert failures(make(drawn_with=3 * EPSILON).draft) == {"noise-as-stated"}


def test_6_all_checks_replaced_by_an_invented_one_are_refused(draft: Draft) -> None:
    draft.state(checks=(CheckFacts("all-is-well", "release", "All is well.", True, 9),))
    assert failures(draft) == {"required-checks"}


@pytest.mark.parametrize(
    "checks",
    [
        passed_checks(public=True)[1:],
        (*passed_checks(public=True), CheckFacts("more", "release", "More.", True, 1)),
        passed_checks(public=False),
        passed_checks(public=True, totals=True),
        passed_checks(public=True, margins=False),
        tuple(reversed(passed_checks(public=True))),
        (replace(passed_checks(public=True)[0], statement="Yes."), *passed_checks(public=True)[1:]),
        (replace(passed_checks(public=True)[0], expectations=1), *passed_checks(public=True)[1:]),
        (replace(passed_checks(public=True)[0], suite="x"), *passed_checks(public=True)[1:]),
    ],
)
def test_missing_additional_and_reworded_checks_are_refused(
    draft: Draft, checks: tuple[CheckFacts, ...]
) -> None:
    draft.state(checks=checks)
    assert "required-checks" in failures(draft)


@pytest.mark.parametrize("sampler", ["seeded-simulation", "mine", "OpenDP"])
def test_7_a_sampler_that_is_not_private_without_a_simulation_is_refused(
    draft: Draft, sampler: str
) -> None:
    draft.state(sampler=sampler)
    assert failures(draft) == {"sampler"}


def test_the_private_samplers_are_those_that_a_release_may_choose() -> None:
    assert set(PRIVATE_SAMPLERS) == set(ReleaseSampler)


def test_8_a_total_epsilon_lowered_alone_is_refused(draft: Draft) -> None:
    lowered = EPSILON / 100
    privacy(draft)["epsilon"] = {"exact": str(lowered), "decimal": float(lowered)}
    draft.provenance["epsilon"] = lowered
    assert {"epsilon-adds-up", "words"} <= failures(draft)


def test_9_scales_that_differ_between_statement_and_measurements_are_refused(draft: Draft) -> None:
    for row in draft.tables["measurements"]:
        row[-1] *= 100
    assert {"scales:measurements.parquet", "scales:measurements.csv"} <= failures(draft)


def test_10_a_contribution_of_seven_with_a_sensitivity_of_one_is_refused(draft: Draft) -> None:
    draft.state(largest_contribution=7)
    assert failures(draft) == {"sensitivity", "noise-suffices"}


@pytest.mark.parametrize(
    "forge",
    [
        lambda document: document.update(note="Approved by nobody."),
        lambda document: document["checks"][0].update(note="skipped"),
        lambda document: document["certificates"].update({"approval": {"good": True}}),
        lambda document: document["certificates"]["cpwl"].update({"approval": "by nobody"}),
        lambda document: document["certificates"]["cpwl"].update({"really private": True}),
        lambda document: document["certificates"]["cpwl"].update(objective="1"),
        lambda document: document["certificates"]["cpwl"].update(more=1),
        lambda document: document["certificates"].pop("isotonic"),
        lambda document: document["certificates"]["margins"].update(coverage=1),
        lambda document: document["table_digests"].update(other="a" * 64),
        lambda document: document["table_digests"].pop("isotonic"),
    ],
)
def test_nothing_can_be_added_to_the_account_of_checks(
    draft: Draft, forge: Callable[[dict[str, Any]], object]
) -> None:
    forge(draft.documents["checks.json"])
    draft.provenance["table_digests"] = dict(draft.documents["checks.json"]["table_digests"])
    assert failures(draft) & {"required-checks", "accounts", "replay:certificates"}


@pytest.mark.parametrize(
    "forge",
    [
        lambda document: document.update(title="The exact truth"),
        lambda document: document.update(description="Not private."),
        lambda document: document.update(generator="pgsr 0.1.0 (certified)"),
        lambda document: document.update(sources=[{"title": "nobody"}]),
        lambda document: document["resources"][2].update(description="True counts."),
        lambda document: document["resources"][2]["schema"]["fields"][3].update(
            description="The true number of groups."
        ),
        lambda document: document["resources"].reverse(),
    ],
)
def test_no_word_of_the_data_package_can_be_changed(
    draft: Draft, forge: Callable[[dict[str, Any]], object]
) -> None:
    draft.package = forge
    assert failures(draft) - {"software-as-signed"} == {"data-package-words"}


def test_a_field_nested_as_deeply_as_can_be_read_is_refused(draft: Draft) -> None:
    deep: list[Any] = []
    for _ in range(900):
        deep = [deep]
    privacy(draft)["more"] = deep
    assert failures(draft) == {"words"}


def test_a_bundle_in_an_earlier_wording_is_verified_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    third = replace(wordings.CURRENT, version=3, assumptions=lambda _: ("Others.",))
    every = {**wordings.WORDINGS, 3: third}
    monkeypatch.setattr("pgsr_core.verification.derived.WORDINGS", every)
    monkeypatch.setattr("pgsr_core.verification.derived.CURRENT", third)
    draft = example()
    for number in (1, 2):
        document = wordings.privacy_document(draft.facts, every[number])
        assert document.get("wording", 1) == number
        draft.documents["privacy.json"] = {"simulation": False, **document}
        earlier = verify_bundle(draft.signed(), KEY.public)
        assert earlier.verified
        [words] = [item.sentence for item in earlier.items if item.name == "words"]
        assert f"earlier wording (number {number})" in words
    document = wordings.privacy_document(draft.facts, third)
    assert document["wording"] == 3
    draft.documents["privacy.json"] = {"simulation": False, **document}
    assert verify_bundle(draft.signed(), KEY.public).verified
    draft.documents["privacy.json"]["assumptions"] = list(wordings.FIRST.assumptions(draft.facts))
    assert "words" in failures(draft)


def test_what_takes_long_is_named_with_its_command_instead(
    honest: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgsr_core.verification.replayed.MOST_WORK", 100)
    found = verify(honest.draft)
    assert found.verified
    assert [what.command for what in found.not_checked] == [COMMAND]
    assert verify(honest.draft, replay=True).not_checked == ()


def test_an_exact_program_is_replayed_only_when_it_is_asked_for() -> None:
    made = make("direct")
    made.draft.state(
        mechanism="exact-counts",
        notation="M_H",
        certificates={
            "exact-counts": {"feasible": True, "optimal": True, "objective": "1"},
            "margins": {"repetitions": 2},
        },
    )
    found = verify(made.draft)
    assert found.verified, found.failed
    [left_out] = found.not_checked
    assert left_out.command == COMMAND
    assert "exact program" in left_out.what


def test_too_few_residuals_to_tell_are_named_as_not_checked() -> None:
    found = verify_bundle(example().signed(), KEY.public)
    assert found.verified
    assert ["too few to tell" in left_out.what for left_out in found.not_checked] == [True]


def test_a_failed_bundle_is_not_computed_with(draft: Draft) -> None:
    privacy(draft)["assumptions"] = []
    found = verify(draft)
    assert not any(item.name.startswith("replay:") for item in found.items)
    assert [left_out.command for left_out in found.not_checked] == [COMMAND]


def test_spending_less_than_this_release_is_refused(draft: Draft) -> None:
    privacy(draft)["budget"]["spent"] = {"exact": "1/100", "decimal": 0.01}
    assert {"spending", "words"} <= failures(draft)
