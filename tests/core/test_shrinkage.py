"""The smoother against conditioning a joint normal law, and what every estimate has to be."""

from __future__ import annotations

import math
from fractions import Fraction

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pgsr_core.evaluation.datasets import EvaluationData, from_leaves, with_public_units
from pgsr_core.postprocessing.steps import cumulative_from_counts
from pgsr_core.solvers.shrinkage import shrink
from pgsr_core.solvers.shrinkage.model import band_width, bands
from pgsr_core.solvers.shrinkage.root import cut, smooth, smooth_root
from pgsr_core.solvers.shrinkage.smoother import Scratch, smooth_row

Real = NDArray[np.float64]
Int = NDArray[np.int64]
Generator = np.random.Generator


def smoothed(seen: Real, steps: Real, noise: float, last_step: float) -> tuple[Real, Real]:
    out, left = np.empty((2, len(seen)))
    smooth_row(seen, steps, noise, last_step, Scratch(*np.empty((3, len(seen)))), out, left)
    return out, left


def conditioned(seen: Real, steps: Real, noise: float, last_step: float) -> tuple[Real, Real]:
    """E(d | sightings) and its variances: d = sums of independent steps, all jointly normal."""
    columns = len(seen)
    sums = np.triu(np.ones((columns, columns)))  # d_k is the sum of the steps from k to N
    law = sums @ np.diag(steps) @ sums.T
    sightings, spread, said = np.eye(columns), np.full(columns, noise), seen
    if last_step >= 0.0:
        # d_1 plus the last step is 0: one more sighting of d_1, with that step as its noise.
        sightings = np.vstack([sightings, np.eye(columns)[:1]])
        spread, said = np.append(spread, last_step), np.append(seen, 0.0)
    gain = law @ sightings.T @ np.linalg.inv(sightings @ law @ sightings.T + np.diag(spread))
    return gain @ said, np.diag(law - gain @ sightings @ law)


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32 - 1),
    columns=st.integers(1, 9),
    noise=st.sampled_from([0.3, 1.0, 50.0]),
    known_total=st.booleans(),
)
def test_smoothing_is_conditioning_the_joint_normal_law(
    seed: int, columns: int, noise: float, known_total: bool
) -> None:
    rng = np.random.default_rng(seed)
    seen = rng.normal(0, 20, columns)
    steps = rng.uniform(0.0, 5.0, columns) * rng.integers(0, 2, columns) * 10.0
    last_step = float(rng.uniform(0.1, 9.0)) if known_total else -1.0
    out, left = smoothed(seen, steps, noise, last_step)
    expected, variance = conditioned(seen, steps, noise, last_step)
    np.testing.assert_allclose(out, expected, atol=1e-8)
    np.testing.assert_allclose(left, variance, atol=1e-8)


def test_steps_without_variance_leave_no_deviation_and_steps_without_end_keep_it() -> None:
    seen = np.array([4.0, -2.0, 7.0])
    for last_step in (-1.0, 0.0):
        out, left = smoothed(seen, np.zeros(3), 2.0, last_step)
        assert not out.any()
        assert not left.any()
    out, left = smoothed(seen, np.full(3, 1e18), 2.0, -1.0)
    np.testing.assert_allclose(out, seen)
    np.testing.assert_allclose(left, 2.0)


def test_a_walk_seen_without_noise_is_known() -> None:
    seen = np.array([4.0, -2.0, 7.0])
    out, left = smoothed(seen, np.ones(3), 0.0, -1.0)
    np.testing.assert_allclose(out, seen)
    assert not left.any()


def conditioned_root(row: Real, groups: Real, variance: Real, noise: float) -> Real:
    """The same by conditioning: the steps, the known one to the total among them, are normal."""
    expected = np.cumsum(groups[:0:-1])[::-1]
    out, _ = conditioned(row - expected, variance[1:], noise, float(variance[0]))
    return expected + out


@pytest.mark.parametrize("columns", [0, 1, 2, 40, 700])
def test_bands_of_the_root_are_cut_until_they_are_as_narrow_as_those_below(columns: int) -> None:
    edges = np.array([0, columns + 1])
    while len(finer := cut(edges)) > len(edges):
        assert set(edges) < set(finer)
        edges = finer
    assert edges[0] == 0
    assert edges[-1] == columns + 1
    widths = np.diff(edges)
    assert (widths >= 1).all()
    assert (widths <= [band_width(int(start)) for start in edges[:-1]]).all()


def test_the_root_without_noise_is_as_measured() -> None:
    row = np.array([90.0, 90.0, 41.0, 7.0, 7.0, 0.0])
    np.testing.assert_allclose(smooth_root(row, noise=1e-9, total=100.0), row, atol=1e-6)


def test_a_root_that_drowns_in_noise_is_spread_evenly_over_scales() -> None:
    rng = np.random.default_rng(2)
    row = smooth_root(rng.laplace(0, 1e6, 15), noise=2e12, total=10.0)
    even = 1.0 / np.arange(1, 17)
    expected = 10.0 * np.cumsum(even[::-1])[::-1][1:] / even.sum()
    np.testing.assert_allclose(row, expected, atol=0.01)


