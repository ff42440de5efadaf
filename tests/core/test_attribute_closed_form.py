"""The closed form against dense constrained least squares, and FGMC against its limit."""

from __future__ import annotations

import numpy as np
import pytest

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.attribute_tables.closed_form import least_squares
from pgsr_core.solvers.attribute_tables.fgmc import fgmc, paper_tables
from pgsr_core.solvers.attribute_tables.schema import TablesDoNotFit, schema
from pgsr_core.solvers.attribute_tables.weights import table_variances
from tests.core.attribute_oracles import Problem, dense_fit, random_problem

LONE = RegionTree.from_table(["all"], [None])


def compare(problem: Problem) -> tuple[float, float]:
    """Largest differences of estimates and (relative) of variances, where tables are determined."""
    tables = problem.schema
    fit = least_squares(problem.tree, tables, problem.measured, variances=problem.variances)
    estimates, known, left = dense_fit(problem)
    np.testing.assert_array_equal(fit.published, known)
    variances = table_variances(tables, fit.weights.variance)
    off, off_variance = 0.0, 0.0
    for place, table in enumerate(tables.tables):
        here = known[:, place]
        found = tables.margin(fit.cells, tables.full, table)
        off = max(off, float(np.abs(found - estimates[place])[here].max(initial=0.0)))
        miss = np.abs(variances - left)[here, place]
        off_variance = max(off_variance, float(miss.max(initial=0.0)))
    return off, off_variance


@pytest.mark.parametrize("seed", range(8))
def test_the_closed_form_is_dense_least_squares_on_any_tree_and_tables(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(50):
        off, off_variance = compare(random_problem(rng))
        assert off < 1e-9
        assert off_variance < 1e-8


def test_a_wrong_variance_would_be_seen() -> None:
    rng = np.random.default_rng(0)
    problem = random_problem(rng, gaps=False, public=False)
    while problem.tree.regions < 4 or len(problem.schema.tables) < 3:
        problem = random_problem(rng, gaps=False, public=False)
    right = least_squares(
        problem.tree, problem.schema, problem.measured, variances=problem.variances
    )
    wrong = problem.variances.copy()
    wrong[0, 0] *= 1.3
    other = least_squares(problem.tree, problem.schema, problem.measured, variances=wrong)
    assert np.abs(right.cells - other.cells).max() > 1e-6


@pytest.mark.parametrize("domains", [(2, 3), (3, 2, 2), (2, 2, 2, 3), (2,) * 6, (5,), (40, 3, 2)])
def test_fgmc_converges_to_the_closed_form_of_one_region(domains: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(domains))
    tables = schema(domains, paper_tables(len(domains)))
    measured = [rng.integers(-50, 500, (1, size)) for size in tables.sizes]
    fit = least_squares(LONE, tables, measured, variances=np.full((1, len(measured)), 3.0))
    found = fgmc(tables, measured, tolerance=1e-12)
    np.testing.assert_allclose(found.cells, fit.cells, rtol=0, atol=1e-9)


def test_large_tables_of_every_shape_agree_with_their_measurements_when_there_is_no_noise() -> None:
    rng = np.random.default_rng(1)
    shapes = [(7, 2, 23), (200, 3), (3, 200), (2,) * 9, (4, 5, 6, 7)]
    for domains in shapes:
        chosen = [[], [0], [1], [0, 1], list(range(len(domains)))]
        tables = schema(domains, chosen[: 4 if len(domains) == 2 else 5])
        truth = rng.integers(0, 100, (1, tables.cells))
        measured = [tables.margin(truth, tables.full, table) for table in tables.tables]
        fit = least_squares(LONE, tables, measured, variances=rng.uniform(1, 9, (1, len(measured))))
        np.testing.assert_allclose(fit.cells, truth, atol=1e-9)


def test_interactions_that_nothing_measures_are_not_published() -> None:
    tree = RegionTree.from_table(["all", "a", "b"], [None, "all", "all"])
    tables = schema([2, 2], [[0], [0, 1]])
    variances = np.array([[1.0, 1.0], [1.0, 1.0], [np.inf, np.inf]])
    measured = [np.ones((3, 2)), np.ones((3, 4))]
    fit = least_squares(tree, tables, measured, variances=variances)
    assert fit.published.all(), "the second child is the parent without the first"
    variances[1, 1] = np.inf
    fit = least_squares(tree, tables, measured, variances=variances)
    np.testing.assert_array_equal(fit.published, [[True, True], [True, False], [True, False]])


@pytest.mark.parametrize(
    ("variances", "shape"), [([[-1.0]], (1, 1)), ([[np.nan]], (1, 1)), ([[1.0]], (1, 2))]
)
def test_what_is_no_problem_is_refused_with_a_remedy(
    variances: list[list[float]], shape: tuple[int, int]
) -> None:
    with pytest.raises(TablesDoNotFit, match="Remedy"):
        least_squares(LONE, schema([2], [[]]), [np.ones(shape)], variances=variances)
    with pytest.raises(TablesDoNotFit, match="Remedy"):
        schema([2], [[1]])
