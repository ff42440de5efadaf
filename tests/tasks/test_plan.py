"""The plan: scales and cells decided from public inputs, and what a measurement key depends on."""

from __future__ import annotations

import dataclasses
import json
import sys
from datetime import date
from fractions import Fraction
from types import MappingProxyType

import pytest

from pgsr_core.accounting.composition import ChargedRelease
from pgsr_core.budget import balanced_shares
from pgsr_core.canonical import canonical_json, json_digest
from pgsr_core.mechanisms import MECHANISMS
from pgsr_core.scales import expected_absolute_noise
from pgsr_core.selection import MeasuredSetting, Shape, choose
from tasks.configuration import choice, model, plan
from tasks.configuration.choice import shipped_results
from tasks.configuration.loading import ConfigurationError, load_configuration
from tasks.configuration.plan import ReleasePlan, make_plan
from tasks.ingestion.source_digest import keyed_source_digest

SLOT = date(2026, 7, 1)
KEY = b"k" * 32
FACTS = {
    "product": "household-sizes",
    "release": '"2026-Q{quarter}"',
    "population": '{name: residents, budget: "4", unit_of_privacy: person}',
    "source": "{persons: persons.csv, columns: {person: p, unit: u, region: r}}",
    "regions": "regions.csv",
    "units": "units.csv",
    "sizes": "{max: 20, largest_contribution: 3}",
    "privacy": '{epsilon: "0.6", neighbours: add-remove, split: uniform}',
    "mechanism": "cumulative",
    "publish": "{to: public}",
}
REGIONS = "region,parent\nnation,\nnorth,nation\nsouth,nation\nn1,north\nn2,north\n"
UNITS = "unit,region\na,n1\nb,n1\nc,n2\nd,south\n"
PERSONS = "p,u,r\n1,a,n1\n2,a,n1\n3,d,south\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "regions.csv").write_text(REGIONS)
    (tmp_path / "units.csv").write_text(UNITS)
    (tmp_path / "persons.csv").write_text(PERSONS)
    return tmp_path


def planned(folder, *, slot=SLOT, **changes):
    facts = {**FACTS, **changes}
    path = folder / "product.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in facts.items()))
    return make_plan(load_configuration(path), slot=slot)


def problems(folder, **changes):
    with pytest.raises(ConfigurationError) as caught:
        planned(folder, **changes)
    return {problem.line: problem.key for problem in caught.value.problems}


# --- what is decided ------------------------------------------------------------------------


def test_a_plan_states_scale_cells_and_expected_error_of_each_level(folder):
    decided = planned(folder).plan
    assert decided.release == "2026-Q3"
    assert decided.sensitivity == 3
    assert decided.groups == 4
    assert [(level.level, level.regions, level.cells) for level in decided.levels] == [
        (1, 1, 20),
        (2, 2, 40),
        (3, 2, 40),
    ]
    assert [level.epsilon for level in decided.levels] == [Fraction(1, 5)] * 3
    assert decided.scales == (Fraction(15),) * 3
    for level in decided.levels:
        assert level.expected_error == expected_absolute_noise(level.scale)
    assert decided.cost == Fraction(3, 5)
    assert decided.destination == folder / "public" / "household-sizes" / "2026-Q3"


def test_the_public_number_of_groups_of_every_region_comes_with_the_plan(folder):
    result = planned(folder)
    by_name = dict(zip(result.regions.tree.names, result.groups_by_region, strict=True))
    assert by_name == {"nation": 4, "north": 3, "south": 1, "n1": 2, "n2": 1}


def test_a_listed_split_goes_to_the_levels_root_first(folder):
    decided = planned(folder, privacy='{epsilon: "0.6", split: [1/2, 1/3, 1/6]}').plan
    assert [level.epsilon for level in decided.levels] == [
        Fraction(3, 10),
        Fraction(1, 5),
        Fraction(1, 10),
    ]
    assert decided.scales == (10, 15, 30)
    assert sum(level.epsilon for level in decided.levels) == decided.cost


def test_a_split_of_another_length_than_the_tree_is_refused_on_its_line(folder):
    found = problems(folder, privacy='{epsilon: "0.6", split: [1/2, 1/2]}')
    assert found == {8: "privacy.split"}


