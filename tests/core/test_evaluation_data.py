"""Reconstructed data have the shapes that the papers print; metrics mean what they say."""

from __future__ import annotations

import numpy as np
import pytest

from pgsr_core.evaluation.datasets import (
    CENSUS_OUTLIERS,
    SYNTHETIC_SIZES,
    census,
    from_leaves,
    limited,
    outskirts,
    synthetic_series,
    taxi_like,
    with_public_units,
)
from pgsr_core.evaluation.metrics import constraint_violations, dyadic_ranges, errors_by_level

COUNTIES = [("A", "a1"), ("A", "a2"), ("B", "b1")]


@pytest.fixture(scope="module")
def taxi():
    return taxi_like()


def small_census(**options):
    return census(COUNTIES, [200_000, 50_000, 100_000], [2.2, 2.6, 3.1], **options)


def test_a_census_has_every_household_the_ratio_of_the_tail_and_the_outliers():
    data = small_census()
    counts, sizes = data.counts, np.arange(1, 1001)
    assert data.tree.names == ("all", "A", "B", "A/a1", "A/a2", "B/b1")
    assert counts.shape == (6, 1000)
    assert counts[0].sum() == 350_000 + CENSUS_OUTLIERS
    assert (data.tree.children_sums(counts) == counts).all()
    ratios = counts[3, 6:9] / counts[3, 5:8]
    assert ratios == pytest.approx([ratios[0]] * 3, rel=0.15)
    assert counts[0, 39:].sum() > CENSUS_OUTLIERS / 2
    means = (counts[3:] @ sizes) / counts[3:].sum(axis=1)
    assert means == pytest.approx([2.2, 2.6, 3.1], rel=0.1)


def test_a_census_is_a_function_of_its_seed():
    assert (small_census(seed=4).counts == small_census(seed=4).counts).all()
    assert (small_census(seed=4).counts != small_census(seed=5).counts).any()


def test_taxi_like_data_have_the_shape_of_the_paper(taxi):
    assert taxi.counts.shape == (1 + 6 + 263, 13_282)
    assert taxi.counts[0].sum() == 13_282
    assert taxi.counts[0] @ np.arange(1, 13_283) == pytest.approx(24_489_743, rel=0.05)
    # "Small group sizes [...] are also the most populated groups" (section 9.3).
    assert (np.diff(np.add.reduceat(taxi.counts[0], [0, 10, 20, 30, 40, 50])[:5]) < 0).all()
    assert (taxi.tree.children_sums(taxi.counts) == taxi.counts).all()


def test_the_synthetic_series_keeps_the_small_groups_of_the_taxi_data(taxi):
    series = synthetic_series()
    assert [data.largest_size for data in series] == list(SYNTHETIC_SIZES)
    assert series[0].name == "synthetic-5"
    assert (series[-1].counts == taxi.counts[:, :50]).all()
    assert limited(taxi, 7).counts.flags.c_contiguous


def test_the_outskirts_are_three_boroughs_of_the_taxi_data(taxi):
    small = outskirts(taxi)
    boroughs = ["Bronx", "EWR", "Staten Island"]
    assert small.largest_size == 5
    assert [small.tree.names[region] for region in range(1, 4)] == boroughs
    for borough in boroughs:
        all_sizes = taxi.counts[taxi.tree.index[borough]]
        np.testing.assert_array_equal(small.counts[small.tree.index[borough]], all_sizes[:5])


def test_public_units_add_empty_ones_that_add_up_and_are_size_0():
    data = with_public_units(small_census(), empty_share=0.2)
    assert data.empty_units[0] / data.truth[0].sum() == pytest.approx(0.2, rel=0.02)
    assert (data.tree.children_sums(data.truth) == data.truth).all()
    facts = data.facts()
    assert facts.sizes == range(0, 1001)
    assert (facts.groups_by_region == data.truth.sum(axis=1)).all()
    assert facts.groups == data.truth[0].sum()
    assert small_census().facts().groups_by_region is None


def test_rows_of_one_leaf_are_added_up():
    data = from_leaves("x", [("a",), ("b",), ("a",)], np.array([[1, 0], [2, 5], [3, 1]]))
    assert data.counts.tolist() == [[6, 6], [4, 1], [2, 5]]


def test_errors_are_those_of_the_definitions_level_by_level():
    data = from_leaves("x", [("a",), ("b",)], np.array([[4, 0, 1, 0], [2, 3, 0, 0]]))
    wrong = data.counts.copy()
    wrong[1, 0] -= 1  # a group of 1 in a is moved to size 3 …
    wrong[1, 2] += 1
    wrong[2, 1] -= 2  # … and two groups of b are lost
    root, leaves = errors_by_level(data.tree, data.counts, wrong, smallest_size=1)
    assert (root.level, root.l1, root.earth_mover, root.range_error) == (1, 0, 0, 0.0)
    assert (leaves.l1, leaves.earth_mover) == (4, (0 + 1 + 1) + (2 + 2))
    # Ranges 1, 2–3, 4: in a 4 → 3 and 1 → 2, in b 3 → 1; the last range is empty in both.
    assert leaves.range_error == pytest.approx((1 / 4 + 1 + 0 + 0 + 2 / 3 + 0) / 6)
    assert constraint_violations(data.tree, data.counts) == 0
    assert constraint_violations(data.tree, wrong) == 3


def test_size_0_counts_for_l1_but_moves_nothing_by_itself():
    data = with_public_units(from_leaves("x", [("a",)], np.array([[3, 2]])), empty_share=0.5)
    wrong = data.truth.copy()
    wrong[:, 0] += 1
    for error in errors_by_level(data.tree, data.truth, wrong, smallest_size=0):
        assert (error.l1, error.earth_mover) == (1, 0)


def test_dyadic_ranges_cover_every_size_once():
    for smallest in (0, 1):
        for largest in (1, 2, 3, 8, 100):
            sizes = [size for part in dyadic_ranges(smallest, largest) for size in part]
            assert sizes == list(range(smallest, largest + 1))
