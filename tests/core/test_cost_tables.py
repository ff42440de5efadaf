"""The published table algorithm against a plain dynamic program over the same domains."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers import cost_tables
from pgsr_core.solvers.cost_tables import TOTAL, TableSolution, solve_by_tables

SHAPES = {
    "a lone root": [None],
    "a chain": [None, 0, 1, 2],
    "a flat family": [None, 0, 0, 0],
    "two levels of families": [None, 0, 0, 1, 1, 2, 2, 2],
    "leaves on every level": [None, 0, 0, 0, 1, 1, 3, 6, 6],
    "a chain beside a family": [None, 0, 0, 1, 3, 2, 2],
}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


def tree_of(parents: list[int | None]) -> RegionTree:
    return RegionTree.from_table(
        [f"{node:02d}" for node in range(len(parents))],
        [None if parent is None else f"{parent:02d}" for parent in parents],
    )


def plain_optimum(
    tree: RegionTree,
    noisy: np.ndarray,
    domains: dict[tuple[int, int], range],
    groups: int,
    weights: list[int],
) -> int | None:
    """Cost of the optimum over the domains by min-plus convolution of dictionaries, or None."""

    def convolve(left: dict[int, int], right: dict[int, int]) -> dict[int, int]:
        merged: dict[int, int] = {}
        for (a, cost_a), (b, cost_b) in itertools.product(left.items(), right.items()):
            merged[a + b] = min(cost_a + cost_b, merged.get(a + b, cost_a + cost_b))
        return merged

    def table(region: int, column: int) -> dict[int, int]:
        inner: dict[int, int] | None = None
        for child in range(tree.first_child[region], tree.first_child[region + 1]):
            below = table(child, column)
            inner = below if inner is None else convolve(inner, below)
        weight, n = weights[tree.level[region]], int(noisy[region, column])
        return {
            v: weight * (v - n) ** 2 + (0 if inner is None else inner[v])
            for v in domains[region, column]
            if inner is None or v in inner
        }

    total = {0: 0}
    for column in range(noisy.shape[1]):
        total = convolve(total, table(0, column))
    return total.get(groups)


def truncated(tree: RegionTree, noisy: np.ndarray, radii: list[int]) -> dict:
    return {
        (r, s): range(max(0, n - radii[tree.level[r]]), n + radii[tree.level[r]] + 1)
        for (r, s), n in np.ndenumerate(noisy)
    }


def cost(tree: RegionTree, noisy: np.ndarray, counts: np.ndarray, weights: list[int]) -> int:
    return int((np.array(weights)[tree.level, None] * (counts - noisy) ** 2).sum())


def assert_consistent(tree: RegionTree, counts: np.ndarray, groups: int) -> None:
    assert counts.min() >= 0
    assert (tree.children_sums(counts) == counts).all()
    assert counts[0].sum() == groups


@st.composite
def instances(draw):
    tree = tree_of(draw(st.sampled_from(list(SHAPES.values()))))
    sizes = draw(st.integers(1, 3))

    def table(values):
        cells = tree.regions * sizes
        drawn = draw(st.lists(values, min_size=cells, max_size=cells))
        return np.array(drawn, dtype=np.int64).reshape(tree.regions, sizes)

    # Noise around a consistent truth, so that about half of the instances have a solution.
    truth = tree.aggregate(np.where(tree.is_leaf[:, None], table(st.integers(0, 3)), 0))
    noisy = truth + table(st.integers(-3, 3))
    groups = max(0, int(truth[0].sum()) + draw(st.integers(-2, 2)))
    per_level = {"min_size": tree.levels, "max_size": tree.levels}
    radii = draw(st.lists(st.integers(1, 5), **per_level))
    weights = draw(st.lists(st.integers(1, 4), **per_level))
    return tree, noisy, groups, radii, weights


@settings(max_examples=150, deadline=None)
@given(instances(), st.booleans())
def test_tables_find_the_optimum_over_their_domains_or_say_that_there_is_none(
    instance, leaf_tables
):
    tree, noisy, groups, radii, weights = instance
    solution = solve_by_tables(
        tree,
        noisy,
        groups=groups,
        scales=(),
        level_weights=weights,
        domain_radius=radii,
        leaf_tables=leaf_tables,
    )
    expected = plain_optimum(tree, noisy, truncated(tree, noisy, radii), groups, weights)
    if expected is None:
        assert solution.counts is None
        assert solution.infeasible
    else:
        assert solution.counts is not None
        assert solution.infeasible == ()
        assert_consistent(tree, solution.counts, groups)
        assert cost(tree, noisy, solution.counts, weights) == expected
        assert (np.abs(solution.counts - noisy).max(axis=1) <= np.array(radii)[tree.level]).all()


@shapes
def test_wide_domains_reach_the_optimum_of_the_program_without_domains(shape):
    tree = tree_of(shape)
    rng = np.random.default_rng(7)
    weights = [4, 2, 1, 1][: tree.levels]
    for groups in (0, 1, 9):
        noisy = rng.integers(-3, 5, (tree.regions, 2))
        solution = solve_by_tables(
            tree, noisy, groups=groups, scales=[2.0] * tree.levels, level_weights=weights
        )
        everything = {key: range(groups + 1) for key in np.ndindex(noisy.shape)}
        expected = plain_optimum(tree, noisy, everything, groups, weights)
        assert solution.counts is not None
        assert cost(tree, noisy, solution.counts, weights) == expected


def test_leaf_tables_cost_cells_and_change_nothing():
    tree = tree_of(SHAPES["leaves on every level"])
    noisy = np.random.default_rng(3).integers(0, 50, (tree.regions, 5))
    groups = int(noisy[0].sum())
    published, by_formula = (
        solve_by_tables(
            tree, noisy, groups=groups, scales=[3.0] * tree.levels, leaf_tables=leaf_tables
        )
        for leaf_tables in (True, False)
    )
    np.testing.assert_array_equal(published.counts, by_formula.counts)
    assert published.cells > 2 * by_formula.cells


def test_domains_have_three_times_the_variance_to_each_side():
    lone = tree_of([None])
    noisy = np.array([[1000]])

    def solve(groups: int) -> TableSolution:
        return solve_by_tables(lone, noisy, groups=groups, scales=[1.5])  # δ = 3 ⌈4.5⌉ = 15

    assert solve(1000).cells == 31
    assert [solve(groups).infeasible for groups in (984, 985, 1015, 1016)] == [
        (TOTAL,), (), (), (TOTAL,),
    ]  # fmt: skip


def test_the_node_whose_domain_misses_its_childrens_sums_is_named():
    tree = tree_of(SHAPES["two levels of families"])
    noisy = np.zeros((tree.regions, 3), dtype=np.int64)
    noisy[1, 1] = 100  # its children reach 2 each
    noisy[5, 2] = -40  # an empty domain
    solution = solve_by_tables(tree, noisy, groups=1, scales=(), domain_radius=[2, 2, 2])
    assert solution.counts is None
    assert solution.infeasible == ((1, 1), (5, 2))


def test_equal_costs_go_to_the_earlier_sibling_and_size():
    tree = tree_of(SHAPES["a flat family"])
    solution = solve_by_tables(tree, np.zeros((4, 2), dtype=np.int64), groups=3, scales=[1.0, 1.0])
    np.testing.assert_array_equal(solution.counts, [[2, 1], [1, 1], [1, 0], [0, 0]])


def test_sizes_beyond_the_memory_limit_are_built_again_with_the_same_result(monkeypatch):
    tree = tree_of(SHAPES["leaves on every level"])
    noisy = np.random.default_rng(5).integers(-2, 30, (tree.regions, 7))
    arguments = {"groups": int(noisy[0].sum()) + 3, "scales": [4.0] * tree.levels}
    kept = solve_by_tables(tree, noisy, **arguments)
    monkeypatch.setattr(cost_tables, "KEPT_CELLS", 2000)
    rebuilt = solve_by_tables(tree, noisy, **arguments)
    np.testing.assert_array_equal(kept.counts, rebuilt.counts)
    assert kept.cells == rebuilt.cells


def test_the_argument_is_not_changed():
    tree = tree_of(SHAPES["a flat family"])
    noisy = np.arange(8, dtype=np.int64).reshape(4, 2)
    noisy.setflags(write=False)
    before = noisy.copy()
    assert solve_by_tables(tree, noisy, groups=4, scales=[2.0, 2.0]).counts is not None
    np.testing.assert_array_equal(noisy, before)


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"noisy": np.zeros((3, 2), dtype=np.int64)}, "pass the table of the same tree"),
        ({"scales": [1.0]}, "one for each level"),
        ({"level_weights": [1, 0]}, "one for each level"),
    ],
)
def test_arguments_that_do_not_fit_the_tree_are_refused_with_the_remedy(changes, remedy):
    arguments = {"noisy": np.zeros((4, 2), dtype=np.int64), "scales": [1.0, 1.0], **changes}
    with pytest.raises(ValueError, match=remedy):
        solve_by_tables(tree_of(SHAPES["a flat family"]), groups=1, **arguments)
