"""The non-negative optimum against a generic solver, and its certificate against both."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.attribute_tables.certificate import certify
from pgsr_core.solvers.attribute_tables.non_negative import non_negative
from pgsr_core.solvers.attribute_tables.problem import Problem as Whole
from pgsr_core.solvers.attribute_tables.problem import TotalsDoNotFit, make_problem
from pgsr_core.solvers.attribute_tables.schema import TablesDoNotFit, schema
from tests.core.attribute_oracles import Problem, generic_optimum, objective, random_problem


def bounded(rng: np.random.Generator, *, full: bool) -> tuple[Problem, Whole]:
    """A problem with impossible cells, whose full table is or is not measured."""
    while True:
        problem = random_problem(rng, gaps=False)
        if (problem.schema.full in problem.schema.tables) == full:
            break
    possible = rng.random(problem.schema.cells) < 0.85
    possible[0] |= not possible.any()
    whole = make_problem(
        problem.tree,
        problem.schema,
        problem.measured,
        variances=problem.variances,
        possible=possible,
    )
    return problem, whole


@pytest.mark.parametrize("seed", range(5))
def test_the_optimum_is_that_of_a_generic_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(25):
        problem, whole = bounded(rng, full=True)
        found = non_negative(whole, distance=1e-5)
        leaves = found.cells[problem.tree.leaves]
        best = generic_optimum(problem, whole.possible).reshape(leaves.shape)
        assert found.certificate.distance <= 1e-5
        # The generic solver stops at a gap; what counts is that none is better than ours.
        assert objective(problem, leaves) <= objective(problem, np.maximum(best, 0)) + 1e-6
        np.testing.assert_allclose(leaves, best, rtol=0, atol=0.06)


def test_without_the_full_table_the_measured_margins_are_as_good_as_any() -> None:
    rng = np.random.default_rng(7)
    for _ in range(15):
        problem, whole = bounded(rng, full=False)
        found = non_negative(whole, distance=1e-3, most_rounds=1000)
        again = non_negative(whole, distance=1e-3, most_rounds=1000)
        np.testing.assert_array_equal(found.cells, again.cells)
        best = generic_optimum(problem, whole.possible)
        excess = objective(problem, found.cells[problem.tree.leaves]) - objective(problem, best)
        assert excess < 0.05


def test_the_certificate_bounds_the_distance_of_any_cells() -> None:
    rng = np.random.default_rng(3)
    for _ in range(30):
        problem, whole = bounded(rng, full=True)
        best = non_negative(whole, distance=1e-7)
        early = non_negative(whole, distance=math.inf)
        full = problem.schema.tables.index(problem.schema.full)
        deviation = np.sqrt(problem.variances[:, full])[:, None]
        off = np.abs(early.cells - best.cells) / deviation
        assert off.max() <= early.certificate.distance + 1e-6


def test_the_certificate_refuses_what_is_not_feasible_or_not_optimal() -> None:
    rng = np.random.default_rng(4)
    problem, whole = bounded(rng, full=True)
    while problem.tree.regions < 3 or (whole.totals >= 0).any():
        problem, whole = bounded(rng, full=True)
    best = non_negative(whole, distance=1e-7)
    leaf, cell = problem.tree.leaves[-1], int(np.flatnonzero(whole.possible)[0])
    lone = best.cells.copy()
    lone[leaf, cell] += 1.0
    assert certify(whole, lone, best.multipliers).distance == math.inf
    negative = best.cells - 1e6
    assert certify(whole, negative, best.multipliers).distance == math.inf
    moved = np.where(problem.tree.is_leaf[:, None], best.cells, 0.0)
    moved[leaf, cell] += 1.0
    problem.tree.aggregate(moved)  # type: ignore[arg-type]
    assert certify(whole, moved, best.multipliers).distance > 0.1


def test_totals_that_contradict_each_other_are_refused_before_anything_is_computed() -> None:
    tree = RegionTree.from_table(["all", "a", "b"], [None, "all", "all"])
    tables = schema([2], [[], [0]])
    noise = np.ones((3, 2))
    noise[:, 0] = 0.0
    cells = np.ones((3, 2))
    for totals in ([5, 2, 2], [3, 2, 2], [4, 2.5, 1.5], [-1, -1, 0]):
        measured = [np.array(totals, dtype=float)[:, None], cells]
        with pytest.raises(TotalsDoNotFit, match="Remedy"):
            make_problem(tree, tables, measured, variances=noise)
    noise[:] = [1.0, 0.0]
    with pytest.raises(TablesDoNotFit, match="only totals"):
        make_problem(tree, tables, [np.ones((3, 1)), cells], variances=noise)
