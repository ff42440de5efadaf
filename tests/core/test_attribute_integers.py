"""Whole numbers: sums, bounds and public totals always; near the real values where possible."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.attribute_tables.integers import (
    UNBOUNDED,
    one_way_maps,
    round_family,
    settle,
    to_integers,
)
from pgsr_core.solvers.attribute_tables.non_negative import closed_form_of, non_negative
from pgsr_core.solvers.attribute_tables.problem import Problem, make_problem
from pgsr_core.solvers.attribute_tables.schema import schema
from pgsr_core.solvers.attribute_tables.top_first import top_first
from tests.core.attribute_oracles import random_problem

Int = NDArray[np.int64]


def random_whole(rng: np.random.Generator) -> Problem:
    problem = random_problem(rng)
    possible = rng.random(problem.schema.cells) < 0.8
    possible[0] |= not possible.any()
    return make_problem(
        problem.tree,
        problem.schema,
        problem.measured,
        variances=problem.variances,
        possible=possible,
    )


def check(problem: Problem, cells: Int) -> None:
    assert cells.dtype == np.int64
    assert cells.min() >= 0
    assert not cells[:, ~problem.possible].any()
    np.testing.assert_array_equal(problem.tree.children_sums(cells), cells)
    public = problem.totals >= 0
    np.testing.assert_array_equal(cells[public].sum(axis=1), problem.totals[public])


@pytest.mark.parametrize("seed", range(4))
def test_whole_numbers_keep_the_tree_bounds_impossible_cells_and_public_totals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(60):
        problem = random_whole(rng)
        check(problem, top_first(problem).cells)
        check(problem, to_integers(problem, closed_form_of(problem)))
        wild = 50 * rng.normal(size=(problem.tree.regions, problem.schema.cells))
        check(problem, to_integers(problem, wild))


def best_rounding(parent: Int, real: NDArray[np.float64], rows: list[int | None]) -> float:
    """The least squared distance of whole numbers with these sums, by trying all."""
    choices = []
    for cell, total in enumerate(parent):
        every = itertools.product(range(int(total) + 1), repeat=len(real))
        choices.append([(one, cell) for one in every if sum(one) == total])
    best = np.inf
    for picked in itertools.product(*choices):
        table = np.array([one for one, _ in picked]).T
        sums = table.sum(axis=1)
        if all(want is None or sums[child] == want for child, want in enumerate(rows)):
            best = min(best, float(((table - real) ** 2).sum()))
    return best


def test_a_rounded_family_is_near_the_best_of_all_whole_tables() -> None:
    rng = np.random.default_rng(5)
    maps = one_way_maps(schema([3], [[0]]))
    ratios = []
    for _ in range(40):
        truth = rng.integers(0, 3, (3, 3))
        parent = truth.sum(axis=0)
        real = np.maximum(truth + rng.normal(0, 0.6, truth.shape), 0)
        for cell in range(3):
            column = real[:, cell].copy()
            settle(column, float(parent[cell]))
            real[:, cell] = column
        rows = [int(truth[0].sum()) if rng.random() < 0.5 else None, None, None]
        least = np.array([want or 0 for want in rows])
        most = np.array([UNBOUNDED if want is None else want for want in rows])
        found = np.zeros((3, 3), dtype=np.int64)
        round_family(parent, real.copy(), least, most, maps, found)
        np.testing.assert_array_equal(found.sum(axis=0), parent)
        assert rows[0] is None or found[0].sum() == rows[0]
        ratios.append(((found - real) ** 2).sum() - best_rounding(parent, real, rows))
    assert np.mean(ratios) < 0.6
    assert max(ratios) < 5


def test_without_public_totals_no_cell_moves_by_a_whole_unit() -> None:
    rng = np.random.default_rng(6)
    tables = schema([4, 3], [[0, 1]])
    maps = one_way_maps(tables)
    for children in (1, 2, 17):
        real = rng.gamma(0.5, 3.0, (children, 12))
        parent = np.round(real.sum(axis=0)).astype(np.int64)
        real *= np.where(parent > 0, parent / real.sum(axis=0), 0)
        found = np.zeros(real.shape, dtype=np.int64)
        most = np.full(children, UNBOUNDED)
        round_family(parent, real.copy(), np.zeros(children, np.int64), most, maps, found)
        np.testing.assert_array_equal(found.sum(axis=0), parent)
        assert np.abs(found - real).max() < 1


def test_carried_errors_keep_totals_nearer_than_cells_alone_would() -> None:
    rng = np.random.default_rng(8)
    tables = schema([8, 8], [[0, 1]])
    real = rng.gamma(0.5, 3.0, (50, 64))
    parent = np.round(real.sum(axis=0)).astype(np.int64)
    real *= np.where(parent > 0, parent / real.sum(axis=0), 0)
    found = np.zeros(real.shape, dtype=np.int64)
    none = np.zeros(50, dtype=np.int64)
    round_family(parent, real.copy(), none, none + UNBOUNDED, one_way_maps(tables), found)
    totals = np.abs((found - real).sum(axis=1))
    # Independent roundings of 64 cells would be off by about 0.29 · √64 = 2.3.
    assert totals.mean() < 0.8


def test_the_solutions_are_the_same_every_time_and_on_any_number_of_threads() -> None:
    import numba

    rng = np.random.default_rng(9)
    problem = random_whole(rng)
    first = top_first(problem).cells, non_negative(problem).cells
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        second = top_first(problem).cells, non_negative(problem).cells
    finally:
        numba.set_num_threads(before)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_upper_levels_do_not_feel_the_bounds_of_sparse_leaves() -> None:
    """What non-negative leaves push up reaches the root of the optimum, and not of top-first."""
    tree = RegionTree.from_table(
        ["all", *(f"r{place:03d}" for place in range(200))], [None, *["all"] * 200]
    )
    tables = schema([4], [[], [0]])
    rng = np.random.default_rng(10)
    variances = np.full((2, 2), 100.0)
    errors = []
    for _ in range(20):
        measured = [rng.normal(0, 10, (201, size)) for size in tables.sizes]
        measured[0][0] += 500.0
        measured[1][0] += 125.0
        problem = make_problem(tree, tables, measured, variances=variances)
        upward = closed_form_of(problem)[0].sum()
        errors.append(
            [
                abs(top_first(problem).cells[0].sum() - upward),
                abs(non_negative(problem).cells[0].sum() - upward),
            ]
        )
    kept, pushed = np.mean(errors, axis=0)
    assert kept < 1.0 < pushed
