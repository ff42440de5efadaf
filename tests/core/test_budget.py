"""Budgets are added up exactly, refusals carry their facts, splits add up to the total."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pgsr_core.budget import (
    MOST_OPTIMISED_LEVELS,
    Account,
    BudgetExceeded,
    SplitDoesNotFit,
    balanced_shares,
    optimised_shares,
    show,
    split_over_levels,
    total,
)
from pgsr_core.scales import LEAST_POOLED_SCALE

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


# --- optimised splits -----------------------------------------------------------------------

LEVELS = st.lists(
    st.tuples(
        st.integers(1, 10**12), st.integers(1, 10**9).map(lambda weight: Fraction(weight, 10**6))
    ),
    min_size=1,
    max_size=12,
)


def objective(masses, shares):
    """Σ weight · cells · scale, up to the constant Δ/ε."""
    return sum(mass / share for mass, share in zip(masses, shares, strict=True))


def lowest_objective(masses):
    """(Σ √m)², the bound of Cauchy and Schwarz, to forty digits."""
    with localcontext() as context:
        context.prec = 40
        roots = (Decimal(mass.numerator) / Decimal(mass.denominator) for mass in masses)
        return Fraction(sum(root.sqrt() for root in roots) ** 2)


@given(levels=LEVELS)
@example(levels=[(1, Fraction(1, 10**6)), (10**12, Fraction(10**6))])
@example(levels=[(7, Fraction(1))] * 12)
def test_an_optimised_split_is_exact_and_loses_less_than_a_thousandth_to_rounding(levels):
    cells, weights = zip(*levels, strict=True)
    shares = optimised_shares(cells, weights=weights)
    assert sum(shares) == 1
    assert min(shares) > 0
    masses = [count * weight for count, weight in levels]
    assert objective(masses, shares) < lowest_objective(masses) * Fraction(1001, 1000)


@given(levels=LEVELS, shifts=st.lists(st.integers(50, 200), min_size=12, max_size=12))
@settings(max_examples=50)
def test_no_perturbed_split_is_better_than_an_optimised_one_but_for_rounding(levels, shifts):
    cells, weights = zip(*levels, strict=True)
    shares = optimised_shares(cells, weights=weights)
    other = [share * shift for share, shift in zip(shares, shifts, strict=False)]
    masses = [count * weight for count, weight in levels]
    found = objective(masses, [part / sum(other) for part in other])
    assert objective(masses, shares) < found * Fraction(1001, 1000)


@pytest.mark.parametrize(
    ("cells", "weights"),
    [([20, 1_040, 62_860], [1, 1, 1]), ([20, 20, 20], [1, 5, 9]), ([1, 10**6, 4], [100, 1, 3])],
)
def test_no_split_of_a_grid_is_better_than_an_optimised_one_but_for_rounding(cells, weights):
    masses = [count * weight for count, weight in zip(cells, weights, strict=True)]
    shares = optimised_shares(cells, weights=[Fraction(weight) for weight in weights])
    steps = 150
    best = min(
        objective(masses, [first / steps, second / steps, 1 - (first + second) / steps])
        for first, second in itertools.product(range(1, steps), repeat=2)
        if first + second < steps
    )
    assert float(objective(masses, shares)) < best * 1.001


def test_epsilon_goes_to_the_levels_by_the_root_of_weight_times_cells():
    assert optimised_shares([1, 4, 9]) == tuple(
        Fraction(share) for share in ("0.1667", "0.3333", "0.5")
    )
    assert optimised_shares([100, 100], weights=[Fraction(9), Fraction(1)]) == (
        Fraction(3, 4),
        Fraction(1, 4),
    )
    assert optimised_shares([5]) == (1,)
    tiny = optimised_shares([1, 10**12])
    assert tiny == (Fraction("0.000001"), Fraction("0.999999"))


def exact_expected_error(masses, epsilons):
    """Σ weight · cells · E|X| for Δ = 1: E|X| = 1/sinh(ε), not just the scale 1/ε."""
    return sum(mass / math.sinh(part) for mass, part in zip(masses, epsilons, strict=True))


def exact_optimum(masses, epsilon):
    """The minimum of the above: m cosh(x)/sinh²(x) = μ is solved for x, then μ for Σ x = ε."""

    def parts(mu):
        ratios = [mu / mass for mass in masses]
        return [math.acosh((1 + math.sqrt(1 + 4 * y * y)) / (2 * y)) for y in ratios]

    low, high = 1e-30, 1e30
    for _ in range(300):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if sum(parts(middle)) > epsilon else (low, middle)
    return exact_expected_error(masses, parts(low))


@pytest.mark.parametrize("cells", [[20, 1_040, 62_860], [7, 28, 77, 231], [1, 100], [5, 5, 5]])
@pytest.mark.parametrize(("epsilon", "loss"), [(0.1, 1e-4), (1, 5e-3), (2, 6e-2)])
def test_up_to_epsilon_two_the_scale_stands_for_the_expected_error_well_enough(
    cells, epsilon, loss
):
    shares = optimised_shares(cells)
    found = exact_expected_error(cells, [epsilon * float(share) for share in shares])
    least = exact_optimum(cells, epsilon)
    assert least * (1 - 1e-9) <= found <= least * (1 + loss)


@pytest.mark.parametrize("weights", [["1"], ["1", "1", "1"], ["1", "0"], ["1", "-1"]])
def test_weights_that_do_not_fit_the_levels_are_refused(weights):
    with pytest.raises(SplitDoesNotFit, match="list 2 positive weights"):
        optimised_shares([3, 4], weights=[Fraction(weight) for weight in weights])


def test_a_tree_too_deep_for_few_digits_is_refused_and_the_deepest_is_not():
    shares = optimised_shares([3, 4] * (MOST_OPTIMISED_LEVELS // 2))
    assert sum(shares) == 1
    assert min(shares) > 0
    with pytest.raises(SplitDoesNotFit, match="uniform"):
        optimised_shares([1] * (MOST_OPTIMISED_LEVELS + 1))


# --- for people -----------------------------------------------------------------------------


@given(value=positive)
def test_what_is_shown_is_exact_or_says_that_it_is_not(value):
    shown = show(value)
    exact = shown.partition(" (about ")[0]
    assert Fraction(exact) == value


def test_fractions_are_shown_for_people():
    assert show(Fraction("0.5")) == "0.5"
    assert show(Fraction(1, 3)) == "1/3 (about 0.333333)"
    assert show(Fraction(0)) == "0"


# --- the balanced split ---------------------------------------------------------------------


@given(levels=st.integers(1, 60))
def test_a_balanced_split_is_exact_and_takes_from_the_leaves_alone(levels):
    shares = balanced_shares(levels, epsilon=Fraction(1, 2), sensitivity=1)
    assert sum(shares) == 1
    assert len(shares) == levels
    above, leaves = set(shares[:-1]), shares[-1]
    assert len(above) <= 1
    assert all(
        leaves / share == max(1 - Fraction(levels - 1, 30), Fraction(1, 2)) for share in above
    )


def test_a_balanced_split_of_three_levels():
    noisy = {"epsilon": Fraction(1), "sensitivity": 1}
    assert balanced_shares(3, **noisy) == (Fraction(15, 44), Fraction(15, 44), Fraction(14, 44))
    assert balanced_shares(1, **noisy) == (1,)


def test_leaves_give_nothing_away_where_there_is_too_little_noise_to_pool_regions():
    least = 3 / LEAST_POOLED_SCALE
    for sensitivity in (1, 2):
        most_noise = balanced_shares(3, epsilon=sensitivity * least, sensitivity=sensitivity)
        assert len(set(most_noise)) == 2
        less = sensitivity * (least + Fraction(1, 1000))
        assert balanced_shares(3, epsilon=less, sensitivity=sensitivity) == (Fraction(1, 3),) * 3
