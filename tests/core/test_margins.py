"""Margins of error: exact laws, kernels equal to slow twins, coverage, and tests with power."""

from __future__ import annotations

from dataclasses import asdict, replace
from fractions import Fraction

import numba
import numpy as np
import pytest
from scipy import stats

from benchmarks.margins import (
    LEAST_COVERAGE,
    STRATA,
    Case,
    Release,
    Tallies,
    Tally,
    Truth,
    census,
    intervals,
    naive_intervals,
    released,
    spikes,
    tally,
    truth_of,
    typical_coverage,
)
from pgsr_core import mechanisms
from pgsr_core.hierarchy import RegionTree
from pgsr_core.margins import kernels
from pgsr_core.margins.intervals import confidence_intervals
from pgsr_core.margins.noise_sums import tail_bound
from pgsr_core.margins.release import margins_of
from pgsr_core.margins.simulation import (
    largest_error,
    size_classes,
    typical_half_widths,
)
from pgsr_core.margins.tables import bounds_hold, half_widths_hold
from pgsr_core.mechanisms import Mechanism
from pgsr_core.noise.seeded import SeededSampler
from pgsr_core.postprocessing.protocol import PublicFacts, Query
from pgsr_core.postprocessing.steps import counts_from_cumulative, cumulative_from_counts
from tests.core.margin_oracles import slow_intervals, tail_by_convolution

# Not those whose solver takes minutes.
MECHANISMS = {
    name: known for name, known in mechanisms.MECHANISMS.items() if known.requires is None
}
CENSUS = truth_of("census", census(people=400_000, regions=(6, 120), largest=40))
SPIKES = spikes()
ENOUGH = 200
"""Cells of a stratum that are enough to hold its coverage to a bar."""


# The law of sums of noise


@pytest.mark.parametrize(
    "scale", [Fraction(1, 3), Fraction(1), Fraction(6), Fraction(40, 3)], ids=str
)
@pytest.mark.parametrize("terms", [1, 2, 3, 8])
@pytest.mark.parametrize("share", [Fraction(9, 100), Fraction(5, 100), Fraction(1, 400)], ids=str)
def test_tail_bounds_are_those_of_the_convolved_law(scale, terms, share):
    assert tail_bound(scale, terms, share) == tail_by_convolution(scale, terms, share)


def test_tail_bounds_grow_with_the_scale_and_with_the_root_of_the_terms():
    small, large = (tail_bound(Fraction(s), 2, Fraction(1, 20)) for s in (10**3, 10**9))
    assert large / small == pytest.approx(10**6, rel=1e-3)
    many = tail_bound(Fraction(6), 10_000, Fraction(1, 20))
    assert many == pytest.approx(stats.norm.isf(0.05) * 6 * np.sqrt(2 * 10_000), rel=5e-3)


# Intervals: the kernels and their slow twin

