"""The global projection against a generic quadratic solver, on trees of every shape."""

from __future__ import annotations

from collections.abc import Callable

import clarabel
import numba
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from pgsr_core.errors import PgsrError
from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.isotonic import isotonic_real
from pgsr_core.solvers.projection import ProjectionInputError, project

Int = NDArray[np.int64]
Real = NDArray[np.float64]
Generator = np.random.Generator


def tree_of(parents: list[int]) -> RegionTree:
    """Region i + 1 is a child of region parents[i]."""
    names = [f"r{i:04d}" for i in range(len(parents) + 1)]
    return RegionTree.from_table(names, [None, *(names[p] for p in parents)])


def ragged(rng: Generator) -> RegionTree:
    return tree_of([int(rng.integers(0, i + 1)) for i in range(int(rng.integers(3, 14)))])


def deep(rng: Generator) -> RegionTree:
    return tree_of([int(rng.integers(max(0, i - 1), i + 1)) for i in range(12)])


def chain(rng: Generator) -> RegionTree:
    return tree_of(list(range(int(rng.integers(1, 6)))))


def star(rng: Generator) -> RegionTree:
    return tree_of([0] * int(rng.integers(1, 120)))


def levelled(rng: Generator) -> RegionTree:
    states = int(rng.integers(2, 5))
    counties = sorted(int(rng.integers(1, states + 1)) for _ in range(3 * states))
    return tree_of([0] * states + counties)


SHAPES = [ragged, deep, chain, star, levelled]


def measured(
    tree: RegionTree, rng: Generator, *, columns: int, scale: float
) -> tuple[Int, Int, Int]:
    """A true cumulative table, the totals of its units, and noisy measurements of it."""
    totals = np.zeros(tree.regions, dtype=np.int64)
    truth = np.zeros((tree.regions, columns), dtype=np.int64)
    for leaf in tree.leaves:
        sizes = np.minimum(rng.geometric(0.3, int(rng.integers(0, 60))) - 1, columns)
        totals[leaf] = len(sizes)
        truth[leaf] = (sizes[:, None] >= np.arange(1, columns + 1)).sum(axis=0)
    tree.aggregate(truth)
    tree.aggregate(totals)
    return truth, totals, truth + np.rint(rng.laplace(0, scale, truth.shape)).astype(np.int64)


def consistency_matrix(tree: RegionTree) -> Real:
    """One row for each internal region: children minus itself."""
    rows = np.zeros((tree.regions, tree.regions))
    for region in range(1, tree.regions):
        rows[tree.parent[region], region] += 1
    rows -= np.diag((~tree.is_leaf).astype(float))
    return rows[~tree.is_leaf]


def optimum_by_quadratic_program(
    tree: RegionTree, noisy: Int, upper: Int, weights: Real, total: int | None
) -> float:
    """The least weighted squared distance; the variable is the change from the measurements."""
    columns = noisy.shape[1]
    size = noisy.size
    each_column = sparse.identity(columns)
    equal = [sparse.kron(consistency_matrix(tree), each_column)]
    if total is not None:
        equal.append(sparse.csr_matrix(([1.0], ([0], [0])), shape=(1, size)))
    leaf = sparse.identity(tree.regions).tocsr()[tree.leaves]
    falls = sparse.diags([-1.0, 1.0], [0, 1], shape=(columns - 1, columns))
    below = [
        sparse.kron(leaf, falls),
        sparse.kron(leaf, each_column),
        -sparse.kron(leaf, each_column),
    ]
    constraints = sparse.vstack(equal + below).tocsc()
    leaves = len(tree.leaves)
    right = np.concatenate(
        [
            np.zeros(equal[0].shape[0]),
            [] if total is None else [total],
            np.zeros(below[0].shape[0]),
            np.repeat(upper[tree.leaves], columns),
            np.zeros(leaves * columns),
        ]
    )
    equalities = sum(part.shape[0] for part in equal)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    solver = clarabel.DefaultSolver(
        sparse.diags(2 * np.repeat(weights[tree.level], columns)).tocsc(),
        np.zeros(size),
        constraints,
        right - constraints @ noisy.ravel(),
        [clarabel.ZeroConeT(equalities), clarabel.NonnegativeConeT(len(right) - equalities)],
        settings,
    )
    solution = solver.solve()
    assert str(solution.status) in {"Solved", "AlmostSolved"}
    return float(solution.obj_val)


