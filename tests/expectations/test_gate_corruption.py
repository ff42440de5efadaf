"""One corrupted cell anywhere stops publication, and the report names the broken promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expectations import Promises, Suite, frames, run_gates, suites
from pgsr_core.hierarchy import RegionTree
from tests.expectations.gate_releases import (
    RAGGED,
    facts_of,
    failed_checks,
    failed_suites,
    failures_by_hand,
    ragged_release,
    rows_of,
    sound_values,
    store,
)

ROOT, A, B, C, A1, A2, B1, B2, B1X, B1Y = range(10)
CELL = (
    "UPDATE group_sizes SET value = value {change} WHERE region_index = {region} AND size = {size}"
)


def cell(region: int, size: int, change: str) -> str:
    return CELL.format(region=region, size=size, change=change)


ARITHMETIC = {
    "a leaf one too high": (
        [cell(A1, 2, "+ 1")],
        {"children-sum-to-parent", "levels-sum-to-groups", "regions-sum-to-groups"},
    ),
    "a leaf above the last level one too high": (
        [cell(C, 0, "+ 1")],
        {"children-sum-to-parent", "levels-sum-to-groups", "regions-sum-to-groups"},
    ),
    "an inner region one too low": (
        [cell(B1, 1, "- 1")],
        {"children-sum-to-parent", "levels-sum-to-groups", "regions-sum-to-groups"},
    ),
    "the root one too high": (
        [cell(ROOT, 0, "+ 1")],
        {
            *("children-sum-to-parent", "levels-sum-to-groups"),
            *("root-sums-to-groups", "regions-sum-to-groups"),
        },
    ),
    "a group moved to another size in one region alone": (
        [cell(A1, 1, "- 1"), cell(A1, 2, "+ 1")],
        {"children-sum-to-parent"},
    ),
    "a group moved to a region with another parent": (
        [cell(A1, 1, "- 1"), cell(B2, 1, "+ 1")],
        {"children-sum-to-parent", "regions-sum-to-groups"},
    ),
    "a group moved between siblings": (
        [cell(A1, 1, "- 1"), cell(A2, 1, "+ 1")],
        {"regions-sum-to-groups"},
    ),
    "a group too many on a whole path": (
        [cell(region, 1, "+ 1") for region in (ROOT, A, A1)],
        {"levels-sum-to-groups", "root-sums-to-groups", "regions-sum-to-groups"},
    ),
    "a negative count that all sums make up for": (
        [cell(region, 3, "- 1") for region in (ROOT, A, A1)]
        + [cell(region, 2, "+ 1") for region in (ROOT, A, A1)],
        {"no-negative-count"},
    ),
}

AS_DOUBLE = "ALTER TABLE group_sizes ALTER value TYPE DOUBLE"
NOT_KNOWN = {
    *("counts-are-whole", "no-negative-count", "children-sum-to-parent"),
    *("levels-sum-to-groups", "regions-sum-to-groups"),
}
KIND = {
    "whole numbers stored as floats": ([AS_DOUBLE], {"columns-hold-integers"}),
    "a fraction": ([AS_DOUBLE, cell(A1, 1, "+ 0.5")], {"columns-hold-integers"} | NOT_KNOWN),
    "not a number": (
        [AS_DOUBLE, cell(A1, 1, "* 'nan'::DOUBLE")],
        {"columns-hold-integers"} | NOT_KNOWN,
    ),
    "infinity": (
        [AS_DOUBLE, cell(A1, 1, "* 'inf'::DOUBLE")],
        {"columns-hold-integers"} | NOT_KNOWN,
    ),
    "fractions that all sums make up for": (
        [AS_DOUBLE]
        + [cell(region, 1, "+ 0.5") for region in (ROOT, A, A1)]
        + [cell(region, 2, "- 0.5") for region in (ROOT, A, A1)],
        {"columns-hold-integers", "root-sums-to-groups"} | NOT_KNOWN,
    ),
    "a missing count": ([cell(A1, 1, "+ NULL")], NOT_KNOWN),
    "a missing count where there was a zero": ([cell(A1, 3, "+ NULL")], NOT_KNOWN),
    "whole numbers stored as text": (
        ["ALTER TABLE group_sizes ALTER value TYPE VARCHAR"],
        {"columns-hold-integers"},
    ),
    "a count that exceeds 64 bits": (
        ["ALTER TABLE group_sizes ALTER value TYPE HUGEINT", cell(A1, 1, "+ 2::HUGEINT ** 64")],
        {"columns-hold-integers"} | NOT_KNOWN,
    ),
    "sizes stored as floats": (
        ["ALTER TABLE group_sizes ALTER size TYPE DOUBLE"],
        {"columns-hold-integers"},
    ),
}

ONE_CELL = "region_index = 4 AND size = 3"  # a1's count of the largest size, which is zero
UNKNOWN_CELL = {"every-cell-once", "counts-are-whole", "no-negative-count"} | {
    "children-sum-to-parent"
}
EXTENT = {
    "a row missing, though its count is zero": (
        [f"DELETE FROM group_sizes WHERE {ONE_CELL}"],
        UNKNOWN_CELL | {"nothing-extra"},
    ),
    "a row twice, though its count is zero": (
        [f"INSERT INTO group_sizes SELECT * FROM group_sizes WHERE {ONE_CELL}"],
        {"every-cell-once", "nothing-extra"},
    ),
    "a row twice in place of another": (
        [f"UPDATE group_sizes SET size = 3 WHERE region_index = {A1} AND size = 2"],
        UNKNOWN_CELL,
    ),
    "a region that is not public": (
        ["INSERT INTO group_sizes VALUES (10, 0, 0)"],
        {"nothing-extra"},
    ),
    "a region of negative number": (
        ["INSERT INTO group_sizes VALUES (-1, 0, 0)"],
        {"nothing-extra"},
    ),
    "a region that is missing": (
        [f"DELETE FROM group_sizes WHERE region_index = {C}"],
        UNKNOWN_CELL | {"nothing-extra", "levels-sum-to-groups", "regions-sum-to-groups"},
    ),
    "a size beyond the largest": (
        [f"INSERT INTO group_sizes VALUES ({C}, 4, 0)"],
        {"nothing-extra"},
    ),
    "a size below the smallest": (
        [f"INSERT INTO group_sizes VALUES ({C}, -1, 0)"],
        {"nothing-extra"},
    ),
    "a size missing everywhere": (
        ["DELETE FROM group_sizes WHERE size = 3"],
        UNKNOWN_CELL | {"nothing-extra"},
    ),
    "every size one too high": (
        ["UPDATE group_sizes SET size = size + 1"],
        UNKNOWN_CELL | {"nothing-extra"},
    ),
    "a row without region": (
        ["INSERT INTO group_sizes VALUES (NULL, 0, 0)"],
        {"nothing-extra"},
    ),
    "a row without size": (
        [f"INSERT INTO group_sizes VALUES ({C}, NULL, 0)"],
        {"nothing-extra"},
    ),
    "a further column": (
        ["ALTER TABLE group_sizes ADD COLUMN remark BIGINT"],
        {"published-columns", "columns-hold-integers"},
    ),
    "another column's name": (
        ["ALTER TABLE group_sizes RENAME COLUMN size TO width"],
        {"published-columns", "nothing-extra", "every-cell-once", "children-sum-to-parent"}
        | {"counts-are-whole", "no-negative-count"},
    ),
}

REGION = "UPDATE regions SET {what} WHERE region_index = {region}"
PUBLIC_FACTS = {
    "two regions' names swapped": (
        [
            REGION.format(what="region = 'a2'", region=A1),
            REGION.format(what="region = 'a1'", region=A2),
        ],
        {"regions-as-public"},
    ),
    "another parent": ([REGION.format(what="parent = 'b'", region=A1)], {"regions-as-public"}),
    "a root with a parent": ([REGION.format(what="parent = 'c'", region=0)], {"regions-as-public"}),
    "another level": ([REGION.format(what="level = 2", region=A1)], {"regions-as-public"}),
    "no level": ([REGION.format(what="level = NULL", region=A1)], {"regions-as-public"}),
    "no name": ([REGION.format(what="region = NULL", region=A1)], {"regions-as-public"}),
    "a region missing": (
        [f"DELETE FROM regions WHERE region_index = {A1}"],
        {"regions-as-public", "region-groups-as-public"},
    ),
    "a region twice": (
        [f"INSERT INTO regions SELECT * FROM regions WHERE region_index = {A1}"],
        {"regions-as-public", "region-groups-as-public"},
    ),
    "a region too many": (
        ["INSERT INTO regions VALUES (10, 'd', 'root', 2, 'D', 0)"],
        {"regions-as-public", "region-groups-as-public"},
    ),
    "another number of groups": (
        [REGION.format(what="groups = groups + 1", region=A1)],
        {"region-groups-as-public"},
    ),
    "no number of groups": (
        [REGION.format(what="groups = NULL", region=A1)],
        {"region-groups-as-public"},
    ),
}

CORRUPTIONS = ARITHMETIC | KIND | EXTENT | PUBLIC_FACTS


def test_a_sound_release_passes_whatever_was_promised():
    facts, values = ragged_release()
    connection = store(facts, rows_of(facts, values))
    for keeps in (False, True):
        report = run_gates(connection, Promises(facts, keeps_region_totals=keeps))
        assert report.passed, failed_checks(report)


@pytest.mark.parametrize("what", CORRUPTIONS)
def test_a_corruption_fails_exactly_the_checks_that_it_breaks(what):
    statements, expected = CORRUPTIONS[what]
    facts, values = ragged_release()
    connection = store(facts, rows_of(facts, values))
    for statement in statements:
        connection.execute(statement)
    report = run_gates(connection, Promises(facts, keeps_region_totals=True))
    assert not report.passed
    assert failed_checks(report) == expected


def test_every_suite_is_broken_by_some_corruption():
    facts, _ = ragged_release()
    checks = suites.checks_for(Promises(facts, keeps_region_totals=True))
    suite_of = {check.name: check.suite for check in checks}
    broken = {suite_of[name] for _, names in CORRUPTIONS.values() for name in names}
    assert broken == set(Suite) - {Suite.MARGINS}  # those have tests of their own


def test_region_totals_may_differ_where_the_mechanism_does_not_promise_them():
    facts, values = ragged_release()
    connection = store(facts, rows_of(facts, values))
    for statement in ARITHMETIC["a group moved between siblings"][0]:
        connection.execute(statement)
    assert run_gates(connection, Promises(facts, keeps_region_totals=False)).passed
    assert failed_suites(run_gates(connection, Promises(facts, keeps_region_totals=True))) == {
        "public-facts"
    }


def test_a_number_of_groups_beside_a_region_stops_a_release_whose_units_come_from_the_data():
    facts, values = ragged_release()
    secret = replace(facts, groups_by_region=None)
    rows = rows_of(facts, values)
    for keeps in (False, True):
        assert run_gates(store(secret, rows), Promises(secret, keeps_region_totals=keeps)).passed
    report = run_gates(store(facts, rows), Promises(secret))
    assert failed_checks(report) == {"region-groups-withheld"}


def test_sizes_may_start_at_one():
    _, values = ragged_release()
    facts = facts_of(RAGGED, values, smallest_size=1)
    connection = store(facts, rows_of(facts, values))
    assert run_gates(connection, Promises(facts, keeps_region_totals=True)).passed
    report = run_gates(connection, Promises(replace(facts, smallest_size=0)))
    assert "every-cell-once" in failed_checks(report)


def test_a_difference_of_one_is_seen_far_above_what_floats_can_tell_apart():
    facts, values = ragged_release(scale=2**54)
    assert values[0].max() > 2**60
    assert float(values[0, 0]) == float(values[0, 0] + 1)
    connection = store(facts, rows_of(facts, values))
    promises = Promises(facts, keeps_region_totals=True)
    assert run_gates(connection, promises).passed
    connection.execute(cell(ROOT, 0, "+ 1"))
    assert failed_checks(run_gates(connection, promises)) == ARITHMETIC["the root one too high"][1]


def test_a_sum_that_exceeds_64_bits_fails_and_does_not_wrap_around():
    tree = RegionTree.from_table(["root", "a", "b"], [None, "root", "root"])
    values = np.array([[-(2**63)], [2**62], [2**62]])  # the sum, had it wrapped around
    facts = replace(facts_of(tree, values), groups_by_region=None)
    report = run_gates(store(facts, rows_of(facts, values)), Promises(facts))
    assert {"children-sum-to-parent", "levels-sum-to-groups"} <= failed_checks(report)


@pytest.mark.parametrize("size", [0, 6])
def test_a_release_judged_in_slices_is_judged_to_the_last_cell(monkeypatch, size):
    monkeypatch.setattr(frames, "ROWS_AT_ONCE", 2 * RAGGED.regions + 1)
    leaf_values = np.ones((len(RAGGED.leaves), 7), dtype=np.int64)
    values = sound_values(RAGGED, leaf_values)
    facts = facts_of(RAGGED, values)
    assert [part.rows for part in frames.parts(frames.View.CELLS, facts)] == [20, 20, 20, 10]
    connection = store(facts, rows_of(facts, values))
    sound = run_gates(connection, Promises(facts))
    assert sound.passed
    connection.execute(cell(B1Y, size, "+ 1"))
    assert "children-sum-to-parent" in failed_checks(run_gates(connection, Promises(facts)))


@st.composite
def releases(draw):
    """A random tree, often ragged, with a sound table over it."""
    regions = draw(st.integers(1, 9))
    parents = [None] + [f"r{draw(st.integers(0, child - 1))}" for child in range(1, regions)]
    tree = RegionTree.from_table([f"r{region}" for region in range(regions)], parents)
    sizes = draw(st.integers(1, 4))
    cells = len(tree.leaves) * sizes
    counts = draw(st.lists(st.integers(0, 5), min_size=cells, max_size=cells))
    values = sound_values(tree, np.array(counts, dtype=np.int64).reshape(-1, sizes))
    return facts_of(tree, values, smallest_size=draw(st.integers(0, 1))), values


QUICK = settings(max_examples=6, deadline=None)  # a run of the gates takes a third of a second


@QUICK
@given(release=releases(), data=st.data())
def test_any_sound_release_passes_and_any_change_of_one_cell_stops_it(release, data):
    facts, values = release
    promises = Promises(facts, keeps_region_totals=data.draw(st.booleans()))
    rows = rows_of(facts, values)
    connection = store(facts, rows)
    assert run_gates(connection, promises).passed
    region, size, _ = data.draw(st.sampled_from(rows))
    change = data.draw(st.integers(-3, 3).filter(bool))
    connection.execute(cell(region, size, f"+ ({change})"))
    assert not run_gates(connection, promises).passed


@QUICK
@given(release=releases(), data=st.data())
def test_the_gates_agree_with_a_slow_twin_on_any_rows(release, data):
    facts, values = release
    promises = Promises(facts, keeps_region_totals=data.draw(st.booleans()))
    rows = rows_of(facts, values)
    for _ in range(data.draw(st.integers(0, 3))):
        position = data.draw(st.integers(0, len(rows) - 1))
        region, size, value = rows[position]
        match data.draw(st.sampled_from(["change", "delete", "repeat", "stray"])):
            case "change":
                rows[position] = (region, size, value + data.draw(st.integers(-2, 2)))
            case "delete" if len(rows) > 1:
                del rows[position]
            case "repeat":
                rows.append(rows[position])
            case "stray":
                rows.append((facts.tree.regions, size, value))
    report = run_gates(store(facts, rows), promises)
    assert failed_checks(report) == failures_by_hand(rows, promises)
    assert report.passed is (not failed_checks(report))
