"""Isotonic regression against brute force, a generic solver and scipy."""

from __future__ import annotations

import clarabel
import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import isotonic_regression

from pgsr_core.errors import PgsrError
from pgsr_core.limits import largest_isotonic_value
from pgsr_core.solvers.isotonic import (
    IsotonicInputError,
    ValuesTooLarge,
    isotonic_integers,
    isotonic_real,
)

Int = NDArray[np.int64]
Real = NDArray[np.float64]


def integer_optimum_by_dynamic_program(row: Int, *, lower: int, upper: int) -> tuple[int, Int]:
    """Cheapest non-increasing row; among equals the pointwise largest, by trying all levels."""
    levels = np.arange(lower, upper + 1)
    best = np.zeros(len(levels), dtype=np.int64)  # cheapest suffix whose first value is ≤ level
    choices = []
    for value in row[::-1]:
        costs = (levels - value) ** 2 + best
        choice = np.zeros(len(levels), dtype=np.int64)
        for j in range(1, len(levels)):
            choice[j] = j if costs[j] <= costs[choice[j - 1]] else choice[j - 1]
        best = costs[choice]
        choices.append(choice)
    fitted, ceiling = [], len(levels) - 1
    for choice in choices[::-1]:
        ceiling = choice[ceiling]
        fitted.append(levels[ceiling])
    return int(best[-1]), np.array(fitted, dtype=np.int64)


def real_optimum_by_quadratic_program(row: Real, weight: Real, lower: float, upper: float) -> Real:
    """The variable is the change x − row, or the solver loses its digits."""
    size = len(row)
    falls = sparse.diags([-1.0, 1.0], [0, 1], shape=(size - 1, size))
    ones = sparse.identity(size)
    constraints = sparse.vstack([falls, ones, -ones]).tocsc()
    room = np.concatenate([-(falls @ row), upper - row, row - lower])
    settings_ = clarabel.DefaultSettings()
    settings_.verbose = False
    settings_.tol_gap_abs = settings_.tol_gap_rel = settings_.tol_feas = 1e-11
    solver = clarabel.DefaultSolver(
        sparse.diags(weight).tocsc(),
        np.zeros(size),
        constraints,
        room,
        [clarabel.NonnegativeConeT(len(room))],
        settings_,
    )
    return row + np.array(solver.solve().x)


def noisy_cumulative(rows: int, columns: int, *, scale: float, seed: int = 0) -> tuple[Int, Int]:
    rng = np.random.default_rng(seed)
    groups = (rng.pareto(1.0, rows) * 300 + 5).astype(np.int64)
    truth = np.floor(groups[:, None] * np.arange(1.0, columns + 1) ** -2.0).astype(np.int64)
    quiet = 1 - np.exp(-1 / scale)
    noise = rng.geometric(quiet, truth.shape) - rng.geometric(quiet, truth.shape)
    return truth + noise, groups


@settings(max_examples=150, deadline=None)  # compiles on first use
@given(
    arrays.arrays(
        np.int64, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=st.integers(-6, 9)
    ),
    st.integers(-3, 2),
    st.integers(0, 6),
)
def test_the_integer_fit_is_the_bounded_optimum(noisy: Int, lower: int, room: int) -> None:
    fitted = isotonic_integers(noisy, upper=np.full(len(noisy), lower + room), lower=lower)
    for row, answer in zip(noisy, fitted, strict=True):
        cost, expected = integer_optimum_by_dynamic_program(row, lower=lower, upper=lower + room)
        assert ((answer - row) ** 2).sum() == cost
        np.testing.assert_array_equal(answer, expected)


@pytest.mark.parametrize("scale", [3.0, 30.0, 300.0])
def test_the_integer_fit_is_scipys_rounded_and_clipped(scale: float) -> None:
    noisy, groups = noisy_cumulative(60, 257, scale=scale)
    fitted = isotonic_integers(noisy, upper=groups)
    for row, most, answer in zip(noisy, groups, fitted, strict=True):
        level = isotonic_regression(row, increasing=False).x
        # Means of up to 257 integers are ½ or at least 1/514 away from it: the nudge only mends
        # scipy's own rounding errors.
        np.testing.assert_array_equal(answer, np.clip(np.floor(level + 0.5 + 1e-6), 0, most))


def test_every_region_keeps_its_own_upper_bound() -> None:
    noisy = np.full((3, 4), 10)
    fitted = isotonic_integers(noisy, upper=np.array([0, 7, 20]))
    assert fitted[:, 0].tolist() == [0, 7, 10]