def test_an_optimised_split_follows_from_cells_and_weights_and_beats_the_uniform_one(folder):
    """Cells 20, 40, 40: shares by 1 : √2 : √2, in four digits."""
    decided = planned(folder, privacy='{epsilon: "0.6", split: optimise}').plan
    shares = [level.epsilon / decided.cost for level in decided.levels]
    assert shares == [Fraction("0.2612"), Fraction("0.3694"), Fraction("0.3694")]
    uniform = decided.levels_if_uniform
    assert uniform == planned(folder).plan.levels
    assert sum(level.expected_total_error for level in decided.levels) < sum(
        level.expected_total_error for level in uniform
    )
    weighted = '{epsilon: "0.6", split: {optimise: {weights: [8, 1, 1]}}}'
    assert planned(folder, privacy=weighted).plan.scales == (10, 20, 20)
    assert planned(folder, privacy=weighted).plan.weights == (8, 1, 1)


def test_weights_for_another_number_of_levels_are_refused_on_their_line(folder):
    found = problems(folder, privacy='{epsilon: "0.6", split: {optimise: {weights: [1, 1]}}}')
    assert found == {8: "privacy.split"}


def test_a_simulation_is_drawn_by_the_seeded_sampler_whatever_was_chosen(folder):
    privacy = '{epsilon: "0.6", sampler: fast-exact}'
    assert planned(folder, privacy=privacy).plan.sampler == "fast-exact"
    assert planned(folder, privacy=privacy, simulate="true").plan.sampler == "seeded-simulation"


@pytest.mark.parametrize(
    ("mechanism", "neighbours", "sensitivity"),
    [
        ("cumulative", "add-remove", 3),
        ("cumulative", "replace", 6),
        ("direct", "add-remove", 2),
        ("direct", "replace", 4),
    ],
)
def test_the_scale_follows_from_query_and_neighbours(folder, mechanism, neighbours, sensitivity):
    privacy = f'{{epsilon: "0.6", neighbours: {neighbours}}}'
    decided = planned(folder, mechanism=mechanism, privacy=privacy).plan
    assert decided.sensitivity == sensitivity
    assert decided.scales == (sensitivity / Fraction(1, 5),) * 3


def test_a_contribution_above_the_largest_size_counts_no_more_than_that(folder):
    assert planned(folder, sizes="{max: 2, largest_contribution: 9}").plan.sensitivity == 2


@pytest.mark.parametrize(
    ("mechanism", "units", "sizes", "measured"),
    [
        ("cumulative", "units.csv", range(0, 21), range(1, 21)),
        ("cumulative", "from-data", range(1, 21), range(1, 21)),
        ("direct", "units.csv", range(0, 21), range(0, 21)),
        ("direct", "from-data", range(1, 21), range(1, 21)),
    ],
)
def test_sizes_and_cells_depend_on_the_query_and_on_the_unit_table(
    folder, mechanism, units, sizes, measured
):
    result = planned(folder, mechanism=mechanism, units=units)
    assert result.plan.sizes == sizes
    assert result.plan.measured_sizes == measured
    assert [level.cells for level in result.plan.levels] == [
        level.regions * len(measured) for level in result.plan.levels
    ]


def test_units_from_data_leave_the_number_of_groups_open(folder):
    (folder / "units.csv").unlink()
    result = planned(folder, units="from-data")
    assert result.plan.groups is None
    assert result.plan.units_digest is None
    assert result.groups_by_region is None


def test_a_simulation_costs_nothing_because_no_epsilon_describes_it(folder):
    assert planned(folder, simulate="true").plan.cost == 0


def test_persons_of_the_slot_are_found(folder):
    (folder / "persons-2026-07.csv").write_text(PERSONS)
    source = "{persons: 'persons-{date:%Y-%m}.csv', columns: {person: p, unit: u, region: r}}"
    files = planned(folder, source=source).plan.source_files().files.files
    assert [path.name for path in files] == ["persons-2026-07.csv"]
    assert problems(folder, source=source, slot=date(2026, 8, 1)) == {4: "source.persons"}


# --- what is refused ------------------------------------------------------------------------