def test_a_size_that_stands_out_of_the_root_is_kept() -> None:
    rng = np.random.default_rng(4)
    counts = np.full(300, 2.0)
    counts[211] = 400.0
    truth = np.cumsum(counts[::-1])[::-1]
    row = smooth_root(truth + rng.laplace(0, 5, 300), noise=50.0, total=truth[0] + 2.0)
    steps = row - np.append(row[1:], 0.0)
    assert steps[211] > 350
    assert np.abs(np.delete(steps, 211) - 2.0).mean() < 2.0


def test_the_last_smoothing_of_the_root_is_conditioning() -> None:
    rng = np.random.default_rng(6)
    groups, row = rng.uniform(1, 9, 8), rng.normal(20, 9, 7)
    variance = groups + groups**2
    np.testing.assert_allclose(
        smooth(row, groups, variance, 3.0), conditioned_root(row, groups, variance, 3.0)
    )


def places(rng: Generator, *, columns: int, leaves: int) -> EvaluationData:
    """Three levels, ragged: regions of all sizes around one common shape, and empty ones."""
    shape = 1.0 / np.arange(1, columns + 1) ** 1.5
    sizes = rng.pareto(1.0, leaves) * 30
    counts = rng.poisson(sizes[:, None] * shape / shape.sum())
    paths = [(f"s{i % 7}", f"c{i:04d}") for i in range(leaves)]
    return from_leaves("places", [*paths, ("alone",)], np.vstack([counts, counts[:1]]))


def measured(data: EvaluationData, rng: Generator, *, scale: float) -> Int:
    truth = cumulative_from_counts(data.truth, largest_size=data.largest_size)
    decay = -math.expm1(-1.0 / scale)
    noisy: Int = truth + rng.geometric(decay, truth.shape) - rng.geometric(decay, truth.shape)
    return noisy


def estimated(data: EvaluationData, noisy: Int, *, scale: float) -> Real:
    facts = data.facts((Fraction(scale),) * data.tree.levels)
    return shrink(
        data.tree,
        noisy,
        groups=facts.groups,
        groups_by_region=facts.groups_by_region,
        scales=[float(s) for s in facts.scales],
    )


@pytest.mark.parametrize("units", [True, False], ids=["unit-table", "from-data"])
@pytest.mark.parametrize("scale", [0.5, 5.0, 100.0])
@pytest.mark.parametrize("columns", [1, 2, 25])
def test_rows_of_children_add_up_to_their_parents(units: bool, scale: float, columns: int) -> None:
    rng = np.random.default_rng(columns)
    data = places(rng, columns=columns, leaves=40)
    data = with_public_units(data) if units else data
    noisy = measured(data, rng, scale=scale)
    before = noisy.copy()
    values = estimated(data, noisy, scale=scale)
    assert np.isfinite(values).all()
    np.testing.assert_array_equal(noisy, before)
    sums = np.zeros_like(values)
    np.add.at(sums, data.tree.parent[1:], values[1:])
    inner = ~data.tree.is_leaf
    np.testing.assert_allclose(sums[inner], values[inner], atol=1e-6 * scale)
    np.testing.assert_array_equal(estimated(data, noisy, scale=scale), values)


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="needs two threads")
def test_one_and_two_threads_give_one_estimate() -> None:
    rng = np.random.default_rng(3)
    data = places(rng, columns=60, leaves=300)
    noisy = measured(data, rng, scale=10.0)
    before = numba.get_num_threads()
    answers = []
    try:
        for threads in (1, 2):
            numba.set_num_threads(threads)
            answers.append(estimated(data, noisy, scale=10.0).tobytes())
    finally:
        numba.set_num_threads(before)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("units", [True, False], ids=["unit-table", "from-data"])
def test_with_hardly_any_noise_the_measurements_are_the_estimate(units: bool) -> None:
    rng = np.random.default_rng(5)
    data = places(rng, columns=12, leaves=30)
    data = with_public_units(data) if units else data
    truth = cumulative_from_counts(data.truth, largest_size=12)
    values = estimated(data, truth, scale=0.001)
    np.testing.assert_allclose(values, truth, atol=0.01)


@pytest.mark.parametrize("units", [True, False], ids=["unit-table", "from-data"])
def test_regions_that_are_alike_are_known_much_better_than_they_were_measured(units: bool) -> None:
    """What shrinking is for: the power that pooling has on leaves."""
    rng = np.random.default_rng(7)
    data = places(rng, columns=20, leaves=200)
    data = with_public_units(data) if units else data
    noisy = measured(data, rng, scale=30.0)
    truth = cumulative_from_counts(data.truth, largest_size=20)
    leaves = data.tree.leaves
    raw = np.abs(noisy - truth)[leaves].mean()
    left = np.abs(estimated(data, noisy, scale=30.0) - truth)[leaves].mean()
    assert left < raw / 3


@given(columns=st.integers(1, 400))
def test_bands_cover_every_size_once_and_are_a_tenth_of_their_start_wide(columns: int) -> None:
    band = bands(columns)
    assert len(band) == columns
    assert band[0] == 0
    assert set(np.diff(band)) <= {0, 1}
    widths = np.bincount(band)
    starts = np.concatenate([[0], np.cumsum(widths)[:-1]])
    full = slice(0, len(widths) - 1)
    assert (widths[full] == np.maximum((starts[full] + 1) // 10, 1)).all()
