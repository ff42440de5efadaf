"""Budgets are added up exactly, refusals carry their facts, splits add up to the total."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgsr_core.budget import (
    Account,
    BudgetExceeded,
    SplitDoesNotFit,
    show,
    split_over_levels,
    total,
)

positive = st.fractions(min_value=Fraction(1, 10**6), max_value=1000, max_denominator=10**6)


def test_three_thirds_are_one_and_three_tenths_are_not_a_little_more():
    assert total([Fraction(1, 3)] * 3) == 1
    assert total([Fraction("0.1")] * 3) == Fraction("0.3")
    assert total([]) == 0


def test_a_charge_that_fits_exactly_is_taken_and_the_next_smallest_one_refused():
    account = Account("residents", Fraction(1), spent=Fraction(1, 3), reserved=Fraction(1, 3))
    account.require(Fraction(1, 3))
    with pytest.raises(BudgetExceeded):
        account.require(Fraction(1, 3) + Fraction(1, 10**30))


def test_a_refusal_says_what_remains_and_what_was_asked_for():
    account = Account("residents", Fraction(4), spent=Fraction(3), reserved=Fraction("0.75"))
    with pytest.raises(BudgetExceeded) as caught:
        account.require(Fraction(1, 3))
    refusal = caught.value
    assert (refusal.population, refusal.remaining, refusal.requested) == (
        "residents",
        Fraction("0.25"),
        Fraction(1, 3),
    )
    assert refusal.exit_code == 1
    assert "residents" in str(refusal)
    assert "0.25" in str(refusal)
    assert "1/3" in str(refusal)
    assert "Remedy:" in str(refusal)


def test_a_negative_charge_is_not_a_way_to_win_budget_back():
    with pytest.raises(BudgetExceeded):
        Account("residents", Fraction(1)).require(Fraction(-1, 2))


def test_an_overdrawn_account_refuses_everything_but_nothing():
    account = Account("residents", Fraction(1), spent=Fraction(2))
    with pytest.raises(BudgetExceeded):
        account.require(Fraction(0))


@given(epsilon=positive, levels=st.integers(1, 40))
def test_a_uniform_split_adds_up_exactly(epsilon, levels):
    parts = split_over_levels(epsilon, levels=levels, shares=None)
    assert len(parts) == levels
    assert len(set(parts)) == 1
    assert sum(parts) == epsilon


@given(epsilon=positive, weights=st.lists(st.integers(1, 1000), min_size=1, max_size=12))
def test_a_listed_split_adds_up_exactly_in_its_own_order(epsilon, weights):
    shares = [Fraction(weight, sum(weights)) for weight in weights]
    parts = split_over_levels(epsilon, levels=len(shares), shares=shares)
    assert sum(parts) == epsilon
    assert [part / epsilon for part in parts] == shares


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        (["1/2", "1/2"], "lists 2 shares but the region tree has 3 levels"),
        (["1/4", "1/4", "1/4", "1/4"], "lists 4 shares"),
        (["1/3", "1/3", "0.333"], "add up to exactly 1"),
        (["1/2", "1/2", "0"], "positive"),
        (["1", "1", "-1"], "positive"),
        ([], "lists 0 shares"),
    ],
)
def test_a_split_that_does_not_fit_is_refused(shares, expected):
    with pytest.raises(SplitDoesNotFit, match=expected) as caught:
        split_over_levels(Fraction(1), levels=3, shares=[Fraction(share) for share in shares])
    assert "Remedy:" in str(caught.value)


@given(value=positive)
def test_what_is_shown_is_exact_or_says_that_it_is_not(value):
    shown = show(value)
    exact = shown.partition(" (about ")[0]
    assert Fraction(exact) == value


def test_fractions_are_shown_for_people():
    assert show(Fraction("0.5")) == "0.5"
    assert show(Fraction(1, 3)) == "1/3 (about 0.333333)"
    assert show(Fraction(0)) == "0"