def test_all_missing_files_are_told_at_once_with_their_lines(folder):
    for name in ("regions.csv", "units.csv", "persons.csv"):
        (folder / name).unlink()
    found = problems(folder, publish="{to: no/such/folder, signing_key: no.pem}")
    assert found.keys() == {4, 5, 6, 10}
    with pytest.raises(ConfigurationError) as caught:
        planned(folder, publish="{to: no/such/folder, signing_key: no.pem}")
    keys = {problem.key for problem in caught.value.problems}
    assert keys == {"source.persons", "regions", "units", "publish.to", "publish.signing_key"}


def test_a_broken_region_table_is_told_with_the_line_that_names_it(folder):
    (folder / "regions.csv").write_text("region,parent\nnation,\nlost,nowhere\n")
    assert problems(folder) == {5: "regions"}


def test_a_unit_in_no_leaf_region_is_told_with_the_line_that_names_the_table(folder):
    (folder / "units.csv").write_text("unit,region\na,north\n")
    assert problems(folder) == {6: "units"}


@pytest.mark.parametrize("place", ["x" * 300, "x" * 300 + "/y", '"a\\0b/c"', "persons.csv/x"])
def test_a_place_that_cannot_be_is_refused_and_not_a_traceback(folder, place):
    with pytest.raises(ConfigurationError) as caught:
        planned(folder, publish=f"{{to: {place}, signing_key: {place}}}")
    found = {problem.key for problem in caught.value.problems}
    assert found == {"publish.to", "publish.signing_key"}


def test_a_file_in_the_place_of_the_public_folder_is_told_before_anything_is_spent(folder):
    assert problems(folder, publish="{to: persons.csv}") == {10: "publish.to"}
    (folder / "public").mkdir()
    assert planned(folder).plan.destination.parent.parent == folder / "public"


def test_noise_that_no_solver_could_take_is_refused_before_anything_is_spent(folder):
    """Δ = 3 and three levels: the scale is 9/ε."""
    assert planned(folder, privacy="{epsilon: 9/1000000000}").plan.scales[0] == 10**9
    assert problems(folder, privacy="{epsilon: 9/1000000001}") == {8: "privacy.epsilon"}
    tiny_share = "{epsilon: 1, split: [0.999999998, 0.000000001, 0.000000001]}"
    assert problems(folder, privacy=tiny_share) == {8: "privacy.epsilon"}


def test_an_unsafe_release_name_is_refused(folder):
    assert problems(folder, release='"{date:%Y}/../../etc"') == {2: "release"}


# --- stored and read back -------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"units": "from-data"},
        {"simulate": "true", "seed": "7"},
        {"privacy": "{epsilon: 1/3, neighbours: replace, split: [1/2, 1/3, 1/6]}"},
        {"privacy": "{epsilon: 0.000000100001}"},
        {"privacy": "{epsilon: 1/3, split: optimise, sampler: fast-exact}"},
        {"privacy": "{epsilon: 1/3, split: {optimise: {weights: [1/3, 2, 0.1]}}}"},
        {"privacy": "{epsilon: 999999999999.999999999999}"},
        {"privacy": "{epsilon: 0.123456789123, split: [0.123456789123, 0.5, 0.376543210877]}"},
        {"privacy": f"{{epsilon: {'7' * 24}/{'9' * 24}, split: [1/3, 1/3, 1/3]}}"},
        {"population": "{name: a, budget: 0.000000000001, unit_of_privacy: 'one trip, é'}"},
        {"regions": "{table: levels.csv, columns: [upper, lower], root: nation}"},
        {"publish": "{to: public, formats: [csv]}", "resources": "{threads: 2}"},
    ],
)
def test_a_plan_reads_back_exactly(folder, changes):
    (folder / "levels.csv").write_text("upper,lower\nnorth,n1\nnorth,n2\nsouth,\n")
    decided = planned(folder, **changes).plan
    again = ReleasePlan.model_validate_json(decided.model_dump_json(indent=2))
    assert again == decided
    assert again.measurement_key("s") == decided.measurement_key("s")
    assert again.scales == decided.scales
    assert all(isinstance(scale, Fraction) for scale in again.scales)


