"""The root's row from its parts, against the dense covariance and against simulated families."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pgsr_core.solvers.shrinkage.model import Level, Shares, bands
from pgsr_core.solvers.shrinkage.parts import root_and_parts

Real = NDArray[np.float64]


def family(children: int, shape: Real) -> Level:
    """The children of a root whose row is expected to be of a shape."""
    return Level(
        above=0,
        start=1,
        stop=1 + children,
        parent=np.array([-1] + [0] * children),
        shapes=shape[None, :],
        first_child=np.array([1, *[1 + children] * (children + 1)]),
        noise=np.zeros(1 + children),
        band=bands(len(shape)),
    )


def shares_of(share: Real, doubt: float = 0.0) -> Shares:
    return Shares(np.append(1.0, share), np.full(1 + len(share), doubt), np.ones(1 + len(share)))


def spreads(level: Level, shares: Shares, found: Real) -> Real:
    """Variance of each child's deviation from its share, before the sum is known."""
    shape = level.shapes[0]
    groups = shape - np.append(shape[1:], 0.0)
    expected = shares.share[1:, None] * groups
    steps = expected + found[level.band] * expected**2
    steps += shares.doubt[1:, None] * groups * shape[0]
    return np.cumsum(steps[:, ::-1], axis=1)[:, ::-1]


def by_matrices(
    level: Level, own: Real, own_noise: float, seen: Real, noise: Real, shares: Shares, found: Real
) -> tuple[Real, Real]:
    """Generalised least squares, size by size, with the covariance written out."""
    share = shares.share[1:]
    row, left = np.empty((2, len(own)))
    for k, spread in enumerate(spreads(level, shares, found).T):
        tied = np.diag(spread) - np.outer(spread, spread) / spread.sum()
        covariance = np.zeros((1 + len(share), 1 + len(share)))
        covariance[0, 0] = own_noise
        covariance[1:, 1:] = tied + np.diag(noise)
        design = np.append(1.0, share)
        weights = np.linalg.solve(covariance, design)
        left[k] = 1.0 / (design @ weights)
        row[k] = left[k] * (weights @ np.append(own[k], seen[:, k]))
    return row, left


@pytest.mark.parametrize("seed", range(6))
def test_it_is_generalised_least_squares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = -np.sort(-rng.uniform(10, 900, 13))
    level = family(5, shape)
    shares = shares_of(rng.dirichlet(np.full(5, 0.5)), doubt=1e-4)
    found = rng.uniform(0, 0.2, level.band[-1] + 1)
    own, seen = rng.normal(0, 99, 13), rng.normal(0, 99, (5, 13))
    asked = own, 70.0, seen, rng.uniform(5, 50, 5), shares, found
    row, left = root_and_parts(level, *asked)
    expected, expected_left = by_matrices(level, *asked)
    np.testing.assert_allclose(row, expected)
    assert left == pytest.approx(expected_left.mean())


def test_children_that_may_have_any_part_tell_by_their_sum_alone() -> None:
    rng = np.random.default_rng(7)
    own, seen, noise = rng.normal(0, 9, 6), rng.normal(0, 9, (3, 6)), np.array([4.0, 6.0, 10.0])
    level = family(3, np.linspace(60, 10, 6))
    found = np.full(level.band[-1] + 1, 1e12)
    row, left = root_and_parts(level, own, 5.0, seen, noise, shares_of(np.full(3, 1 / 3)), found)
    np.testing.assert_allclose(row, (own / 5 + seen.sum(axis=0) / 20) / (1 / 5 + 1 / 20), rtol=1e-6)
    assert left == pytest.approx(1 / (1 / 5 + 1 / 20), rel=1e-6)


def test_a_child_with_nearly_everything_is_a_second_measurement() -> None:
    """One child has 99% of the groups, nine share the rest: half of the noise must go."""
    rng = np.random.default_rng(8)
    share = np.append(0.99, np.full(9, 0.01 / 9))
    shape = np.linspace(900, 30, 30)
    level, found = family(10, shape), np.zeros(bands(30)[-1] + 1)
    errors = []
    for _ in range(200):
        own = shape + rng.laplace(0, 20, 30)
        seen = share[:, None] * shape + rng.laplace(0, 20, (10, 30))
        noise = np.full(10, 800.0)
        row, left = root_and_parts(level, own, 800.0, seen, noise, shares_of(share), found)
        errors.append(((row - shape) ** 2).mean())
        assert left < 0.55 * 800.0
    assert np.mean(errors) == pytest.approx(400.0, rel=0.1)