def objective(tree: RegionTree, values: Real, noisy: Int, weights: Real) -> float:
    return float((weights[tree.level][:, None] * (values - noisy) ** 2).sum())


def made_consistent(tree: RegionTree, values: Real) -> Real:
    """Leaves summed up: feasible where the leaves are, whatever the residual."""
    summed = np.where(tree.is_leaf[:, None], values, 0.0)
    return tree.aggregate(summed)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("public", [True, False], ids=["public-totals", "from-data"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(6))
def test_the_projection_has_the_objective_of_a_generic_solver(
    seed: int, shape: Callable[[Generator], RegionTree], public: bool
) -> None:
    rng = np.random.default_rng(seed)
    tree = shape(rng)
    truth, totals, noisy = measured(
        tree, rng, columns=int(rng.integers(2, 9)), scale=[0.5, 5.0, 50.0][seed % 3]
    )
    weights = np.ones(tree.levels) if seed % 2 else rng.uniform(0.3, 20, tree.levels)
    groups = int(totals[0] if public else truth[0, 0])
    upper = totals if public else np.full(tree.regions, groups)
    answer = project(
        tree,
        noisy,
        groups=groups,
        groups_by_region=totals if public else None,
        level_weights=None if seed % 2 else list(weights),
        tolerance=1e-9,
    )
    assert answer.converged
    expected = optimum_by_quadratic_program(tree, noisy, upper, weights, None if public else groups)
    feasible = made_consistent(tree, answer.values)
    np.testing.assert_allclose(feasible, answer.values, atol=1e-7)
    assert objective(tree, feasible, noisy, weights) == pytest.approx(expected, rel=1e-8, abs=1e-6)
    if not public:
        assert feasible[0, 0] == pytest.approx(groups, abs=1e-8)


@pytest.mark.parametrize("public", [True, False])
def test_leaves_are_monotone_and_bounded_exactly_and_the_residual_is_the_violation(
    public: bool,
) -> None:
    rng = np.random.default_rng(1)
    tree = tree_of([0] * 4 + [1 + i % 4 for i in range(200)])
    truth, totals, noisy = measured(tree, rng, columns=60, scale=20)
    groups = int(totals[0] if public else truth[0, 0])
    by_region = totals if public else None
    answer = project(tree, noisy, groups=groups, groups_by_region=by_region)
    assert answer.converged
    assert 0 < answer.residual <= 1e-2
    violation = np.abs(tree.children_sums(answer.values) - answer.values)  # type: ignore[arg-type]
    assert violation.max() == pytest.approx(answer.residual, rel=1e-6)
    leaves = answer.values[tree.leaves]
    assert (np.diff(leaves, axis=1) <= 0).all()
    assert (leaves >= 0).all()
    assert (leaves[:, 0] <= (totals[tree.leaves] if public else groups)).all()


@pytest.mark.parametrize("public", [True, False])
def test_a_lone_root_is_fitted_alone(public: bool) -> None:
    tree = RegionTree.from_table(["world"], [None])
    noisy = np.array([[3, 9, 4, 5, -2]])
    answer = project(tree, noisy, groups=8, groups_by_region=np.array([8]) if public else None)
    assert answer.converged
    first = 8.0 if not public else 6.0
    expected = isotonic_real(noisy[:, 1:].astype(float), upper=8.0)[0]
    np.testing.assert_allclose(
        answer.values[0], [first, *expected] if not public else [6, 6, 4.5, 4.5, 0]
    )


def test_a_table_that_already_fits_is_returned_as_it_is() -> None:
    rng = np.random.default_rng(3)
    tree = levelled(rng)
    truth, totals, _ = measured(tree, rng, columns=7, scale=1)
    answer = project(tree, truth, groups=int(totals[0]), groups_by_region=totals)
    assert answer.newton_steps == 0
    assert answer.residual == 0
    np.testing.assert_array_equal(answer.values, truth)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("level", [-1_000_000, 0, 1_000_000])
def test_measurements_far_outside_the_bounds_still_converge(
    shape: Callable[[Generator], RegionTree], level: int
) -> None:
    """All leaves sit at a bound, where the dual is flat in the pinned column."""
    rng = np.random.default_rng(0)
    tree = shape(rng)
    noisy = level + rng.integers(-500, 500, (tree.regions, 6))
    for groups in (0, 1, 1000):
        answer = project(tree, noisy, groups=groups, groups_by_region=None)
        assert answer.converged
        assert answer.values[0, 0] == groups


@pytest.mark.parametrize("public", [True, False], ids=["public-totals", "from-data"])
@pytest.mark.parametrize(
    "weights", [(1e6, 1e3, 1.0), (1e-3, 1.0, 1e3), (1.0, 1e4, 1.0), (1e4, 1.0, 1.0)]
)
def test_lopsided_weights_converge_to_the_generic_solvers_objective(
    weights: tuple[float, float, float], public: bool
) -> None:
    rng = np.random.default_rng(5)
    tree = tree_of([0, 0, 0] + [1 + i % 3 for i in range(30)])
    truth, totals, noisy = measured(tree, rng, columns=12, scale=10)
    groups = int(totals[0] if public else truth[0, 0])
    answer = project(
        tree,
        noisy,
        groups=groups,
        groups_by_region=totals if public else None,
        level_weights=weights,
        tolerance=1e-6,
    )
    assert answer.converged
    feasible = made_consistent(tree, answer.values)
    scaled = np.array(weights) / weights[-1]
    upper = totals if public else np.full(tree.regions, groups)
    assert objective(tree, feasible, noisy, scaled) == pytest.approx(
        optimum_by_quadratic_program(tree, noisy, upper, scaled, None if public else groups),
        rel=1e-6,
    )


def test_a_stalled_projection_says_so() -> None:
    rng = np.random.default_rng(2)
    tree = levelled(rng)
    _, totals, noisy = measured(tree, rng, columns=9, scale=30)
    stopped = project(tree, noisy, groups=int(totals[0]), groups_by_region=totals, max_steps=1)
    assert not stopped.converged
    assert stopped.newton_steps == 1
    violation = np.abs(tree.children_sums(stopped.values) - stopped.values)  # type: ignore[arg-type]
    assert stopped.residual == pytest.approx(violation.max())
    impossible = project(tree, noisy, groups=int(totals[0]), groups_by_region=totals, tolerance=0.0)
    assert impossible.converged == (impossible.residual == 0)
    assert impossible.residual < 1e-8


@pytest.mark.parametrize("weights", [(1e-300, 1.0), (1e300, 1.0), (1.0, 1e-300)])
@pytest.mark.parametrize("level", [-(2**62), 0, 2**62])
def test_numbers_beyond_doubles_end_in_an_honest_residual(
    weights: tuple[float, float], level: int
) -> None:
    noisy = level + np.random.default_rng(0).integers(-9, 9, (4, 5))
    answer = project(
        tree_of([0, 0, 0]), noisy, groups=7, groups_by_region=None, level_weights=weights
    )
    violation = np.abs(answer.values[1:].sum(axis=0) - answer.values[0]).max()
    assert answer.converged == bool(violation <= 1e-2)


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="needs two threads")
def test_one_and_two_threads_give_identical_projections() -> None:
    rng = np.random.default_rng(4)
    tree = tree_of([0] * 3 + [1 + i % 3 for i in range(400)])
    _, totals, noisy = measured(tree, rng, columns=40, scale=10)
    before = numba.get_num_threads()
    try:
        answers = []
        for threads in (1, 2):
            numba.set_num_threads(threads)
            answer = project(tree, noisy, groups=int(totals[0]), groups_by_region=totals)
            answers.append((answer.values.tobytes(), answer.residual, answer.newton_steps))
    finally:
        numba.set_num_threads(before)
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "arguments",
    [
        {"noisy": np.zeros((2, 4), dtype=np.int64)},
        {"noisy": np.zeros(3, dtype=np.int64)},
        {"noisy": np.zeros((3, 4))},
        {"noisy": np.zeros((3, 0), dtype=np.int64)},
        {"groups": -1, "groups_by_region": None},
        {"groups": 4},
        {"groups_by_region": np.array([3, 1, 1])},
        {"groups_by_region": np.array([3, 4, -1])},
        {"groups_by_region": np.array([3, 3])},
        {"level_weights": [1.0]},
        {"level_weights": [1.0, 0.0]},
        {"level_weights": [1.0, np.inf]},
    ],
)
def test_what_does_not_fit_the_tree_is_refused_with_a_remedy(arguments: dict[str, object]) -> None:
    fitting = {
        "noisy": np.zeros((3, 4), dtype=np.int64),
        "groups": 3,
        "groups_by_region": np.array([3, 2, 1]),
    }
    with pytest.raises(ProjectionInputError, match="Remedy") as caught:
        project(tree_of([0, 0]), **{**fitting, **arguments})  # type: ignore[arg-type]
    assert isinstance(caught.value, PgsrError)
