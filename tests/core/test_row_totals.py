from __future__ import annotations

import itertools

import numba
import numpy as np
import pytest

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.row_totals import (
    PriceInputError,
    PriceOverflow,
    RowTotalsInputError,
    RowTotalsTooLarge,
    certify,
    relaxation,
    solve,
    solver,
)
from tests.core.cpwl_oracles import layered_tree, noisy_table, objective, random_tree
from tests.core.flow_oracle import as_problem, least_objectives

LONE = RegionTree.from_table(["r"], [None])
CHAIN = RegionTree.from_table(["r", "a", "b"], [None, "r", "a"])
RAGGED = RegionTree.from_table(
    ["r", "a", "b", "c", "ba", "bb", "bc", "bba"], [None, "r", "r", "r", "b", "b", "b", "bb"]
)


def random_totals(rng, tree, most):
    totals = np.zeros(tree.regions, dtype=np.int64)
    totals[tree.leaves] = rng.integers(0, most + 1, len(tree.leaves))
    totals[tree.leaves] *= rng.random(len(tree.leaves)) < 0.8
    return tree.aggregate(totals)


def random_problem(rng):
    tree = random_tree(rng, int(rng.integers(1, 14)), reach=int(rng.integers(1, 14)))
    sizes = int(rng.integers(1, 7))
    totals = random_totals(rng, tree, int(rng.integers(1, 13)))
    spread = int(rng.choice([2, 6, 40]))
    noisy = rng.integers(-spread, spread + 1, (tree.regions, sizes))
    most = int(rng.choice([1, 3, 1000]))
    weights = rng.integers(1, most + 1, tree.levels).tolist()
    return tree, noisy, totals, weights


def solved(tree, noisy, totals, weights=None):
    solution = solve(tree, noisy, groups_by_region=totals, level_weights=weights)
    counts = solution.counts
    assert (counts >= 0).all()
    assert (tree.children_sums(counts) == counts).all()
    assert (counts.sum(axis=1) == totals).all()
    assert solution.certificate.feasible
    assert solution.certificate.optimal
    weights = [1] * tree.levels if weights is None else weights
    assert solution.certificate.objective == objective(tree, noisy, counts, weights)
    return solution


def all_tables(tree, totals, sizes):
    """Every feasible table of a small problem."""
    leaves = tree.leaves.tolist()
    rows = [
        [row for row in itertools.product(range(total + 1), repeat=sizes) if sum(row) == total]
        for total in totals[tree.leaves].tolist()
    ]
    for choice in itertools.product(*rows):
        counts = np.zeros((tree.regions, sizes), dtype=np.int64)
        counts[leaves] = choice
        yield tree.aggregate(counts)


def test_the_objective_is_that_of_a_general_flow_solver_on_hundreds_of_trees():
    rng = np.random.default_rng(20)
    problems = [random_problem(rng) for _ in range(500)]
    expected = least_objectives([as_problem(*problem) for problem in problems])
    for problem, least in zip(problems, expected, strict=True):
        assert solved(*problem).certificate.objective == least


def test_the_prices_prove_exactly_the_optima_among_all_tables():
    rng = np.random.default_rng(21)
    tried = {True: 0, False: 0}
    for _ in range(60):
        tree = random_tree(rng, int(rng.integers(2, 7)), reach=int(rng.integers(1, 5)))
        totals = random_totals(rng, tree, 3)
        noisy = rng.integers(-3, 4, (tree.regions, 3))
        weights = rng.integers(1, 4, tree.levels).tolist()
        solution = solved(tree, noisy, totals, weights)
        tables = list(itertools.islice(all_tables(tree, totals, 3), 3000))
        costs = [objective(tree, noisy, table, weights) for table in tables]
        assert solution.certificate.objective <= min(costs)
        for table, cost in zip(tables[:200], costs, strict=False):
            proof = certify(
                tree,
                noisy,
                table,
                groups_by_region=totals,
                prices=solution.prices,
                level_weights=weights,
            )
            assert proof.feasible
            assert proof.objective == cost
            assert proof.optimal == (cost == solution.certificate.objective)
            tried[proof.optimal] += 1
    assert min(tried.values()) > 50


