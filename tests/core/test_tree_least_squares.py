"""Least squares on the tree against a dense solver, on trees of every shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.tree_least_squares import TreeFit, gather, hand_down

Int = NDArray[np.int64]
Real = NDArray[np.float64]


def least_squares(tree: RegionTree, measured: Int, *, level_variances: list[float]) -> TreeFit:
    fit = gather(tree, measured, level_variances=level_variances)
    hand_down(tree, fit)
    return fit


def random_tree(rng: np.random.Generator, regions: int) -> RegionTree:
    names = [f"r{place:03d}" for place in range(regions)]
    return RegionTree.from_table(
        names, [None, *(names[rng.integers(0, place)] for place in range(1, regions))]
    )


def leaves_below(tree: RegionTree) -> Real:
    """Regions × leaves: 1 where a leaf is, or lies below, the region."""
    design = np.zeros((tree.regions, len(tree.leaves)))
    for column, leaf in enumerate(tree.leaves):
        region = int(leaf)
        while region >= 0:
            design[region, column] = 1.0
            region = int(tree.parent[region])
    return design


def dense_fit(tree: RegionTree, measured: Int, deviation: Real) -> tuple[Real, Real]:
    """The weighted regression of all rows on the leaves, and the variance it leaves."""
    design = leaves_below(tree)
    scaled = design / deviation[:, None]
    leaves, *_ = np.linalg.lstsq(scaled, measured / deviation[:, None], rcond=None)
    covariance = design @ np.linalg.inv(scaled.T @ scaled) @ design.T
    return design @ leaves, np.diag(covariance)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    regions=st.integers(1, 16),
    columns=st.integers(1, 4),
    spread=st.sampled_from([1.0, 30.0]),
)
def test_two_passes_give_the_weighted_regression_and_its_variances(
    seed: int, regions: int, columns: int, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, regions)
    measured = rng.integers(-1000, 1000, (regions, columns))
    variances = rng.uniform(1.0, 1.0 + spread, tree.levels)
    fit = least_squares(tree, measured, level_variances=variances.tolist())
    values, left = dense_fit(tree, measured, np.sqrt(variances[tree.level]))
    np.testing.assert_allclose(fit.values, values, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(fit.variance, left, rtol=1e-9)


@pytest.mark.parametrize("exact", [0, 1, 2])
def test_a_level_without_noise_is_kept_as_measured(exact: int) -> None:
    tree = RegionTree.from_table(
        ["all", "a", "b", "a1", "a2", "b1"], [None, "all", "all", "a", "a", "b"]
    )
    measured = tree.aggregate(np.array([[0], [0], [0], [5], [7], [9]]))
    noisy = measured + 3 * (tree.level != exact)[:, None]
    variances = [0.0 if level == exact else 2.0 for level in range(3)]
    fit = least_squares(tree, noisy, level_variances=variances)
    at = tree.level == exact
    np.testing.assert_allclose(fit.values[at], measured[at])
    np.testing.assert_allclose(fit.variance[at], 0.0, atol=1e-12)


def test_without_any_noise_a_consistent_table_is_its_own_fit() -> None:
    rng = np.random.default_rng(1)
    tree = random_tree(rng, 12)
    table = np.zeros((12, 3), dtype=np.int64)
    table[tree.leaves] = rng.integers(0, 50, (len(tree.leaves), 3))
    tree.aggregate(table)
    fit = least_squares(tree, table, level_variances=[0.0] * tree.levels)
    np.testing.assert_array_equal(fit.values, table)
    assert not fit.variance.any()
