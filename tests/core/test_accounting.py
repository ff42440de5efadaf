"""The tighter figure against brute force, the optimal composition theorem and a peer."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsr_core.accounting import losses
from pgsr_core.accounting.composition import (
    SMALLEST_DELTA,
    ChargedRelease,
    MeasuredQuery,
    compose,
)
from pgsr_core.accounting.losses import (
    ROUNDING,
    STEP,
    compose_cells,
    epsilon_for,
    losses_of_a_cell,
)
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.sensitivity import Neighbours, l1_sensitivity

mpmath.mp.dps = 50
DELTA = Fraction(1, 10**9)


def figure(cells, delta=DELTA):
    return epsilon_for(compose_cells(cells, delta=delta), delta=delta)


def measured(query, neighbours, scales, *, contribution=1, size=20, from_data=False):
    """A release with noise of these scales, charged what follows from them."""
    sensitivity = l1_sensitivity(
        query,
        neighbours=neighbours,
        largest_contribution=contribution,
        largest_size=size,
        units_from_data=from_data,
    )
    return ChargedRelease(
        sum(sensitivity / scale for scale in scales),
        neighbours,
        MeasuredQuery(query, contribution, size, from_data, tuple(scales)),
    )


# --- oracles --------------------------------------------------------------------------------


def delta_of_noise(changes, decay, epsilon, *, reach=45):
    """δ(ε) of noise on cells that change by so much, from the probabilities of every table."""
    points = np.arange(-reach, reach + 1)
    here, there = np.ones(()), np.ones(())
    for change in changes:
        mass = np.exp(-decay * np.abs(points)) * np.tanh(decay / 2)
        shifted = np.exp(-decay * np.abs(points - change)) * np.tanh(decay / 2)
        here, there = np.multiply.outer(here, mass), np.multiply.outer(there, shifted)
    return float(np.maximum(here - math.exp(epsilon) * there, 0).sum())


def delta_of_cells(cells, epsilon):
    """δ(ε) with 50 digits: every combination of losses, one cell after the other."""
    found = {Fraction(0): mpmath.mpf(1)}
    for (decay, change), times in cells.items():
        a = mpmath.exp(-mpmath.mpf(decay.numerator) / decay.denominator)
        masses = {change * decay: 1 / (1 + a), -change * decay: a**change / (1 + a)}
        for j in range(1, change):
            masses[(change - 2 * j) * decay] = a**j * (1 - a) / (1 + a)
        for _ in range(times):
            longer = {}
            for (loss, mass), (more, part) in itertools.product(found.items(), masses.items()):
                longer[loss + more] = longer.get(loss + more, 0) + mass * part
            found = longer
    over = {loss - epsilon: mass for loss, mass in found.items() if loss > epsilon}
    return mpmath.fsum(
        -mass * mpmath.expm1(-mpmath.mpf(loss.numerator) / loss.denominator)
        for loss, mass in over.items()
    )


def optimal_composition(epsilon, times, i):
    """δ at (times − 2i)·ε of the worst ε-private mechanisms, Kairouz, Oh and Viswanath, Thm 3.3."""
    e = mpmath.mpf(epsilon.numerator) / epsilon.denominator
    return (
        mpmath.fsum(
            mpmath.binomial(times, k)
            * (mpmath.exp((times - k) * e) - mpmath.exp((times - 2 * i + k) * e))
            for k in range(i)
        )
        / (1 + mpmath.exp(e)) ** times
    )


# --- one level ------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [(1,), (2,), (3,), (1, 1), (2, 1), (1, 1, 1), (2, 1, 1)])
@pytest.mark.parametrize("decay", [Fraction(1), Fraction(3, 2)])
def test_the_figure_of_a_changed_table_is_that_of_the_noise_itself(changes, decay):
    cells = {}
    for change in changes:
        cells[decay, change] = cells.get((decay, change), 0) + 1
    delta = Fraction(1, 100)
    epsilon = figure(cells, delta)
    assert delta_of_noise(changes, float(decay), float(epsilon)) <= delta
    less = delta_of_noise(changes, float(decay), float(epsilon - 2 * STEP))
    assert less > delta * (1 - 2 * Fraction(ROUNDING))


@pytest.mark.parametrize("decay", [Fraction(1, 10), Fraction(2)])
@pytest.mark.parametrize("change", [1, 2, 5])
def test_the_losses_of_a_cell_are_a_distribution_under_both_of_its_data_sets(decay, change):
    found = losses_of_a_cell(decay, change=change)
    points = [float(found.lowest + place * found.gap) for place in range(len(found.masses))]
    assert points[-1] == pytest.approx(float(change * decay))
    assert found.masses.sum() == pytest.approx(1, abs=1e-15)
    assert (found.masses * np.exp(-np.array(points))).sum() == pytest.approx(1, abs=1e-14)


def test_reporting_two_steps_as_none_now_and_then_makes_two_cells_of_one():
    """The channel of the proof, in fractions: a change by two is worse than two by one."""
    a = Fraction(1, 3)
    by_two = [1 / (1 + a), a * (1 - a) / (1 + a), a**2 / (1 + a)]
    keep = 1 / (1 + a)
    for masses, wanted in (
        (by_two, [1, 2 * a, a**2]),
        (by_two[::-1], [a**2, 2 * a, 1]),
    ):
        reported = [
            masses[0] * keep,
            masses[1] + (masses[0] + masses[2]) * (1 - keep),
            masses[2] * keep,
        ]
        assert reported == [mass / (1 + a) ** 2 for mass in wanted]


# --- what changes between neighbours --------------------------------------------------------


def table_of(sizes, largest_size, query, *, from_data):
    """Counts or cumulative counts of three units, two of them in one region."""
    found = []
    for units in (sizes[:2], sizes[2:]):
        if query is Query.CUMULATIVE:
            found += [sum(size >= k for size in units) for k in range(1, largest_size + 1)]
        else:
            topped = [min(size, largest_size) for size in units]
            found += [topped.count(k) for k in range(1 if from_data else 0, largest_size + 1)]
    return found


def moved(sizes, *changes):
    found = list(sizes)
    for unit, change in changes:
        found[unit] += change
    return tuple(found)


def neighbours_of(sizes, contribution, neighbours):
    removed = [(unit, -z) for unit in range(3) for z in range(contribution + 1) if z <= sizes[unit]]
    if neighbours is Neighbours.ADD_REMOVE:
        return [moved(sizes, change) for change in removed]
    added = list(itertools.product(range(3), range(contribution + 1)))
    return [moved(sizes, *pair) for pair in itertools.product(removed, added)]


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("query", Query)
@pytest.mark.parametrize("from_data", [False, True], ids=["unit-table", "from-data"])
@pytest.mark.parametrize(("contribution", "largest_size"), [(1, 3), (2, 2), (3, 2), (2, 1)])
def test_no_pair_of_neighbours_changes_more_cells_by_more_than_stated(
    query, neighbours, from_data, contribution, largest_size
):
    asked = MeasuredQuery(query, contribution, largest_size, from_data, (Fraction(1),))
    largest = asked.largest_change(neighbours)
    stated = [change for change in (2, 1) for _ in range(largest.get(change, 0))]
    # Proved to be less than one by two and two by one.
    admitted = [stated, [1] * 4] if stated == [2, 1, 1] else [stated]
    worst = []
    for sizes in itertools.product(range(largest_size + 3), repeat=3):
        before = table_of(sizes, largest_size, query, from_data=from_data)
        for other in neighbours_of(sizes, contribution, neighbours):
            after = table_of(other, largest_size, query, from_data=from_data)
            moves = (abs(x - y) for x, y in zip(before, after, strict=True) if x != y)
            found = sorted(moves, reverse=True)
            assert any(
                len(found) <= len(bound) and all(x <= y for x, y in zip(found, bound, strict=False))
                for bound in admitted
            )
            worst = max(worst, found)
    # Where there are no three sizes, two units do not leave one for two others.
    three_sizes = largest_size >= (3 if from_data else 2)
    assert worst == stated or (stated == [2, 1, 1] and not three_sizes)


# --- composition ----------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 3), Fraction(2)])
@pytest.mark.parametrize("times", [1, 2, 7, 60])
def test_pure_mechanisms_compose_as_the_optimal_composition_theorem_says(epsilon, times):
    releases = [ChargedRelease(epsilon, Neighbours.ADD_REMOVE, None)] * times
    for i in range(1, times // 2 + 1):
        exact = optimal_composition(epsilon, times, i)
        delta = Fraction(int(exact * 10**60), 10**60)
        if not SMALLEST_DELTA <= delta < Fraction(9, 10):
            continue
        assert compose(releases, delta=delta).epsilon >= (times - 2 * i) * epsilon
        with_a_little_more = delta * (1 + 2 * Fraction(ROUNDING))
        found = compose(releases, delta=with_a_little_more).epsilon
        assert found <= (times - 2 * i) * epsilon + STEP


cell_kinds = st.tuples(
    # Such that all losses lie on one grid that is not too fine.
    st.fractions(Fraction(1, 7), 2, max_denominator=7),
    st.integers(min_value=1, max_value=3),
)


@settings(max_examples=25)
@given(
    cells=st.dictionaries(cell_kinds, st.integers(1, 4), min_size=1, max_size=3),
    exponent=st.integers(1, 25),
)
def test_the_figure_is_never_below_the_exact_one_and_next_to_it(cells, exponent):
    delta = Fraction(1, 10**exponent)
    epsilon = figure(cells, delta)
    bound = mpmath.mpf(1) / 10**exponent
    assert delta_of_cells(cells, epsilon) <= bound
    less = max(epsilon - 2 * STEP, Fraction(0))
    assert epsilon == 0 or delta_of_cells(cells, less) > bound * (1 - 2 * ROUNDING)


@settings(max_examples=15)
@given(cells=st.dictionaries(cell_kinds, st.integers(1, 4), min_size=2, max_size=3))
def test_a_grid_that_is_too_coarse_makes_the_figure_larger_never_smaller(cells):
    before = figure(cells)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses, "MOST_POINTS", 12)
        coarse = figure(cells)
    assert before <= coarse
    assert delta_of_cells(cells, coarse) <= mpmath.mpf(1) / 10**9


charges = st.lists(
    st.builds(
        measured,
        st.sampled_from(Query),
        st.sampled_from(Neighbours),
        st.lists(st.fractions(1, 40, max_denominator=7), min_size=1, max_size=3),
        contribution=st.integers(1, 4),
        size=st.integers(1, 4),
        from_data=st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=20)
@given(releases=charges)
def test_the_figure_is_never_more_than_the_plain_sum_nor_than_that_of_pure_mechanisms(releases):
    together = compose(releases, delta=DELTA)
    assert together.plain == sum(release.epsilon for release in releases)
    assert 0 <= together.epsilon <= together.plain
    ignorant = [ChargedRelease(r.epsilon, r.neighbours, None) for r in releases]
    assert together.epsilon <= compose(ignorant, delta=DELTA).epsilon + STEP


def test_a_year_of_weekly_releases_costs_half_of_the_plain_sum():
    weekly = measured(Query.CUMULATIVE, Neighbours.ADD_REMOVE, [Fraction(6)] * 3)
    together = compose([weekly] * 52, delta=DELTA)
    assert together.plain == 26
    assert together.epsilon == Fraction("13.762862")


def test_the_library_of_the_field_composes_to_the_same_figure():
    from dp_accounting.pld.privacy_loss_distribution import from_discrete_laplace_mechanism

    peer = from_discrete_laplace_mechanism(0.25, 2, value_discretization_interval=1 / 64)
    found = figure({(Fraction(1, 4), 2): 40}, Fraction(1, 10**6))
    assert float(found) == pytest.approx(
        peer.self_compose(40).get_epsilon_for_delta(1e-6), abs=1e-5
    )


# --- what is composed -----------------------------------------------------------------------


def test_releases_for_replaced_records_are_composed_for_replaced_records():
    releases = [measured(Query.COUNTS, Neighbours.REPLACE, [Fraction(8)] * 3)] * 9
    together = compose(releases, delta=DELTA)
    assert together.neighbours is Neighbours.REPLACE
    assert together.epsilon == figure({(Fraction(1, 8), 2): 27, (Fraction(1, 8), 1): 54})


def test_among_others_a_release_for_replaced_records_counts_as_what_adding_one_changes():
    replaced = measured(Query.CUMULATIVE, Neighbours.REPLACE, [Fraction(8)] * 3, contribution=5)
    added = measured(Query.COUNTS, Neighbours.ADD_REMOVE, [Fraction(4)])
    together = compose([replaced, added] * 4, delta=DELTA)
    assert together.neighbours is Neighbours.ADD_REMOVE
    assert together.epsilon == figure({(Fraction(1, 8), 1): 60, (Fraction(1, 4), 1): 8})


def test_simulations_and_nothing_cost_nothing():
    simulation = ChargedRelease(Fraction(0), Neighbours.ADD_REMOVE, None)
    assert compose([simulation], delta=DELTA).epsilon == 0
    assert compose([], delta=DELTA).epsilon == 0
    one = measured(Query.CUMULATIVE, Neighbours.REPLACE, [Fraction(1)])
    assert compose([one, simulation], delta=DELTA) == compose([one], delta=DELTA)


DESCRIPTOR = {
    "query": "cumulative",
    "neighbours": "replace",
    "largest_contribution": 3,
    "largest_size": 20,
    "units": "from-data",
    "noise": {"distribution": "double-geometric", "sensitivity": 6, "scales": ["12", "12"]},
}


def test_a_descriptor_tells_what_was_measured():
    release = ChargedRelease.from_descriptor(Fraction(1), DESCRIPTOR)
    scales = (Fraction(12), Fraction(12))
    assert release == ChargedRelease(
        Fraction(1), Neighbours.REPLACE, MeasuredQuery(Query.CUMULATIVE, 3, 20, True, scales)
    )


@pytest.mark.parametrize(
    "change",
    [
        {"query": "something else"},
        {"largest_size": None},
        {"noise": None},
        {"noise": {**DESCRIPTOR["noise"], "distribution": "gaussian"}},
        {"noise": {**DESCRIPTOR["noise"], "scales": ["12", "24"]}},
        {"noise": {**DESCRIPTOR["noise"], "scales": ["12", "0"]}},
        {"noise": {**DESCRIPTOR["noise"], "sensitivity": 1}},
    ],
    ids=str,
)
def test_of_a_descriptor_that_does_not_explain_the_charge_nothing_but_the_charge_is_used(change):
    release = ChargedRelease.from_descriptor(Fraction(1), {**DESCRIPTOR, **change})
    assert release == ChargedRelease(Fraction(1), Neighbours.REPLACE, None)


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1), Fraction(1, 10**31), Fraction(-1)])
def test_a_delta_that_means_nothing_is_refused(delta):
    with pytest.raises(ValueError, match="delta must be in"):
        compose([], delta=delta)