def test_a_stored_plan_with_an_unknown_key_is_refused(folder):
    text = planned(folder).plan.model_dump_json()
    with pytest.raises(ValueError, match="extra"):
        ReleasePlan.model_validate_json(text[:-1] + ',"redraw":true}')


@pytest.mark.parametrize("mechanism", sorted(MECHANISMS))
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_what_the_ledger_is_told_explains_the_charge_to_the_accountant(
    folder, mechanism, neighbours
):
    decided = planned(
        folder,
        mechanism=mechanism,
        privacy=f"{{epsilon: 3/5, neighbours: {neighbours}, split: [1/2, 1/3, 1/6]}}",
    ).plan
    descriptor = json.loads(canonical_json(decided.measurement_descriptor("source")))
    release = ChargedRelease.from_descriptor(decided.cost, descriptor)
    assert release.neighbours == neighbours
    assert release.measured is not None
    assert release.measured.scales == decided.scales
    assert release.measured.query == decided.mechanism.query


def test_a_mechanism_whose_solver_is_missing_or_too_slow_is_refused_with_its_line(
    folder, monkeypatch
):
    assert planned(folder, mechanism="exact-counts").plan.mechanism.notation == "M_H"
    sizes = "{max: 100000}"
    assert set(problems(folder, mechanism="exact-counts", sizes=sizes).values()) == {"mechanism"}
    monkeypatch.setitem(sys.modules, "pyscipopt", None)
    assert set(problems(folder, mechanism="exact-counts").values()) == {"mechanism"}


# --- the measurement key --------------------------------------------------------------------


def key_of(folder, source_digest="source", **changes):
    return planned(folder, **changes).plan.measurement_key(source_digest)


@pytest.mark.parametrize(
    "changes",
    [
        {"population": '{name: others, budget: "4", unit_of_privacy: person}'},
        {"product": "other-sizes"},
        {"release": '"2026-Q4"'},
        {"slot": date(2026, 10, 1)},
        {"mechanism": "direct"},
        {"privacy": '{epsilon: "0.6", neighbours: replace}'},
        {"privacy": '{epsilon: "0.7"}'},
        {"privacy": '{epsilon: "0.6", split: [1/2, 1/4, 1/4]}'},
        {"sizes": "{max: 20, largest_contribution: 2}"},
        {"sizes": "{max: 21, largest_contribution: 3}"},
        {"units": "from-data"},
        {"simulate": "true"},
        {"source_digest": "other source"},
    ],
    ids=str,
)
def test_each_part_of_what_is_measured_changes_the_key(folder, changes):
    assert key_of(folder, **changes) != key_of(folder)


def test_another_tree_or_another_unit_table_changes_the_key(folder):
    before = key_of(folder)
    (folder / "regions.csv").write_text(REGIONS + "n3,north\n")
    with_another_tree = key_of(folder)
    (folder / "regions.csv").write_text(REGIONS)
    (folder / "units.csv").write_text(UNITS + "e,n2\n")
    with_another_unit = key_of(folder)
    assert len({before, with_another_tree, with_another_unit}) == 3


def test_the_order_of_rows_of_the_region_table_does_not_change_the_key(folder):
    before = key_of(folder)
    header, *rows = REGIONS.splitlines()
    (folder / "regions.csv").write_text("\n".join([header, *reversed(rows)]) + "\n")
    assert key_of(folder) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"publish": "{to: elsewhere, formats: [csv]}"},
        {"resources": "{memory_limit: 1GB, threads: 1}"},
        {"population": '{name: residents, budget: "9", unit_of_privacy: "a person"}'},
        {"privacy": "{epsilon: 3/5, split: [1/3, 1/3, 1/3]}"},
        {"privacy": "{epsilon: 3/5, sampler: fast-exact}"},
        {"privacy": "{epsilon: 0.60}"},
        {"release": '"2026-Q3"'},
        {"simulate": "false"},
    ],
    ids=str,
)
def test_what_does_not_touch_the_draw_does_not_change_the_key(folder, changes):
    assert key_of(folder, **changes) == key_of(folder)


