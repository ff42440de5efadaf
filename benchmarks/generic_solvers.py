"""The exact tree solver against general solvers of quadratic programs on the relaxation.

The relaxation drops the integers: min Σ y², y ≥ −n, children's y sum to the parent's up to the
noisy table's own inconsistency, and the root's y sum to G − Σ n. The variable is y = x − n: in
x itself the cost loses all digits against n². Only a solver's own run is timed, not its setup.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import clarabel
import highspy
import numpy as np
import osqp
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks import workloads
from benchmarks.cpwl import solver
from benchmarks.rows import Bar, Benchmark, Effort, Row, at_least
from benchmarks.timing import best_seconds, on_threads
from benchmarks.workloads import Shape, Workload
from pgsr_core.solvers import cpwl
from pgsr_core.solvers.generic.interior_point import families

Real = NDArray[np.float64]
SIZES = 100
TIME_LIMIT = 300.0
VIOLATION = 0.05
RELATIVE_COST = 1e-3
"""How much a peer's answer may break a constraint, in groups, and cost above the integer
optimum, and still count as solved."""


@dataclass(frozen=True)
class Relaxation:
    """min ½ y'(2I)y with A y = b and y ≥ lower."""

    matrix: sp.csc_matrix
    right: Real
    lower: Real

    @classmethod
    def of(cls, load: Workload) -> Relaxation:
        tree, sizes = load.tree, load.noisy.shape[1]
        at_root = sp.csr_matrix(([1.0], ([0], [0])), shape=(1, tree.regions))
        matrix = sp.vstack(
            [
                sp.kron(families(tree), sp.identity(sizes)),
                sp.kron(at_root, np.ones((1, sizes))),
            ]
        )
        noisy = load.noisy.astype(float).ravel()
        total = np.append(np.zeros(matrix.shape[0] - 1), load.groups)
        return cls(sp.csc_matrix(matrix), total - matrix @ noisy, -noisy)

    @property
    def variables(self) -> int:
        return len(self.lower)


def _clarabel(problem: Relaxation) -> tuple[float, Real]:
    n = problem.variables
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.time_limit = TIME_LIMIT
    run = clarabel.DefaultSolver(
        sp.csc_matrix(2 * sp.identity(n)),
        np.zeros(n),
        sp.csc_matrix(sp.vstack([problem.matrix, -sp.identity(n)])),
        np.concatenate([problem.right, -problem.lower]),
        [clarabel.ZeroConeT(len(problem.right)), clarabel.NonnegativeConeT(n)],
        settings,
    )
    start = time.perf_counter()
    solution = run.solve()
    return time.perf_counter() - start, np.array(solution.x)


def _osqp(problem: Relaxation) -> tuple[float, Real]:
    n = problem.variables
    run = osqp.OSQP()
    run.setup(
        sp.csc_matrix(2 * sp.identity(n)),
        np.zeros(n),
        sp.csc_matrix(sp.vstack([problem.matrix, sp.identity(n)])),
        np.concatenate([problem.right, problem.lower]),
        np.concatenate([problem.right, np.full(n, np.inf)]),
        verbose=False,
        eps_abs=1e-4,
        eps_rel=1e-4,
        max_iter=100_000,
        time_limit=TIME_LIMIT,
    )
    start = time.perf_counter()
    solution = run.solve(raise_error=False)
    return time.perf_counter() - start, np.array(solution.x)


def _highs(problem: Relaxation) -> tuple[float, Real]:
    n, infinity = problem.variables, highspy.kHighsInf
    model = highspy.HighsModel()
    program = model.lp_
    program.num_col_, program.num_row_ = n, len(problem.right)
    program.col_cost_ = np.zeros(n)
    program.col_lower_, program.col_upper_ = problem.lower, np.full(n, infinity)
    program.row_lower_ = program.row_upper_ = problem.right
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = problem.matrix.indptr
    program.a_matrix_.index_ = problem.matrix.indices
    program.a_matrix_.value_ = problem.matrix.data
    model.hessian_.dim_ = n
    model.hessian_.format_ = highspy.HessianFormat.kTriangular
    model.hessian_.start_ = np.arange(n + 1)
    model.hessian_.index_ = np.arange(n)
    model.hessian_.value_ = np.full(n, 2.0)
    run = highspy.Highs()
    run.silent()
    run.setOptionValue("time_limit", TIME_LIMIT)
    run.setOptionValue("threads", 1)
    run.passModel(model)
    start = time.perf_counter()
    run.run()
    return time.perf_counter() - start, np.array(run.getSolution().col_value)


def _is_solved(problem: Relaxation, answer: Any, integer_cost: int) -> bool:
    """Near the feasible set, and no dearer than the integer optimum: a relaxation cannot be."""
    if len(answer) != problem.variables or not np.isfinite(answer).all():
        return False
    worst = max(
        np.abs(problem.matrix @ answer - problem.right).max(), (problem.lower - answer).max()
    )
    return bool(worst <= VIOLATION and answer @ answer <= (1 + RELATIVE_COST) * integer_cost)


def _rows(
    peer: str, shape: Shape, solve: Callable[[Relaxation], tuple[float, Real]], bar: Bar | None
) -> Callable[[Effort], Iterator[Row]]:
    def run(effort: Effort) -> Iterator[Row]:
        chosen = replace(workloads.tiny(shape), sizes=6) if effort.quick else shape
        load = workloads.counts(chosen, scale=6)
        problem = Relaxation.of(load)
        exact = cpwl.solve(load.tree, load.noisy, groups=load.groups).counts
        seconds, answer = solve(problem)
        mine = best_seconds({"cpwl": on_threads(1, solver(load))}, repetitions=effort.repetitions)
        solved = _is_solved(problem, answer, int(((exact - load.noisy) ** 2).sum()))
        # A peer that gives up was timed until then: its ratio is a lower bound.
        against = f"{peer}, relaxation" + ("" if solved else " (gave up: at least)")
        held = effort.bar(bar) if bar else None
        yield Row("CPWL, speed", load.label, seconds / mine["cpwl"], "× faster", against, held)

    return run


US_100 = replace(workloads.US, sizes=SIZES)
SMALL_100 = replace(workloads.US, name="small", regions=(1, 3, 12), sizes=SIZES)
BENCHMARKS = (
    Benchmark("generic-clarabel", _rows("Clarabel", US_100, _clarabel, at_least(1_000))),
    Benchmark("generic-osqp", _rows("OSQP", US_100, _osqp, at_least(1_000))),
    # The active-set method of HiGHS grows with the square of the free variables and more.
    Benchmark("generic-highs", _rows("HiGHS", SMALL_100, _highs, None)),
)