TREES = {
    "three levels": RegionTree.from_table(
        ["root", "a", "b", "a1", "a2", "b1"], [None, "root", "root", "a", "a", "b"]
    ),
    "ragged": RegionTree.from_table(["root", "a", "b", "a1"], [None, "root", "root", "a"]),
    "a lone root": RegionTree.from_table(["root"], [None]),
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
@pytest.mark.parametrize("query", Query)
@pytest.mark.parametrize("units_are_public", [True, False])
@pytest.mark.parametrize("largest", [1, 2, 20])
def test_intervals_are_those_of_the_slow_twin(tree, query, units_are_public, largest):
    rng = np.random.default_rng([largest, units_are_public, tree.regions])
    sizes = largest + units_are_public
    leaf = rng.poisson(40 * 0.6 ** np.arange(sizes), (tree.regions, sizes))
    truth = tree.aggregate(np.where(tree.is_leaf[:, None], leaf, 0))
    facts = facts_of(tree, truth, units_are_public, scale=Fraction(3))
    measured = (
        truth if query is Query.COUNTS else cumulative_from_counts(truth, largest_size=largest)
    )
    noisy = SeededSampler(rng).add_noise(measured, scale=Fraction(3))
    counts = np.maximum(truth + rng.integers(-5, 5, truth.shape), 0)
    found = confidence_intervals(query, facts, noisy, counts)
    assert np.array_equal(found, slow_intervals(query, facts, noisy, counts))
    assert bounds_hold(counts, found)


def facts_of(
    tree: RegionTree, truth: np.ndarray, units_are_public: bool, *, scale: Fraction
) -> PublicFacts:
    groups = truth.sum(axis=1)
    smallest = 0 if units_are_public else 1
    largest = smallest + truth.shape[1] - 1
    by_region = groups if units_are_public else None
    scales = (scale,) * tree.levels
    return PublicFacts(tree, smallest, largest, int(groups[0]), by_region, scales)


# Intervals: what they promise

# Alone in the tail, beside nothing, in a plateau, at both ends: no neighbour vouches for another.
ODD_ROW = np.zeros(80, dtype=np.int64)
ODD_ROW[[0, 1, 2, 3, 9, 10, 30, 31, 32, 50, 79]] = [400, 90, 0, 25, 3, 2, 6, 6, 6, 17, 1]
TWINS = 3_000


def coverage_by_size(
    query: Query, *, units_are_public: bool, believed: Fraction, seed: int
) -> np.ndarray:
    """(confidences × sizes): shares of many regions with the same truth whose interval holds it."""
    names = ["root", *(f"r{i:04}" for i in range(TWINS))]
    tree = RegionTree.from_table(names, [None, *["root"] * TWINS])
    truth = tree.aggregate(np.where(tree.is_leaf[:, None], ODD_ROW, 0))
    facts = facts_of(tree, truth, units_are_public, scale=Fraction(4))
    measured = truth
    if query is Query.CUMULATIVE:
        measured = cumulative_from_counts(truth, largest_size=facts.largest_size)
    sampler = SeededSampler(np.random.default_rng(seed))
    noisy = sampler.add_noise(measured, scale=facts.scales[0])
    counts = np.maximum(noisy, 0)
    if query is Query.CUMULATIVE:
        counts = np.maximum(counts_from_cumulative(noisy, facts), 0)
    told = replace(facts, scales=(believed,) * tree.levels)
    bounds = confidence_intervals(query, told, noisy, counts)
    held = (bounds[0::2, 1:] <= ODD_ROW) & (bounds[1::2, 1:] >= ODD_ROW)
    return held.mean(axis=1)


@pytest.mark.parametrize("query", Query)
@pytest.mark.parametrize("units_are_public", [True, False])
def test_every_cell_is_covered_whatever_stands_in_it_and_around_it(query, units_are_public):
    # A share of 3,000 has a standard deviation of 0.55%: four of them below the promise.
    shares = coverage_by_size(
        query, units_are_public=units_are_public, believed=Fraction(4), seed=1
    )
    assert shares[0].min() > 0.90 - 0.022
    assert shares[1].min() > 0.95 - 0.016
    wrong = coverage_by_size(query, units_are_public=units_are_public, believed=Fraction(2), seed=1)
    assert (wrong[0] < 0.85).sum() > 5, "half the scale must be noticed"
    assert wrong[1].min() < 0.90


# Intervals: coverage of whole releases, by level and by true count


def strata(
    truth: Truth, case: Case, *, releases: int, scale_told: Fraction = Fraction(1)
) -> Tallies:
    tallies: Tallies = {}
    for seed in range(releases):
        release = released(truth, case, seed=seed)
        bounds = intervals(with_scale(release, scale_told))
        tally(release, bounds, None, tallies)
    return tallies


def with_scale(release: Release, factor: Fraction) -> Release:
    scales = tuple(factor * scale for scale in release.facts.scales)
    return replace(release, facts=replace(release.facts, scales=scales))


def judged(tallies: Tallies) -> Tallies:
    """The strata that have enough cells; what is left of a level is judged together."""
    enough: Tallies = {}
    for (level, stratum), found in tallies.items():
        place = (level, stratum if found.cells >= ENOUGH else "others")
        for name, value in asdict(found).items():
            so_far = enough.setdefault(place, Tally())
            setattr(so_far, name, getattr(so_far, name) + value)
    return {place: found for place, found in enough.items() if found.cells >= ENOUGH}


@pytest.mark.parametrize(
    ("truth", "units_are_public"),
    [(CENSUS, True), (CENSUS, False), (SPIKES, False)],
    ids=["census", "census-units-from-data", "spikes-units-from-data"],
)
@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
def test_every_level_and_true_count_is_covered_in_whole_releases(
    mechanism: Mechanism, truth: Truth, units_are_public: bool
):
    tallies = strata(truth, Case(mechanism, "0.5", units_are_public), releases=5)
    enough = judged(tallies)
    leaves = truth.tree.levels
    assert {stratum for level, stratum in enough if level == leaves} >= set(STRATA)
    assert {level for level, _ in enough} == set(range(1, leaves + 1))
    for place, found in enough.items():
        assert found.held_90 / found.cells >= LEAST_COVERAGE[90], place
        assert found.held_95 / found.cells >= LEAST_COVERAGE[95], place
        assert found.width_90 <= 1.1 * found.plain, place
    zeros = enough[leaves, "0"]
    assert zeros.width_90 > 0, "a released 0 has an honest upper bound"


def test_naive_intervals_and_half_the_scale_fail_where_the_margins_pass():
    case = Case(MECHANISMS["cumulative"], "0.5", units_are_public=True)
    release = released(CENSUS, case, seed=0)
    tallies: Tallies = {}
    tally(release, intervals(release), naive_intervals(release), tallies)
    few = tallies[3, "1–3"]
    assert few.cells >= ENOUGH
    assert few.held_90 / few.cells >= LEAST_COVERAGE[90]
    assert few.naive_held / few.cells < 0.6
    half = strata(CENSUS, case, releases=3, scale_told=Fraction(1, 2))
    for stratum in ("4–20", "over 20"):
        found = half[3, stratum]
        assert found.cells >= ENOUGH
        assert found.held_90 / found.cells < LEAST_COVERAGE[90] - 0.05


# Typical errors: the simulation


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(6), Fraction(300)], ids=str)
def test_simulated_noise_is_double_geometric_at_its_scale_and_at_no_other(scale):
    noise = np.empty((40, 1_000), dtype=np.int64)
    decay = np.full(40, float(1 / scale))
    kernels.add_simulated_noise(np.zeros_like(noise), decay, np.uint64(7), noise)
    assert p_value(noise, scale) > 1e-6
    assert p_value(noise, scale * Fraction(9, 10)) < 1e-9
    assert abs(np.corrcoef(noise[:, 1:].ravel(), noise[:, :-1].ravel())[0, 1]) < 0.03


