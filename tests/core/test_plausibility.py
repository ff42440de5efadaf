"""Measurements under the noise they state: honest ones always pass, forged ones do not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.verification.plausibility import (
    Judged,
    ResidualLaw,
    judge,
    limits,
    residuals,
)

Int = NDArray[np.int64]
SHAPES = 50


@dataclass(frozen=True)
class Shape:
    """A tree, how many sizes are measured, and the noise of each level."""

    tree: RegionTree
    sizes: int
    scales: tuple[Fraction, ...]

    def noise(self, chance: np.random.Generator, *, times: float = 1.0) -> Int:
        """Double-geometric noise; what it is added to cancels in every residual."""
        per_region = np.array([float(scale) * times for scale in self.scales])[self.tree.level]
        stop = -np.expm1(-1 / per_region)[:, None]
        shape = (self.tree.regions, self.sizes)
        return chance.geometric(stop, shape) - chance.geometric(stop, shape)

    def judge(self, measured: Int) -> list[Judged]:
        return judge(residuals(self.tree, measured, self.scales))


def grown(*children: int, ragged: bool = False) -> RegionTree:
    """A tree in which each region of level l has children[l] regions below."""
    regions, parents, level = ["r"], [None], ["r"]
    for number in children:
        below = []
        for place, region in enumerate(level):
            if ragged and place % 3 == 2:
                continue
            for child in range(number + (place % 2 if ragged else 0)):
                below.append(f"{region}.{child}")
                regions.append(below[-1])
                parents.append(region)
        level = below
    return RegionTree.from_table(regions, parents)


def shapes(number: int, seed: int) -> Iterator[Shape]:
    """Trees of one residual and of thousands, deep and flat, with little noise and with much."""
    chance = np.random.default_rng(seed)
    for _ in range(number):
        depth = int(chance.integers(1, 5))
        children = [int(chance.integers(1, 2 + 12 // depth)) for _ in range(depth)]
        tree = grown(*children, ragged=bool(chance.integers(2)))
        scales = tuple(
            Fraction(int(scale), 100)
            for scale in np.ceil(100 * 10 ** chance.uniform(-1, 3, size=tree.levels))
        )
        yield Shape(tree, int(chance.integers(1, 40)), scales)


def missed(bundles: int, *, seed: int) -> int:
    """How many honest bundles are refused."""
    chance = np.random.default_rng(seed)
    return sum(
        not all(part.plausible for part in shape.judge(shape.noise(chance)))
        for shape in shapes(SHAPES, seed)
        for _ in range(bundles // SHAPES)
    )


def test_no_honest_bundle_of_1000_is_refused() -> None:
    assert missed(1_000, seed=13) == 0


@pytest.mark.large
def test_no_honest_bundle_of_10000_is_refused() -> None:
    assert sum(missed(2_000, seed=seed) for seed in range(5)) == 0


MODERATE = Shape(grown(8, 5), 20, (Fraction(6), Fraction(12), Fraction(4)))  # 180 residuals


@pytest.mark.parametrize("times", [0.5, 0.01])
def test_less_noise_than_is_stated_is_refused(times: float) -> None:
    chance = np.random.default_rng(1)
    for _ in range(50):
        judged = MODERATE.judge(MODERATE.noise(chance, times=times))
        assert not all(part.plausible for part in judged)
        assert any(part.mean < part.lowest for part in judged)


def test_no_noise_at_all_is_refused_with_ten_residuals() -> None:
    shape = Shape(grown(5), 10, (Fraction(6), Fraction(6)))
    assert [part.number for part in shape.judge(np.zeros((6, 10), dtype=np.int64))] == [10]
    assert not shape.judge(np.zeros((6, 10), dtype=np.int64))[0].plausible


def test_more_noise_than_is_stated_is_refused() -> None:
    chance = np.random.default_rng(2)
    shape = Shape(grown(30, 6), 20, (Fraction(6), Fraction(12), Fraction(4)))
    for _ in range(20):
        judged = shape.judge(shape.noise(chance, times=2.5))
        assert any(part.mean > part.highest for part in judged)


def test_one_measurement_that_noise_cannot_give_is_refused() -> None:
    noise = MODERATE.noise(np.random.default_rng(3))
    noise[3, 7] += 3_000
    assert not all(part.plausible for part in MODERATE.judge(noise))


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_level_without_noise_does_not_hide_among_the_others(level: int) -> None:
    shape = Shape(grown(12, 2, 2), 400, tuple(map(Fraction, (40, 10, 10, 10))))
    noise = shape.noise(np.random.default_rng(4))
    assert all(part.plausible for part in shape.judge(noise))
    noise[shape.tree.level == level] = 0
    assert not all(part.plausible for part in shape.judge(noise))


@pytest.mark.parametrize("query", list(Query))
def test_true_numbers_cancel_whatever_was_measured(query: Query) -> None:
    tree = grown(3, 2, ragged=True)
    chance = np.random.default_rng(5)
    counts = np.zeros((tree.regions, 6), dtype=np.int64)
    counts[tree.leaves] = chance.integers(0, 1_000, size=(tree.leaves.size, 6))
    counts = tree.aggregate(counts)
    truth = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1] if query is Query.CUMULATIVE else counts
    scales = [Fraction(3)] * tree.levels
    assert all(part.squares == 0 for part in residuals(tree, truth, scales))


@st.composite
def trees(draw: st.DrawFn) -> RegionTree:
    regions = draw(st.integers(1, 15))
    parents = [None] + [f"r{draw(st.integers(0, i - 1))}" for i in range(1, regions)]
    return RegionTree.from_table([f"r{i}" for i in range(regions)], parents)


@given(trees(), st.integers(1, 4), st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_the_statistic_agrees_with_plain_loops(tree: RegionTree, sizes: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    measured = chance.integers(-50, 50, size=(tree.regions, sizes))
    scales = [Fraction(int(s), 7) for s in chance.integers(1, 60, size=tree.levels)]
    expected: dict[tuple[int, int], list[float]] = {}
    for region in range(tree.regions):
        children = [r for r in range(tree.regions) if tree.parent[r] == region]
        for size in range(sizes if children else 0):
            gap = int(measured[region, size]) - sum(int(measured[c, size]) for c in children)
            level = int(tree.level[region])
            assert all(tree.level[c] == level + 1 for c in children)
            spread = variance(scales[level]) + len(children) * variance(scales[level + 1])
            expected.setdefault((level, len(children)), []).append(gap**2 / spread)
    found = {(part.level, part.children): part for part in residuals(tree, measured, scales)}
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key].number == len(values)
        assert math.isclose(found[key].squares, sum(values), rel_tol=1e-9, abs_tol=1e-12)


def probabilities(scale: float) -> dict[int, float]:
    a = math.exp(-1 / scale)
    reach = math.ceil(60 * scale)
    return {v: (1 - a) / (1 + a) * a ** abs(v) for v in range(-reach, reach + 1)}


def variance(scale: Fraction) -> float:
    return sum(v * v * p for v, p in probabilities(float(scale)).items())


def convolved(law: ResidualLaw) -> dict[int, float]:
    """The law of a residual by adding up, one noise after another."""
    total = probabilities(law.parent)
    for _ in range(law.children):
        added: dict[int, float] = {}
        for (x, p), (y, q) in itertools.product(total.items(), probabilities(law.child).items()):
            added[x - y] = added.get(x - y, 0.0) + p * q
        total = added
    return total


@pytest.mark.parametrize(
    "law", [ResidualLaw(0.3, 0.5, 2), ResidualLaw(1.0, 2.0, 1), ResidualLaw(2.0, 0.7, 2)]
)
def test_moments_and_bounds_hold_for_the_law_added_up_by_hand(law: ResidualLaw) -> None:
    table = convolved(law)
    spread = sum(d * d * p for d, p in table.items())
    assert math.isclose(law.variance, spread, rel_tol=1e-9)
    squared = sum((d * d / spread) ** 2 * p for d, p in table.items())
    assert math.isclose(law.mean_square, squared, rel_tol=1e-9)
    thetas = np.array([1e-3, 0.1, 1.0, 20.0, 1e3, 1e4])
    for theta, log in zip(thetas, law.log_laplace(thetas), strict=True):
        exact = math.log(sum(math.exp(-theta * d * d / spread) * p for d, p in table.items()))
        assert exact - 1e-12 <= log <= exact + 1e-3 + 1e-3 * abs(exact)
    for chance in (0.1, 1e-3, 1e-9):
        beyond = law.furthest(math.log(chance)) * math.sqrt(spread)
        assert sum(p for d, p in table.items() if abs(d) >= beyond) <= chance


def test_limits_hold_at_the_rate_they_promise_where_that_can_be_counted() -> None:
    """A rate of 1e-9 cannot be counted; the same bounds at 5% and 1% can."""
    chance = np.random.default_rng(6)
    shape = Shape(grown(4), 10, (Fraction(3), Fraction(5)))
    law = ResidualLaw(3.0, 5.0, 4)
    means = np.array(
        [
            residuals(shape.tree, shape.noise(chance), shape.scales)[0].squares / shape.sizes
            for _ in range(10_000)
        ]
    )
    for alpha in (0.05, 0.01):
        lowest, highest = limits(((law, shape.sizes),), alpha=alpha)
        assert np.mean(means < lowest) <= alpha
        assert np.mean(means > highest) <= alpha
        assert np.mean(means < 2 * lowest) > alpha / 50, "the bound is not an empty one"


def test_extreme_scales_are_judged_without_a_warning() -> None:
    tree = grown(3)
    for scale in (Fraction(1, 10**6), Fraction(1, 50), Fraction(10**30)):
        scales = [scale, scale]
        zeros = np.zeros((4, 3), dtype=np.int64)
        [part] = judge(residuals(tree, zeros, scales))
        assert math.isfinite(part.highest)
        assert part.plausible
        ones = zeros.copy()
        ones[1, 0] = 1
        [part] = judge(residuals(tree, ones, scales))
        assert part.plausible is (scale > Fraction(1, 50))


def test_measurements_beyond_64_bits_are_not_added_up() -> None:
    with pytest.raises(OverflowError):
        residuals(grown(3), np.full((4, 1), 2**62), [Fraction(1), Fraction(1)])