def test_means_that_end_in_a_half_are_rounded_up() -> None:
    noisy = np.array([[1, 2], [-2, -1], [0, 1]])
    fitted = isotonic_integers(noisy, upper=np.full(3, 9), lower=-9)
    assert fitted.tolist() == [[2, 2], [-1, -1], [1, 1]]


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 1000])
def test_the_largest_values_are_fitted_without_overflow(columns: int) -> None:
    limit = largest_isotonic_value(columns)
    rising = np.full(columns, limit)
    rising[: columns // 2] = -limit
    noisy = np.stack([rising, rising[::-1], np.full(columns, limit), np.full(columns, -limit)])
    fitted = isotonic_integers(noisy, upper=np.full(4, 2**62), lower=-limit)
    half = columns // 2
    total, by = -limit * half + limit * (columns - half), columns
    assert fitted[0].tolist() == [(2 * total + by) // (2 * by)] * columns
    np.testing.assert_array_equal(fitted[1:], noisy[1:])


@pytest.mark.parametrize("extreme", [1, -1])
def test_values_that_could_overflow_are_refused(extreme: int) -> None:
    noisy = np.zeros((40, 1000), dtype=np.int64)
    noisy[39, 500] = extreme * (largest_isotonic_value(1000) + 1)
    with pytest.raises(ValuesTooLarge, match="Remedy") as caught:
        isotonic_integers(noisy, upper=np.full(40, 5))
    assert isinstance(caught.value, PgsrError)
    with pytest.raises(ValuesTooLarge):
        isotonic_integers(np.full((1, 9), np.iinfo(np.int64).min), upper=np.full(1, 5))


def test_the_input_may_be_frozen_or_strided_and_is_never_changed() -> None:
    noisy, groups = noisy_cumulative(8, 12, scale=3)
    before = noisy.copy()
    fitted = isotonic_integers(noisy, upper=groups)
    noisy.setflags(write=False)
    np.testing.assert_array_equal(isotonic_integers(noisy, upper=groups), fitted)
    np.testing.assert_array_equal(isotonic_integers(np.asfortranarray(noisy), upper=groups), fitted)
    np.testing.assert_array_equal(noisy, before)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_empty_tables_stay_empty(shape: tuple[int, int]) -> None:
    upper = np.ones(shape[0], dtype=np.int64)
    assert isotonic_integers(np.zeros(shape, dtype=np.int64), upper=upper).shape == shape
    assert isotonic_real(np.zeros(shape), upper=1.0).shape == shape


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="needs two threads")
def test_one_and_two_threads_give_identical_fits() -> None:
    noisy, groups = noisy_cumulative(300, 100, scale=30)
    before = numba.get_num_threads()
    try:
        fits = []
        for threads in (1, 2):
            numba.set_num_threads(threads)
            fits.append(isotonic_integers(noisy, upper=groups).tobytes())
            fits.append(isotonic_real(noisy.astype(float), upper=groups).tobytes())
    finally:
        numba.set_num_threads(before)
    assert fits[:2] == fits[2:]


@pytest.mark.parametrize("seed", range(20))
def test_the_real_fit_is_the_bounded_weighted_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 30))
    values = rng.normal(0, 10, (3, size)) + np.linspace(8, -8, size)
    weights = rng.uniform(0.1, 5, (3, size))
    upper = rng.uniform(0, 9, 3)
    fitted = isotonic_real(values, upper=upper, weights=weights)
    for r in range(3):
        expected = real_optimum_by_quadratic_program(values[r], weights[r], 0.0, upper[r])
        np.testing.assert_allclose(fitted[r], expected, atol=1e-5)
        assert (weights[r] * (fitted[r] - values[r]) ** 2).sum() == pytest.approx(
            (weights[r] * (expected - values[r]) ** 2).sum(), rel=1e-9
        )


@settings(max_examples=60, deadline=None)
@given(
    arrays.arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e9, 1e9)),
    st.integers(0, 2**32 - 1),
)
def test_the_unbounded_real_fit_is_scipys(row: Real, seed: int) -> None:
    weights = np.random.default_rng(seed).uniform(0.5, 2, len(row))
    fitted = isotonic_real(row[None], upper=np.inf, lower=-np.inf, weights=weights)[0]
    expected = isotonic_regression(row, weights=weights, increasing=False).x
    np.testing.assert_allclose(fitted, expected, rtol=1e-9, atol=1e-6)
    assert (np.diff(fitted) <= 1e-6).all()


def test_weights_may_be_given_once_for_each_column() -> None:
    values = np.array([[0.0, 3.0], [0.0, 6.0]])
    by_column = isotonic_real(values, upper=9.0, weights=np.array([1.0, 2.0]))
    by_cell = isotonic_real(values, upper=9.0, weights=np.array([[1.0, 2.0], [1.0, 2.0]]))
    np.testing.assert_array_equal(by_column, by_cell)
    np.testing.assert_allclose(by_column, [[2.0, 2.0], [4.0, 4.0]])


@pytest.mark.parametrize(
    "arguments",
    [
        {"values": np.array([[np.nan]])},
        {"values": np.array([[np.inf]])},
        {"values": np.zeros(3)},
        {"weights": np.array([0.0, 1.0])},
        {"weights": np.array([1.0, np.nan])},
        {"weights": np.ones(3)},
        {"upper": -1.0},
        {"upper": np.nan},
    ],
)
def test_what_is_no_regression_is_refused_with_a_remedy(arguments: dict[str, object]) -> None:
    with pytest.raises(IsotonicInputError, match="Remedy"):
        isotonic_real(**{"values": np.zeros((2, 2)), "upper": 1.0, **arguments})  # type: ignore[arg-type]


def test_a_table_of_fractions_is_no_table_of_integers() -> None:
    with pytest.raises(IsotonicInputError, match="int64"):
        isotonic_integers(np.array([[0.5]]), upper=np.array([1]))  # type: ignore[arg-type]