def p_value(noise: np.ndarray, scale: Fraction) -> float:
    """Chi-square against the law, in bins of about equal probability."""
    ratio = np.exp(-1 / float(scale))
    edges = np.unique([tail_bound(scale, 1, Fraction(i, 20)) for i in range(1, 10)])
    edges = np.concatenate([-edges[::-1] - 1, edges])
    above = np.where(edges >= 0, ratio ** (edges + 1.0) / (1 + ratio), 0.0)
    below = 1 - ratio ** (-edges.clip(max=0.0)) / (1 + ratio)
    beyond = np.where(edges >= 0, above, below)
    expected = -np.diff(np.concatenate([[1.0], beyond, [0.0]])) * noise.size
    places = np.searchsorted(edges, noise.ravel(), side="left")
    observed = np.bincount(places, minlength=len(expected))
    return float(stats.chisquare(observed, expected, sum_check=False).pvalue)


def test_every_error_lies_in_the_bin_whose_largest_error_bounds_it_closely():
    errors = np.concatenate([np.arange(3_000), 2 ** np.arange(11, 62), 2 ** np.arange(11, 62) - 1])
    for error in errors.tolist():
        place = kernels.error_bin(error)
        assert 0 <= place < kernels.ERROR_BINS
        assert error <= largest_error(place) <= error + error // kernels.FINE
        assert place == 0 or largest_error(place - 1) < error


@pytest.mark.parametrize("sizes", [1, 2, 64, 65, 1_000, 1_000_000])
def test_classes_of_sizes_are_single_at_first_and_few(sizes):
    classes = size_classes(sizes)
    assert len(classes) == sizes
    assert classes[: min(sizes, 64)].tolist() == list(range(min(sizes, 64)))
    assert set(np.diff(classes).tolist()) <= {0, 1}
    assert classes[-1] < 700