def test_two_mechanisms_that_differ_in_post_processing_share_one_draw(folder, monkeypatch):
    before = key_of(folder)
    twin = dataclasses.replace(MECHANISMS["cumulative"], name="twin", steps=())
    known = MappingProxyType({**MECHANISMS, "twin": twin})
    monkeypatch.setattr(model, "MECHANISMS", known)
    monkeypatch.setattr(plan, "MECHANISMS", known)
    assert key_of(folder, mechanism="twin") == before


def test_the_key_does_not_depend_on_what_follows_from_the_rest(folder):
    decided = planned(folder).plan
    descriptor = decided.measurement_descriptor("source")
    assert descriptor.pop("sampler") == decided.sampler
    assert descriptor.pop("unit_of_privacy") == decided.configuration.population.unit_of_privacy
    assert descriptor.pop("noise")["scales"] == [str(scale) for scale in decided.scales]
    assert decided.measurement_key("source") == json_digest(descriptor)


def test_the_source_digest_changes_with_bytes_columns_and_key_but_not_with_names(folder):
    def digest(source=FACTS["source"], key=KEY):
        return keyed_source_digest(planned(folder, source=source).plan.source_files(), key=key)

    before = digest()
    (folder / "copy.csv").write_text(PERSONS)
    assert digest(FACTS["source"].replace("persons.csv", "copy.csv")) == before
    assert digest(FACTS["source"].replace("unit: u", "unit: p")) != before
    assert digest(key=b"x" * 32) != before
    (folder / "persons.csv").write_text(PERSONS.replace("3,d,south", "3,c,n2"))
    assert digest() != before


UNSPLIT = '{epsilon: "0.6", neighbours: add-remove}'


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_a_split_that_is_not_said_is_the_mechanisms_own_and_the_plan_says_which(folder, name):
    decided = planned(folder, mechanism=name, privacy=UNSPLIT).plan
    own = MECHANISMS[name].split
    assert decided.configuration.privacy.split == own
    shares = (Fraction(1, 3),) * 3
    if own == "balanced":
        shares = balanced_shares(3, epsilon=Fraction(3, 5), sensitivity=1)
    assert [level.epsilon for level in decided.levels] == [Fraction(3, 5) * s for s in shares]
    said = UNSPLIT.replace("}", f", split: {own}}}")
    again = planned(folder, mechanism=name, privacy=said).plan
    assert again == decided


def test_only_global_has_a_split_of_its_own():
    own = {name for name, mechanism in MECHANISMS.items() if mechanism.split != "uniform"}
    assert own == {"global"}


def test_auto_is_decided_before_anything_else_and_nothing_later_knows_of_it(folder, monkeypatch):
    results = shipped_results()
    for name in ("cumulative", "global"):
        best = MeasuredSetting(name, results.settings[0].shape, {name: 0.5})
        shipped = dataclasses.replace(results, settings=(best,))
        monkeypatch.setattr(choice, "shipped_results", lambda shipped=shipped: shipped)
        found = planned(folder, mechanism="auto", privacy=UNSPLIT)
        assert found.choice.mechanism == name
        assert found.plan == planned(folder, mechanism=name, privacy=UNSPLIT).plan
        assert planned(folder, mechanism=name).choice is None


def test_auto_looks_at_public_facts_and_at_epsilon_for_sensitivity_one(folder, monkeypatch):
    asked = []
    results = shipped_results()
    monkeypatch.setattr(
        choice, "choose", lambda shape, results: asked.append(shape) or choose(shape, results)
    )
    planned(folder, mechanism="auto")
    planned(folder, mechanism="auto", units="from-data", sizes="{max: 2, largest_contribution: 3}")
    assert asked == [
        Shape(3, 3, 20, public_units=True, epsilon=Fraction(1, 5)),
        Shape(3, 3, 2, public_units=False, epsilon=Fraction(3, 10)),
    ]
    assert results.settings


def test_the_shipped_results_are_of_mechanisms_that_can_be_chosen_and_name_their_command():
    results = shipped_results()
    assert results.command
    assert results.repetitions >= 1
    assert len(results.settings) >= 10
    for setting in results.settings:
        assert setting.ratios["cumulative"] == 1.0
        assert setting.best in MECHANISMS
        assert setting.best in setting.ratios
        assert setting.ratios[setting.best] <= 1.0
