from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.cpwl import (
    CpwlInputError,
    ValuesTooLarge,
    certify,
    relaxation,
    solve,
    solver,
)
from tests.core.cpwl_oracles import (
    brute_force,
    is_feasible,
    layered_tree,
    linear_program,
    noisy_table,
    objective,
    random_tree,
)

LONE = RegionTree.from_table(["r"], [None])
RAGGED = RegionTree.from_table(
    ["r", "a", "b", "c", "ba", "bb", "bc", "bba"], [None, "r", "r", "r", "b", "b", "b", "bb"]
)


def assert_optimal(tree, noisy, groups, weights=None):
    solution = solve(tree, noisy, groups=groups, level_weights=weights)
    assert is_feasible(tree, solution.counts, groups)
    proof = certify(tree, noisy, solution.counts, groups=groups, level_weights=weights)
    assert proof.feasible
    assert proof.optimal
    return solution


@pytest.mark.parametrize(
    "tree",
    [LONE, RAGGED, layered_tree(3), layered_tree(1, 1, 2), layered_tree(2, 2)],
    ids=["lone root", "ragged", "flat", "chain", "even"],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_tiny_tree_gets_the_objective_of_brute_force(tree, weighted):
    rng = np.random.default_rng(tree.regions)
    for groups in (0, 1, 3):
        sizes = 2 if len(tree.leaves) > 2 else 3
        noisy = rng.integers(-3, 5, (tree.regions, sizes))
        weights = rng.integers(1, 6, tree.levels).tolist() if weighted else [1] * tree.levels
        solution = solve(tree, noisy, groups=groups, level_weights=weights)
        assert is_feasible(tree, solution.counts, groups)
        best = brute_force(tree, noisy, groups, weights)
        assert objective(tree, noisy, solution.counts, weights) == best


def test_random_ragged_and_deep_trees_get_the_objective_of_a_linear_program():
    rng = np.random.default_rng(20)
    for _ in range(200):
        tree = random_tree(rng, int(rng.integers(1, 14)), reach=int(rng.integers(1, 14)))
        noisy = rng.integers(-6, 9, (tree.regions, int(rng.integers(1, 5))))
        weights = rng.integers(1, 20, tree.levels).tolist()
        groups = int(rng.integers(1, 16))
        solution = solve(tree, noisy, groups=groups, level_weights=weights)
        assert is_feasible(tree, solution.counts, groups)
        found = objective(tree, noisy, solution.counts, weights)
        assert found == linear_program(tree, noisy, groups, weights)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_table_on_any_tree_is_solved_to_a_certified_optimum(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    tree = random_tree(
        rng, data.draw(st.integers(1, 60)), reach=data.draw(st.sampled_from([1, 3, 60]))
    )
    magnitude = 2 ** data.draw(st.integers(0, 40))
    sizes = data.draw(st.sampled_from([1, 2, 7, 65, 130]))
    noisy = rng.integers(-magnitude, magnitude + 1, (tree.regions, sizes))
    weights = rng.integers(1, 1 + data.draw(st.sampled_from([1, 9, 1000])), tree.levels).tolist()
    assert_optimal(tree, noisy, data.draw(st.integers(0, 3 * magnitude)), weights)


@pytest.mark.parametrize("scale", [1.0, 10.0, 300.0])
def test_a_realistic_table_is_solved_to_a_certified_optimum_with_few_repairs(scale):
    rng = np.random.default_rng(4)
    tree = layered_tree(12, 25)
    noisy, groups = noisy_table(rng, tree, 150, groups=100_000, scale=scale)
    solution = assert_optimal(tree, noisy, groups)
    assert solution.repairs < 50
    assert not solution.rescaled


@pytest.mark.parametrize("tree", [LONE, RAGGED, layered_tree(1, 1, 1, 1), layered_tree(40)])
@pytest.mark.parametrize("sizes", [1, 3, 70])
def test_adversarial_tables_are_solved_to_a_certified_optimum(tree, sizes):
    rng = np.random.default_rng(sizes)
    shape = (tree.regions, sizes)
    spread = rng.choice([-1, 1], shape) * 2 ** rng.integers(0, 45, shape)
    for noisy in (np.full(shape, -7), np.zeros(shape, np.int64), spread, -np.abs(spread)):
        for groups in (0, 1, 10**6 + 1, 2**45):
            assert_optimal(tree, noisy, groups)


def test_a_deep_chain_of_forks_is_solved_to_a_certified_optimum():
    depth = 300
    names = ["r"] + [f"{side}{i:03d}" for i in range(depth) for side in "ab"]
    parents = [None, "r", "r"] + [f"a{i:03d}" for i in range(depth - 1) for _ in "ab"]
    tree = RegionTree.from_table(names, parents)
    noisy = np.random.default_rng(1).integers(-50, 100, (tree.regions, 20))
    assert_optimal(tree, noisy, 5_000)


def test_numbers_beyond_the_precision_of_doubles_are_solved_exactly():
    rng = np.random.default_rng(3)
    tree = layered_tree(3, 3)
    noisy = rng.integers(-(2**55), 2**55, (tree.regions, 5))
    assert_optimal(tree, noisy, 3 * 2**54 + 1)


@pytest.mark.parametrize("multiplier", [0.0, -1e30, 1e30, float("nan"), float("inf")])
def test_the_exact_finish_does_not_rely_on_the_relaxation(monkeypatch, multiplier):
    def without_sweeps(noisy, layout, blocks, state, *, groups):
        everything = relaxation.EVERYTHING
        blocks.run(relaxation._settle_blocks, noisy, layout, state, 0.0, everything, False)
        return multiplier

    monkeypatch.setattr(solver, "relax", without_sweeps)
    rng = np.random.default_rng(9)
    for tree in (RAGGED, layered_tree(6, 7), layered_tree(1, 2, 2, 3)):
        noisy, groups = noisy_table(rng, tree, 70, groups=10**9, scale=10**5)
        solution = assert_optimal(tree, noisy, groups)
        assert solution.rescaled


def test_weights_of_a_million_are_solved_exactly():
    rng = np.random.default_rng(5)
    tree = layered_tree(5, 8)
    noisy, groups = noisy_table(rng, tree, 90, groups=10_000, scale=20.0)
    assert_optimal(tree, noisy, groups, [10**6, 10**3, 1])
    assert_optimal(tree, noisy, groups, [1, 10**3, 10**6])


def test_numbers_that_could_overflow_are_refused_with_the_remedy():
    tree = layered_tree(2, 2)
    noisy = np.zeros((tree.regions, 2), dtype=np.int64)
    noisy[0, 0] = np.iinfo(np.int64).min
    with pytest.raises(ValuesTooLarge, match=r"Remedy: .*weights"):
        solve(tree, noisy, groups=1)
    with pytest.raises(ValuesTooLarge):
        solve(tree, np.zeros_like(noisy), groups=2**62)
    with pytest.raises(ValuesTooLarge):
        solve(tree, np.full_like(noisy, 2**40), groups=1, level_weights=[2**30, 1, 1])
    with pytest.raises(ValuesTooLarge):
        solve(LONE, np.full((1, 2), 2**62), groups=1)


@pytest.mark.parametrize(
    ("shape", "groups", "weights"),
    [
        ((6, 2), 1, None),
        ((7, 0), 1, None),
        ((7, 2), -1, None),
        ((7, 2), 1, [1, 1]),
        ((7, 2), 1, [1, 0, 1]),
    ],
    ids=["a row too few", "no size", "negative G", "a weight too few", "a weight of 0"],
)
def test_a_problem_that_is_none_is_refused(shape, groups, weights):
    with pytest.raises(CpwlInputError, match=r"Remedy: "):
        solve(layered_tree(2, 2), np.zeros(shape, np.int64), groups=groups, level_weights=weights)


def test_fractions_are_refused():
    with pytest.raises(CpwlInputError, match="signed integers"):
        solve(layered_tree(2, 2), np.zeros((7, 2)), groups=1)


def test_one_and_two_threads_give_identical_tables():
    rng = np.random.default_rng(6)
    tree = layered_tree(7, 9)
    noisy, groups = noisy_table(rng, tree, 700, groups=50_000, scale=2.0)
    before = numba.get_num_threads()
    try:
        tables = []
        for threads in (1, min(2, numba.config.NUMBA_NUM_THREADS)):
            numba.set_num_threads(threads)
            tables.append(solve(tree, noisy, groups=groups).counts)
    finally:
        numba.set_num_threads(before)
    assert (tables[0] == tables[1]).all()


def test_the_input_is_not_changed_and_a_second_run_gives_the_same_table():
    rng = np.random.default_rng(7)
    tree = layered_tree(4, 6)
    noisy, groups = noisy_table(rng, tree, 40, groups=500, scale=3.0)
    before = noisy.copy()
    first, second = (solve(tree, noisy, groups=groups).counts for _ in range(2))
    assert (first == second).all()
    assert (noisy == before).all()


def test_ties_between_leaves_are_spread_evenly():
    tree = layered_tree(3, 10)
    noisy = np.zeros((tree.regions, 2_000), dtype=np.int64)
    # Three units for the ten equal leaves of each branch: 600 each if spread evenly.
    noisy[0], noisy[1:4] = 9, 3
    counts = solve(tree, noisy, groups=9 * 2_000).counts
    extra = counts[4:].sum(axis=1)
    assert extra.sum() == 18_000
    # One leaf's share varies by at most √(2000 · 0.3 · 0.7) ≈ 20; five of those.
    assert np.abs(extra - 600).max() < 100


def test_ties_between_branches_and_between_sizes_are_spread_evenly():
    tree = layered_tree(8, 1)
    noisy = np.zeros((tree.regions, 1_000), dtype=np.int64)
    noisy[0] = 3
    counts = solve(tree, noisy, groups=3_000).counts
    assert np.abs(counts[1:9].sum(axis=1) - 375).max() < 90
    few = solve(tree, np.zeros_like(noisy), groups=500).counts[0]
    assert abs(int(few[:500].sum()) - 250) < 80