@pytest.mark.parametrize("tree", [LONE, CHAIN, RAGGED], ids=["lone", "chain", "ragged"])
@pytest.mark.parametrize("sizes", [1, 3, 70])
@pytest.mark.parametrize("most", [0, 1, 50])
def test_odd_shapes_are_solved(tree, sizes, most):
    rng = np.random.default_rng(22)
    totals = random_totals(rng, tree, most)
    solved(tree, rng.integers(-30, 31, (tree.regions, sizes)), totals)
    solved(tree, np.full((tree.regions, sizes), -1000), totals)
    solved(tree, np.full((tree.regions, sizes), 1000), totals)


@pytest.mark.parametrize("weights", [None, [1, 1, 1], [16, 4, 1], [1, 3, 7], [10**6, 10**3, 1]])
@pytest.mark.parametrize("scale", [2.0, 50.0])
def test_larger_tables_are_solved_and_certified(weights, scale):
    rng = np.random.default_rng(23)
    tree = layered_tree(6, 12)
    noisy, groups = noisy_table(rng, tree, 150, groups=20_000, scale=scale)
    totals = np.zeros(tree.regions, dtype=np.int64)
    totals[tree.leaves] = rng.multinomial(groups, np.full(len(tree.leaves), 1 / len(tree.leaves)))
    solved(tree, noisy, tree.aggregate(totals), weights)


def test_a_deep_tree_is_solved_and_certified():
    rng = np.random.default_rng(24)
    tree = random_tree(rng, 600, reach=40)
    noisy, _ = noisy_table(rng, tree, 20, groups=5000, scale=4.0)
    solved(tree, noisy, random_totals(rng, tree, 30))


def test_dense_tables_of_few_sizes_are_solved_and_certified():
    rng = np.random.default_rng(25)
    tree = layered_tree(20, 30)
    truth = np.zeros((tree.regions, 8), dtype=np.int64)
    truth[tree.leaves] = rng.integers(0, 500, (len(tree.leaves), 8))
    tree.aggregate(truth)
    solved(tree, truth + rng.integers(-20, 21, truth.shape), truth.sum(axis=1))