def test_half_widths_are_quantiles_of_errors_kept_one_by_one():
    case = Case(MECHANISMS["cumulative"], "1", units_are_public=True)
    release = released(CENSUS, case, seed=1)
    found = typical_half_widths(
        case.mechanism, release.facts, release.counts, seed="s", repetitions=4
    )
    errors = simulated_errors(release, seed="s", repetitions=4)
    leaves = errors[:, release.facts.tree.level == 2]  # 120 regions × 4 repetitions: enough alone
    for confidence, quantile in ((0, 0.90), (1, 0.95)):
        expected = np.quantile(leaves, quantile, axis=(0, 1), method="inverted_cdf")
        assert found[confidence, 2].tolist() == expected.tolist()
    assert half_widths_hold(found)


def simulated_errors(release: Release, *, seed: str, repetitions: int) -> np.ndarray:
    from pgsr_core.margins import simulation

    tree, counts = release.facts.tree, release.counts
    facts = replace(release.facts, groups_by_region=counts.sum(axis=1))
    truth = cumulative_from_counts(counts, largest_size=facts.largest_size)
    noisy = np.empty_like(truth)
    errors = []
    for repetition in range(repetitions):
        start = simulation._start(seed, repetition)
        decay = np.array([float(1 / scale) for scale in facts.scales])[tree.level]
        kernels.add_simulated_noise(truth, decay, start, noisy)
        values = noisy
        for step in release.case.mechanism.steps:
            values = step(values, facts).values
        errors.append(np.abs(values - counts))
    return np.stack(errors)


def test_typical_half_widths_hold_so_many_counts_of_each_level_and_notice_half_the_scale():
    case = Case(MECHANISMS["cumulative"], "0.5", units_are_public=True)
    release = released(CENSUS, case, seed=3)
    for within_90, within_95 in typical_coverage(release, repetitions=12, seed="s"):
        assert within_90 >= LEAST_COVERAGE[90]
        assert within_95 >= LEAST_COVERAGE[95]
    # Small sizes alone: most others are zero in truth and release, at any scale.
    small = slice(0, 7)
    errors = np.abs(release.counts - release.truth)[release.facts.tree.level == 2, small]
    for factor, enough in ((Fraction(1), True), (Fraction(1, 2), False)):
        told = with_scale(release, factor)
        half_widths = typical_half_widths(
            case.mechanism, told.facts, told.counts, seed="s", repetitions=12
        )
        within = np.mean(errors <= half_widths[0, 2, small])
        assert (within >= LEAST_COVERAGE[90]) is np.bool_(enough)


# Both together


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
def test_margins_are_a_function_of_the_measurements_whatever_the_threads(mechanism):
    release = released(CENSUS, Case(mechanism, "0.5", units_are_public=True), seed=2)
    before, found = numba.get_num_threads(), []
    try:
        for threads in {1, numba.config.NUMBA_NUM_THREADS}:
            numba.set_num_threads(threads)
            found.append(margins(release))
    finally:
        numba.set_num_threads(before)
    assert all(np.array_equal(found[0].bounds, other.bounds) for other in found)
    assert all(np.array_equal(found[0].half_widths, other.half_widths) for other in found)
    assert bounds_hold(release.counts, found[0].bounds)
    other = replace(release, measurements=release.measurements + 1)
    assert not np.array_equal(margins(other).half_widths, found[0].half_widths)


def margins(release: Release):
    return margins_of(
        release.case.mechanism,
        release.facts,
        release.measurements,
        release.counts,
        repetitions=2,
    )


def test_margins_leave_their_inputs_alone_and_tell_their_progress():
    release = released(CENSUS, Case(MECHANISMS["direct"], "1", units_are_public=False), seed=1)
    measurements, counts = release.measurements.copy(), release.counts.copy()
    told = []
    margins_of(
        release.case.mechanism,
        release.facts,
        release.measurements,
        release.counts,
        repetitions=3,
        progress=lambda done, of: told.append((done, of)),
    )
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert np.array_equal(release.measurements, measurements)
    assert np.array_equal(release.counts, counts)
