"""What is expected of a level, kernel by kernel, against plain matrices and simulated levels."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.shrinkage.model import (
    ROUNDS,
    SIGNIFICANT,
    Level,
    Shares,
    bands,
    fit_shares,
    overdispersion,
    settle_leeway,
    shrink_shares,
)

Real = NDArray[np.float64]
Int = NDArray[np.int64]
Generator = np.random.Generator


def level_below(parents: int, children: int, shapes: Real, noise: float) -> Level:
    """The last level of a tree with some parents, each with as many children."""
    names = [f"p{i:03}" for i in range(parents)]
    below = [(f"{name}c{j:03}", name) for name in names for j in range(children)]
    tree = RegionTree.from_table(
        ["root", *names, *(name for name, _ in below)],
        [None, *["root"] * parents, *(above for _, above in below)],
    )
    return Level(
        above=1,
        start=1 + parents,
        stop=tree.regions,
        parent=tree.parent.copy(),
        shapes=shapes,
        first_child=tree.first_child.copy(),
        noise=np.full(tree.regions, noise),
        band=bands(shapes.shape[1]),
    )


def no_shares(level: Level) -> Shares:
    return Shares(*np.zeros((3, level.stop)))


def shapes_of(rng: Generator, parents: int, columns: int, most: float) -> Real:
    return -np.sort(-rng.uniform(0, most, (parents, columns)), axis=1)


def test_shares_are_regressions_on_the_parents_row() -> None:
    rng = np.random.default_rng(1)
    level = level_below(3, 4, shapes_of(rng, 3, 9, 500), noise=7.0)
    values = rng.normal(0, 99, (level.stop, 9))
    shares = no_shares(level)
    fit_shares(level, values, shares)
    for region in range(level.start, level.stop):
        shape = level.shapes[level.parent[region] - level.above]
        [slope], *_ = np.linalg.lstsq(shape[:, None], values[region], rcond=None)
        assert shares.share[region] == pytest.approx(slope)
        assert shares.doubt[region] == pytest.approx(7.0 / (shape @ shape))


def test_shares_that_noise_explains_are_drawn_together_and_others_are_not() -> None:
    rng = np.random.default_rng(2)
    level = level_below(20, 10, np.ones((20, 3)), noise=1.0)
    for spread, kept in ((0.0, (0.0, 0.3)), (0.08, (0.9, 1.0))):
        shares = no_shares(level)
        found = 0.1 + rng.normal(0, spread, level.stop) + rng.normal(0, 0.01, level.stop)
        shares.share[:], shares.doubt[:] = found, 0.01**2
        shrink_shares(level, shares)
        below = slice(level.start, level.stop)
        after = shares.share[below].reshape(20, 10)
        np.testing.assert_allclose(after.sum(axis=1), 1.0)
        assert kept[0] <= np.abs(after - 0.1).mean() / np.abs(found[below] - 0.1).mean() <= kept[1]
        assert (shares.doubt[below] <= 0.01**2).all()
        assert (after > 0).all()


def test_leeway_is_the_variance_that_a_known_sum_leaves() -> None:
    rng = np.random.default_rng(3)
    level = level_below(2, 5, np.ones((2, 1)), noise=1.0)
    shares = no_shares(level)
    for parent in range(2):
        first = level.start + 5 * parent
        share = rng.dirichlet(np.ones(5))
        shares.share[first : first + 5] = share
        settle_leeway(level, shares)
        # Child i has x_i of variance s_i²; around its share of the sum it is x_i − s_i Σ x_j.
        around = np.eye(5) - share[:, None]
        expected = np.diag(around @ np.diag(share**2) @ around.T) / share**2
        np.testing.assert_allclose(shares.leeway[first : first + 5], expected)


def test_an_only_child_has_no_leeway() -> None:
    level = level_below(3, 1, np.ones((3, 1)), noise=1.0)
    shares = Shares(np.ones(level.stop), *np.zeros((2, level.stop)))
    settle_leeway(level, shares)
    assert not shares.leeway[level.start :].any()


def plain_overdispersion(level: Level, values: Real, shares: Shares) -> Real:
    """The same moments cell by cell in arrays."""
    below = slice(level.start, level.stop)
    shape = level.shapes[level.parent[below] - level.above]
    share, noise = shares.share[below, None], level.noise[below, None]

    def steps(rows: Real) -> Real:
        return rows - np.pad(rows[:, 1:], ((0, 0), (0, 1)))

    expected = share * steps(shape)
    squared = steps(values[below] - share * shape) ** 2
    shared = np.where(np.arange(shape.shape[1]) < shape.shape[1] - 1, 2.0, 1.0) * noise
    counted, part = (1 - share) * expected, shares.leeway[below, None] * expected**2
    found = np.zeros(level.band[-1] + 1)
    for _ in range(ROUNDS):
        blur = 14.0 * noise**2 + 0.0 * part
        weight = part / (blur + 2.0 * (counted + found[level.band] * part) ** 2)
        for band in range(len(found)):
            at = level.band == band
            excess = (weight * (squared - shared - counted))[:, at].sum()
            doubt = np.sqrt((weight**2 * blur)[:, at].sum())
            whole = (weight * part)[:, at].sum()
            found[band] = max(excess - SIGNIFICANT * doubt, 0.0) / whole if whole > 0 else 0.0
    return found


@pytest.mark.parametrize("seed", range(5))
def test_overdispersion_is_that_of_plain_arrays(seed: int) -> None:
    rng = np.random.default_rng(seed)
    level = level_below(4, 6, shapes_of(rng, 4, 30, 3000), noise=20.0)
    shares = Shares(np.full(level.stop, 1 / 6), *np.zeros((2, level.stop)))
    settle_leeway(level, shares)
    values = rng.normal(0, 400, (level.stop, 30))
    np.testing.assert_allclose(
        overdispersion(level, values, shares), plain_overdispersion(level, values, shares)
    )


@pytest.mark.parametrize("true", [0.0, 0.01, 0.2])
@pytest.mark.parametrize("noise", [1.0, 400.0])
def test_overdispersion_finds_what_regions_differ_by_and_not_the_noise(
    true: float, noise: float
) -> None:
    """Each child varies by φ around an equal share; the moments say so to within a third."""
    rng = np.random.default_rng(9)
    columns = 8
    level = level_below(30, 12, np.zeros((30, columns)), noise=noise)
    mean = 400.0 * np.ones((30, 12, columns))
    counts = rng.poisson(mean * (1 + np.sqrt(true) * rng.normal(size=mean.shape)).clip(0))
    rows = np.cumsum(counts[..., ::-1], axis=-1)[..., ::-1].astype(float)
    level.shapes[:] = rows.sum(axis=1)
    values = np.zeros((level.stop, columns))
    values[level.start :] = rows.reshape(-1, columns)
    values[level.start :] += rng.laplace(0, np.sqrt(noise / 2), (360, columns))
    shares = Shares(np.full(level.stop, 1 / 12), *np.zeros((2, level.stop)))
    settle_leeway(level, shares)
    found = overdispersion(level, values, shares)
    assert (np.abs(found - true) <= true / 3 + 0.001).all(), found