def test_three_leaves_that_are_stuck_in_pairs_are_solved():
    tree = layered_tree(3)
    # Each leaf would rather hold what the next one has: only all three together can move.
    noisy = np.array([[1, 1, 1], [0, 1, 0], [0, 0, 1], [1, 0, 0]])
    totals = np.array([3, 1, 1, 1])
    solution = solved(tree, noisy, totals)
    assert solution.certificate.objective == 0
    stuck = np.array([[1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    proof = certify(tree, noisy, stuck, groups_by_region=totals, prices=solution.prices)
    assert proof.feasible
    assert not proof.optimal


def test_the_result_does_not_depend_on_threads_or_on_repetition():
    rng = np.random.default_rng(26)
    tree = layered_tree(5, 8)
    noisy, _ = noisy_table(rng, tree, 300, groups=3000, scale=6.0)
    totals = random_totals(rng, tree, 120)
    first = solve(tree, noisy, groups_by_region=totals)
    before = numba.get_num_threads()
    for threads in (1, min(2, numba.config.NUMBA_NUM_THREADS)):
        numba.set_num_threads(threads)
        try:
            again = solve(tree, noisy, groups_by_region=totals)
        finally:
            numba.set_num_threads(before)
        assert (again.counts == first.counts).all()
        assert (again.prices == first.prices).all()


def test_the_answer_is_exact_without_the_continuous_stage(monkeypatch):
    monkeypatch.setattr(relaxation, "MAX_NEWTON_STEPS", 0)
    rng = np.random.default_rng(27)
    tree = layered_tree(4, 5)
    noisy, _ = noisy_table(rng, tree, 40, groups=800, scale=6.0)
    solved(tree, noisy, random_totals(rng, tree, 60), [7, 2, 1])


def test_a_first_window_that_is_too_small_is_opened_farther(monkeypatch):
    rng = np.random.default_rng(28)
    tree = layered_tree(4, 5)
    noisy, _ = noisy_table(rng, tree, 40, groups=800, scale=6.0)
    totals = random_totals(rng, tree, 60)
    monkeypatch.setattr(relaxation, "MAX_NEWTON_STEPS", 0)
    expected = solved(tree, noisy, totals).certificate.objective
    monkeypatch.setattr(solver, "FIRST_REACH", 1)
    monkeypatch.setattr(solver, "FARTHER", 2)
    assert solved(tree, noisy, totals).certificate.objective == expected


def test_large_values_are_solved_exactly():
    rng = np.random.default_rng(29)
    noisy = rng.integers(-(2**40), 2**40, (RAGGED.regions, 5))
    totals = random_totals(rng, RAGGED, 2**41)
    solved(RAGGED, noisy, totals)


def test_values_that_could_overflow_are_refused():
    noisy = np.zeros((CHAIN.regions, 2), dtype=np.int64)
    with pytest.raises(RowTotalsTooLarge, match="overflow"):
        solve(CHAIN, noisy, groups_by_region=np.full(3, 2**57))
    with pytest.raises(RowTotalsTooLarge, match="overflow"):
        solve(CHAIN, noisy - 2**58, groups_by_region=np.full(3, 1))
    with pytest.raises(RowTotalsTooLarge, match="overflow"):
        solve(CHAIN, noisy, groups_by_region=np.full(3, 1), level_weights=[1, 2**60, 1])
    counts = np.array([[1, 0]] * 3)
    with pytest.raises(PriceOverflow, match="overflow"):
        certify(CHAIN, noisy, counts, groups_by_region=np.full(3, 1), prices=np.array([2**60]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noisy": np.zeros((2, 2), dtype=np.int64)}, "rows"),
        ({"noisy": np.zeros((3, 0), dtype=np.int64)}, "column"),
        ({"noisy": np.zeros((3, 2))}, "signed integers"),
        ({"groups_by_region": np.array([1.0, 1.0, 1.0])}, "signed integers"),
        ({"groups_by_region": np.array([1, 1])}, "one for each region"),
        ({"groups_by_region": np.array([1, 1, -1])}, "at least 0"),
        ({"groups_by_region": np.array([2, 1, 1])}, "sum to their parent"),
        ({"level_weights": [1, 1]}, "positive integers"),
        ({"level_weights": [1, 0, 1]}, "positive integers"),
    ],
)
def test_arguments_that_describe_no_problem_are_refused(change, message):
    arguments = {
        "noisy": np.zeros((3, 2), dtype=np.int64),
        "groups_by_region": np.array([1, 1, 1]),
        "level_weights": [1, 1, 1],
    } | change
    noisy = arguments.pop("noisy")
    with pytest.raises(RowTotalsInputError, match=message):
        solve(CHAIN, noisy, **arguments)


@pytest.mark.parametrize(
    "counts",
    [
        [[1, 1], [1, 1], [2, 0]],
        [[2, 0], [2, 0], [1, 0]],
        [[3, -1], [3, -1], [3, -1]],
        [[1, 0], [1, 0], [1, 0]],
    ],
    ids=["children do not sum", "leaf total", "negative", "other total"],
)
def test_a_table_that_breaks_a_constraint_is_not_certified(counts):
    noisy = np.array(counts)
    proof = certify(
        CHAIN, noisy, noisy, groups_by_region=np.full(3, 2), prices=np.zeros(1, np.int64)
    )
    assert not proof.feasible
    assert not proof.optimal
    assert proof.slack is None


def test_the_certificate_refuses_what_does_not_fit_the_tree():
    table = np.zeros((3, 2), dtype=np.int64)
    totals, prices = np.zeros(3, np.int64), np.zeros(1, np.int64)
    with pytest.raises(PriceInputError, match="rows"):
        certify(CHAIN, table[:2], table, groups_by_region=totals, prices=prices)
    with pytest.raises(PriceInputError, match="one for each leaf"):
        certify(CHAIN, table, table, groups_by_region=totals, prices=totals)


def test_a_unit_moved_in_an_optimum_is_noticed():
    rng = np.random.default_rng(30)
    tree = layered_tree(4, 6)
    noisy, _ = noisy_table(rng, tree, 60, groups=2000, scale=5.0)
    totals = random_totals(rng, tree, 90)
    solution = solved(tree, noisy, totals)
    worse = 0
    for _ in range(100):
        counts = solution.counts.copy()
        leaf = rng.choice(tree.leaves[totals[tree.leaves] > 0])
        source = rng.choice(np.flatnonzero(counts[leaf]))
        target = (source + rng.integers(1, 60)) % 60
        while leaf >= 0:
            counts[leaf, source] -= 1
            counts[leaf, target] += 1
            leaf = tree.parent[leaf]
        proof = certify(tree, noisy, counts, groups_by_region=totals, prices=solution.prices)
        assert proof.feasible
        assert proof.optimal == (proof.objective == solution.certificate.objective)
        worse += not proof.optimal
    assert worse > 50
