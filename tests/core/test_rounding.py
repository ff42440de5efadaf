"""Controlled rounding: hard invariants on any input, and the optimum it claims, by an LP."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.projection import ProjectionInputError, project, round_consistently
from pgsr_core.solvers.projection.rounding import COUNTS

Int = NDArray[np.int64]
Real = NDArray[np.float64]


def tree_of(parents: list[int]) -> RegionTree:
    """Region i + 1 is a child of region parents[i]."""
    names = [f"r{i:04d}" for i in range(len(parents) + 1)]
    return RegionTree.from_table(names, [None, *(names[p] for p in parents)])


def random_tree(rng: np.random.Generator) -> RegionTree:
    """Ragged, deep, chain or star, by how far back a parent may lie."""
    reach = int(rng.choice([1, 2, 4, 100]))
    regions = int(rng.integers(1, 15))
    parents = [int(rng.integers(max(0, i + 1 - reach), i + 1)) for i in range(regions)]
    return tree_of([0] * regions if rng.random() < 0.2 else parents)


def random_totals(tree: RegionTree, rng: np.random.Generator) -> Int:
    totals = np.zeros(tree.regions, dtype=np.int64)
    totals[tree.leaves] = rng.integers(0, 12, len(tree.leaves))
    return tree.aggregate(totals)


def assert_exact(
    tree: RegionTree, rounded: Int, *, groups: int, groups_by_region: Int | None
) -> None:
    np.testing.assert_array_equal(tree.children_sums(rounded), rounded)
    assert (np.diff(rounded, axis=1) <= 0).all()
    assert (rounded >= 0).all()
    if groups_by_region is None:
        assert rounded[0, 0] == groups
    else:
        assert (rounded[:, 0] <= groups_by_region).all()


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([0.3, 3.0, 1e6]))
def test_any_table_gives_exact_integers(seed: int, public: bool, spread: float) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng)
    totals = random_totals(tree, rng)
    groups = int(totals[0])
    by_region = totals if public else None
    values = totals[:, None] * rng.random(int(rng.integers(1, 7)))
    values = values + rng.normal(0, spread, values.shape)
    rounded = round_consistently(tree, values, groups=groups, groups_by_region=by_region)
    assert_exact(tree, rounded, groups=groups, groups_by_region=by_region)


def objective(off: Real) -> Real:
    """What a table costs whose cumulative counts are off by so much."""
    return off**2 + COUNTS * (off - np.append(off[:, 1:], np.zeros((len(off), 1)), axis=1)) ** 2


def claimed_optimum_by_linear_program(
    tree: RegionTree, values: Real, rounded: Int, upper: Int
) -> float:
    """Least objective of all families' columns, each given the parent and the column after it.

    One variable in [0, 1] for each unit between a child's bounds, at its marginal cost: the
    costs of a child's units rise and each column has one equation, so the LP is the integer
    program.
    """
    costs: list[float] = []
    equation: list[int] = []
    right: list[float] = []
    constant = 0.0
    columns = values.shape[1]
    for region in np.flatnonzero(~tree.is_leaf):
        family = range(tree.first_child[region], tree.first_child[region + 1])
        for k in range(columns):
            low = rounded[family, k + 1] if k + 1 < columns else np.zeros(len(family), dtype=int)
            for child, least in zip(family, low, strict=True):
                choices = np.arange(least, min(upper[child], rounded[region, k]) + 1)
                off = np.zeros((len(choices), 2))
                off[:, 0] = choices - values[child, k]
                off[:, 1] = least - values[child, k + 1] if k + 1 < columns else 0.0
                cell = objective(off)[:, 0]
                costs += np.diff(cell).tolist()
                equation += [len(right)] * (len(cell) - 1)
                constant += cell[0]
            right.append(float(rounded[region, k] - low.sum()))
    if not costs:
        return constant
    matrix = sparse.csr_matrix(
        (np.ones(len(costs)), (equation, range(len(costs)))), shape=(len(right), len(costs))
    )
    solution = linprog(costs, A_eq=matrix, b_eq=right, bounds=(0, 1), method="highs")
    assert solution.status == 0
    return constant + float(solution.fun)


@pytest.mark.parametrize("public", [True, False], ids=["public-totals", "from-data"])
@pytest.mark.parametrize("spread", [0.5, 4.0])
def test_every_column_of_every_family_is_optimal_given_the_next(
    public: bool, spread: float
) -> None:
    for seed in range(100):
        rng = np.random.default_rng(seed)
        tree = random_tree(rng)
        totals = random_totals(tree, rng)
        upper = totals if public else np.full(tree.regions, totals[0])
        shape = tree.regions, int(rng.integers(1, 6))
        values = np.sort(totals[:, None] * rng.random(shape))[:, ::-1] + rng.normal(
            0, spread, shape
        )
        rounded = round_consistently(
            tree, values, groups=int(totals[0]), groups_by_region=totals if public else None
        )
        cost = float(objective(rounded - values)[1:].sum())
        assert cost == pytest.approx(
            claimed_optimum_by_linear_program(tree, values, rounded, upper), abs=1e-6
        )


def test_the_root_is_the_closest_row_of_integers() -> None:
    tree = tree_of([])
    for seed in range(50):
        rng = np.random.default_rng(seed)
        groups = int(rng.integers(0, 5))
        values = rng.normal(2, 2, (1, 3))
        rows = [
            np.array(row)
            for row in itertools.product(range(groups + 1), repeat=3)
            if row[0] >= row[1] >= row[2]
        ]
        for totals in (np.array([groups]), None):
            rounded = round_consistently(tree, values, groups=groups, groups_by_region=totals)[0]
            best = min(
                ((row - values[0]) ** 2).sum()
                for row in rows
                if totals is not None or row[0] == groups
            )
            assert ((rounded - values[0]) ** 2).sum() == pytest.approx(best)


def test_children_that_no_floor_or_ceiling_can_fit_are_still_rounded() -> None:
    tree = tree_of([0, 0])
    values = np.array([[2.0, 2.0], [2.0, 1.0], [0.75, 0.5]])
    totals = np.array([4, 2, 2])
    rounded = round_consistently(tree, values, groups=4, groups_by_region=totals)
    assert rounded[0].tolist() == [2, 2]
    assert_exact(tree, rounded, groups=4, groups_by_region=totals)


@pytest.mark.parametrize("public", [True, False])
def test_a_table_of_fitting_integers_is_left_as_it_is(public: bool) -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        tree = random_tree(rng)
        totals = random_totals(tree, rng)
        table = np.zeros((tree.regions, 4), dtype=np.int64)
        for leaf in tree.leaves:
            table[leaf] = np.sort(rng.integers(0, totals[leaf] + 1, 4))[::-1]
            table[leaf, 0] = totals[leaf] if not public else table[leaf, 0]
        tree.aggregate(table)
        rounded = round_consistently(
            tree,
            table.astype(float),
            groups=int(totals[0]),
            groups_by_region=totals if public else None,
        )
        np.testing.assert_array_equal(rounded, table)


def realistic(rng: np.random.Generator) -> tuple[RegionTree, Real, Int]:
    tree = tree_of([0] * 5 + [1 + i % 5 for i in range(150)])
    totals = np.zeros(tree.regions, dtype=np.int64)
    totals[tree.leaves] = rng.pareto(1.2, len(tree.leaves)) * 40 + 3
    tree.aggregate(totals)
    truth = np.zeros((tree.regions, 50), dtype=np.int64)
    truth[tree.leaves] = totals[tree.leaves, None] * np.arange(1.0, 51) ** -2.0
    tree.aggregate(truth)
    noisy = truth + np.rint(rng.laplace(0, 6, truth.shape)).astype(np.int64)
    values = project(tree, noisy, groups=int(totals[0]), groups_by_region=totals).values
    return tree, values, totals


def test_projected_tables_move_by_little_more_than_plain_rounding_would() -> None:
    tree, values, totals = realistic(np.random.default_rng(0))
    rounded = round_consistently(tree, values, groups=int(totals[0]), groups_by_region=totals)
    moved = np.abs(rounded - values)
    assert moved[0].max() <= 0.5
    assert moved.max() < 2
    plain = ((np.rint(values) - values) ** 2).sum()
    assert plain <= (moved**2).sum() <= 2 * plain


def test_sizes_are_not_rounded_each_its_own_way() -> None:
    """Of children that are equally near, the one that was rounded up at k + 1 is at k as well."""
    tree = tree_of([0] * 10)
    measured = np.zeros((11, 40))
    measured[1:] = np.arange(1000, 200, -20)
    measured[0] = 10 * measured[1] + 1
    # Every cumulative count of the root is one more than its children have.
    values = measured + np.where(np.arange(11) == 0, 0.0, 0.1)[:, None]
    totals = np.array([10_010] + [1_001] * 10)
    rounded = round_consistently(tree, values, groups=10_010, groups_by_region=totals)
    off = np.diff(rounded[1:], axis=1) - np.diff(measured[1:], axis=1)
    assert not off.any()


def test_equal_children_share_the_remainders() -> None:
    """Ties are broken by a hash of child and size, not by taking the first."""
    tree = tree_of([0] * 10)
    winners = set()
    for extra in range(40):
        values = np.full((11, 1 + extra), 0.5)
        values[0] = 5.0
        rounded = round_consistently(tree, values, groups=5, groups_by_region=None)
        winners |= set(np.flatnonzero(rounded[1:, -1]).tolist())
    assert winners == set(range(10))


def test_extreme_targets_are_rounded_without_overflow() -> None:
    tree = tree_of([0, 0, 1, 1])
    values = np.array([[2.0**50], [2.0**50], [-(2.0**50)], [2.0**50], [-(2.0**50)]])
    rounded = round_consistently(tree, values, groups=2**50, groups_by_region=None)
    assert_exact(tree, rounded, groups=2**50, groups_by_region=None)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**51])
def test_numbers_that_have_no_nearest_integer_are_refused(bad: float) -> None:
    values = np.zeros((3, 2))
    values[2, 1] = bad
    with pytest.raises(ProjectionInputError, match="Remedy"):
        round_consistently(tree_of([0, 0]), values, groups=3, groups_by_region=None)
