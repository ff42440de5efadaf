"""The peers against slow, obvious twins of their parts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from pgsr_core.evaluation.kuo import CHUNK, _RisingFit, _sorted_sizes, matched_from_the_root
from pgsr_core.evaluation.matching import least_absolute_fit, match_family
from pgsr_core.evaluation.peers import _shared_out, nearest_with_sums
from pgsr_core.solvers.isotonic import isotonic_real
from tests.core.cpwl_oracles import layered_tree
from tests.core.generic_oracles import falling_rows

SIZES = 6


@settings(max_examples=60)
@given(
    row=st.lists(st.integers(-3, 8), min_size=1, max_size=5),
    upper=st.integers(0, 5),
)
def test_the_least_absolute_fit_is_as_near_as_any_row_that_never_rises(row, upper):
    values = np.array([row])
    fitted = least_absolute_fit(values, np.array([upper]))[0]
    assert tuple(fitted) in falling_rows(len(row), upper)
    best = min(np.abs(np.array(other) - row).sum() for other in falling_rows(len(row), upper))
    assert np.abs(fitted - row).sum() == best


@settings(max_examples=60)
@given(values=st.lists(st.integers(-9, 15), min_size=1, max_size=40), cut=st.integers(0, 40))
def test_pooling_in_parts_is_the_isotonic_fit_of_the_whole(values, cut):
    fit = _RisingFit()
    for part in (values[:cut], values[cut:]):
        fit.add(np.array(part, dtype=np.int64))
    reversed_row = np.array([values[::-1]], dtype=np.float64)
    real = isotonic_real(reversed_row, upper=np.inf, lower=-np.inf)[0]
    # Means with denominators up to 40: an exact half stays one within rounding errors.
    nearest = np.clip(np.floor(real + 0.5 + 1e-9), 0, SIZES - 1).astype(int)
    assert fit.histogram(SIZES).tolist() == np.bincount(nearest, minlength=SIZES).tolist()


def test_sizes_come_sorted_and_in_parts_that_together_are_all(monkeypatch):
    counts = np.array([3, 0, 5, 1])
    monkeypatch.setattr("pgsr_core.evaluation.kuo.CHUNK", 2)
    parts = list(_sorted_sizes(counts))
    assert max(map(len, parts)) == 2
    assert np.concatenate(parts).tolist() == [0, 0, 0, 2, 2, 2, 2, 2, 3]
    assert list(_sorted_sizes(np.array([0, 0]))) == []
    assert CHUNK > 2


def listed(counts):
    return np.repeat(np.arange(len(counts)), counts)


histograms = st.lists(
    st.lists(st.integers(0, 4), min_size=SIZES, max_size=SIZES), min_size=1, max_size=3
)


@settings(max_examples=60)
@given(children=histograms, seed=st.integers(0, 2**32 - 1))
def test_the_matching_costs_no_more_than_any_and_every_child_keeps_its_groups(children, seed):
    children = np.array(children)
    total = int(children.sum())
    drawn = np.random.default_rng(seed).integers(0, SIZES, total)
    parent = np.bincount(drawn, minlength=SIZES)
    ours, theirs = listed(children.sum(axis=0)), listed(parent)
    cost = np.abs(ours[:, None] - theirs[None, :])
    best = cost[linear_sum_assignment(cost)].sum()
    assert np.abs(ours - theirs).sum() == best, "sorted lists, side by side, are an optimum"

    merged, variance = np.zeros_like(children), np.zeros(children.shape)
    ones = np.ones(children.shape)
    match_family(parent.copy(), ones[0], children.copy(), ones, merged, variance)
    assert (merged.sum(axis=1) == children.sum(axis=1)).all()
    assert listed(merged.sum(axis=0)).tolist() == sorted((ours + theirs + 1) // 2)
    assert (variance[merged > 0] == 0.5).all()


def test_estimates_are_averaged_by_the_inverse_of_their_variances():
    merged, variance = np.zeros((1, SIZES), dtype=np.int64), np.zeros((1, SIZES))
    parent, child = np.bincount([5], minlength=SIZES), np.bincount([1], minlength=SIZES)
    match_family(
        parent, np.full(SIZES, 1.0), child[None], np.full((1, SIZES), 3.0), merged, variance
    )
    assert listed(merged[0]).tolist() == [4]
    assert variance[0, 4] == pytest.approx(0.75)


def test_children_give_in_proportion_where_they_have_more_groups_than_the_parent():
    merged, variance = np.zeros((2, 3), dtype=np.int64), np.zeros((2, 3))
    children = np.array([[4, 0, 0], [2, 0, 0]])
    match_family(np.array([3, 0, 3]), np.ones(3), children, np.ones((2, 3)), merged, variance)
    assert merged.tolist() == [[2, 2, 0], [1, 1, 0]]


def test_matched_leaves_are_added_up_and_regions_keep_their_number_of_groups():
    tree = layered_tree(2, 3)
    rng = np.random.default_rng(5)
    truth = np.zeros((tree.regions, SIZES), dtype=np.int64)
    truth[tree.leaves] = rng.poisson(3, (len(tree.leaves), SIZES))
    tree.aggregate(truth)
    groups = truth.sum(axis=1)
    estimates = np.array([rng.multinomial(number, np.full(SIZES, 1 / SIZES)) for number in groups])
    values = matched_from_the_root(tree, estimates, np.ones(tree.regions))
    assert (tree.children_sums(values) == values).all()
    assert (values.sum(axis=1) == groups).all()


columns = st.lists(st.integers(-9, 20), min_size=1, max_size=6)


@settings(max_examples=60)
@given(values=columns, total=st.integers(0, 30))
def test_the_projection_on_a_sum_moves_what_stays_positive_by_one_amount(values, total):
    column, totals = np.array(values)[:, None], np.array([total])
    real = nearest_with_sums(column, totals)[:, 0]
    assert real.sum() == pytest.approx(total)
    assert (real >= 0).all()
    # Optimal if and only if no positive entry could give a little to another at a gain.
    slopes = real - np.array(values)
    for giver, taker in itertools.permutations(range(len(values)), 2):
        assert real[giver] <= 1e-9 or slopes[giver] <= slopes[taker] + 1e-9


@settings(max_examples=60)
@given(values=columns, total=st.integers(0, 30), seed=st.integers(0, 99))
def test_rounding_keeps_the_sum_and_moves_no_count_by_one_or_more(values, total, seed):
    column, totals = np.array(values)[:, None], np.array([total])
    counts = _shared_out(column, totals, np.random.default_rng(seed))
    assert counts.sum() == total
    assert (np.abs(counts - nearest_with_sums(column, totals)) < 1 - 1e-9).all()


def test_lots_decide_which_child_gets_what_is_left():
    counts = [
        _shared_out(np.zeros((4, 1), dtype=np.int64), np.array([1]), np.random.default_rng(seed))
        for seed in range(40)
    ]
    assert {int(column[:, 0].argmax()) for column in counts} == {0, 1, 2, 3}
