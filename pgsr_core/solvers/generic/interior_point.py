"""Quadratic programs on the tree as they are written down, by Clarabel's interior-point method.

Variables are the table's numbers themselves, so that the objective is ‖x‖² − 2 ñᵀx plus a constant,
and the solver stops by its own settings. That is how one hands a program to such a solver, and not
how one should: it stops when its duality gap is 10⁻⁸ of the objective, which is as large as ‖ñ‖²,
and a gap of g allows ‖x − x*‖² = g. The variable y = x − ñ, as in `quadratic`, takes that away.

Imported only by those who need it: Clarabel and scipy come with the extra `pgsr[evaluate]`.
"""

from __future__ import annotations

import clarabel
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.generic.errors import NotProved, SolverTimedOut

Int = NDArray[np.int64]
Real = NDArray[np.float64]
SOLVER = "Clarabel"
SOLVED, OUT_OF_TIME = ("Solved", "AlmostSolved"), "MaxTime"


def relaxed_counts(tree: RegionTree, noisy: Int, *, groups: int, time_limit: float) -> Real:
    """(H1)–(H3) of Fioretto and Van Hentenryck 2019, Figure 3, and x ≥ 0: real numbers.

    (H2) holds at the root alone; "for all r" there contradicts (H3).

    Raises:
        SolverTimedOut: it did not end in time.
        NotProved: it ended without a solution.
    """
    sizes = noisy.shape[1]
    total, positive = np.ones((1, sizes)), sparse.identity(sizes)
    return _nearest(tree, noisy, total, groups, positive, time_limit)


def relaxed_cumulative(tree: RegionTree, noisy: Int, *, groups: int, time_limit: float) -> Real:
    """(C1)–(C4) of Figure 7: real numbers that count from the smallest size up, and never fall.

    Raises:
        SolverTimedOut: it did not end in time.
        NotProved: it ended without a solution.
    """
    sizes = noisy.shape[1]
    last = np.zeros((1, sizes))
    last[0, -1] = 1.0
    rises = sparse.diags([1.0, -1.0], [0, -1], shape=(sizes, sizes))
    return _nearest(tree, noisy, last, groups, rises, time_limit)


def families(tree: RegionTree) -> sparse.csr_matrix:
    """A row for each inner region: 1 at its children and −1 at itself."""
    inner = np.flatnonzero(~tree.is_leaf)
    row_of = np.full(tree.regions, -1)
    row_of[inner] = np.arange(len(inner))
    children = np.arange(1, tree.regions)
    rows = np.concatenate([row_of[tree.parent[1:]], row_of[inner]])
    columns = np.concatenate([children, inner])
    signs = np.concatenate([np.ones(len(children)), -np.ones(len(inner))])
    return sparse.csr_matrix((signs, (rows, columns)), shape=(len(inner), tree.regions))


def _nearest(
    tree: RegionTree,
    noisy: Int,
    at_root: Real,
    groups: int,
    cone: sparse.spmatrix,
    time_limit: float,
) -> Real:
    """min Σ (x − ñ)² where children add up, at_root · x = G at the root, and cone · x ≥ 0."""
    regions, sizes = noisy.shape
    root = sparse.csr_matrix(([1.0], ([0], [0])), shape=(1, regions))
    equal = sparse.vstack(
        [sparse.kron(families(tree), sparse.identity(sizes)), sparse.kron(root, at_root)]
    )
    at_least = sparse.kron(sparse.identity(regions), cone)
    right = np.zeros(equal.shape[0] + noisy.size)
    right[equal.shape[0] - 1] = groups
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    # The same steps; the method that it would choose for large programs is slower on trees.
    settings.direct_solve_method = "qdldl"
    settings.time_limit = time_limit
    solution = clarabel.DefaultSolver(
        sparse.csc_matrix(2.0 * sparse.identity(noisy.size)),
        -2.0 * noisy.ravel(),
        sparse.csc_matrix(sparse.vstack([equal, -at_least])),
        right,
        [clarabel.ZeroConeT(equal.shape[0]), clarabel.NonnegativeConeT(noisy.size)],
        settings,
    ).solve()
    if str(solution.status) == OUT_OF_TIME:
        raise SolverTimedOut(solver=SOLVER, time_limit=time_limit)
    if str(solution.status) not in SOLVED:
        raise NotProved(solver=SOLVER)
    return np.array(solution.x).reshape(noisy.shape)
