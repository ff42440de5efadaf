"""Slow, obvious twins for the programs that are compared: enumeration, and Clarabel."""

from __future__ import annotations

import itertools

import clarabel
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from pgsr_core.errors import PgsrError
from pgsr_core.hierarchy import RegionTree
from pgsr_core.postprocessing.protocol import PublicFacts, Step

Int = NDArray[np.int64]
Real = NDArray[np.float64]


def facts_of(tree: RegionTree, truth: Int, *, units: bool, scales: tuple = ()) -> PublicFacts:
    """Public facts of true counts: sizes from 0 with public units, else from 1."""
    totals = truth.sum(axis=1)
    return PublicFacts(
        tree=tree,
        smallest_size=0 if units else 1,
        largest_size=truth.shape[1] - units,
        groups=int(totals[0]),
        groups_by_region=totals if units else None,
        scales=scales,
    )


def error_of(step: Step, noisy: Int, facts: PublicFacts) -> str:
    """The error that a step ends with, as text that another process can be sent."""
    with pytest.raises(PgsrError) as caught:
        step(noisy, facts)
    return str(caught.value)


def falling_rows(columns: int, most: int) -> list[tuple[int, ...]]:
    """Every row of integers within [0, most] that never rises."""
    return [
        tuple(sorted(row, reverse=True))
        for row in itertools.combinations_with_replacement(range(most + 1), columns)
    ]


def least_cumulative_cost(noisy: Int, facts: PublicFacts) -> int:
    """The optimum of (C1)–(C5) by trying every table of leaves."""
    tree, upper = facts.tree, facts.groups_by_region
    bounds = [facts.groups if upper is None else int(upper[leaf]) for leaf in tree.leaves]
    best: int | None = None
    for rows in itertools.product(*(falling_rows(noisy.shape[1], most) for most in bounds)):
        table = np.zeros_like(noisy)
        table[tree.leaves] = rows
        tree.aggregate(table)
        if upper is None and table[0, 0] != facts.groups:
            continue
        cost = int(((table - noisy) ** 2).sum())
        best = cost if best is None else min(best, cost)
    assert best is not None
    return best


def relaxed_counts(noisy: Int, facts: PublicFacts) -> Real:
    """The optimum of (H1)–(H3) over real numbers, by Clarabel."""
    sizes = noisy.shape[1]
    root = sparse.csr_matrix(([1.0], ([0], [0])), shape=(1, facts.tree.regions))
    total = sparse.kron(root, np.ones((1, sizes)))
    return _nearest(noisy, facts.tree, total, float(facts.groups), sparse.identity(noisy.size), 0.0)


def relaxed_cumulative(noisy: Int, facts: PublicFacts) -> Real:
    """The optimum of (C1)–(C4) over real numbers, counting from the top, by Clarabel."""
    regions, columns = noisy.shape
    falls = sparse.kron(
        sparse.identity(regions), sparse.diags([1.0, -1.0], [0, 1], shape=(columns, columns))
    )
    none = sparse.csr_matrix((0, noisy.size))
    if facts.groups_by_region is None:
        first = sparse.csr_matrix(([1.0], ([0], [0])), shape=(1, noisy.size))
        return _nearest(noisy, facts.tree, first, float(facts.groups), falls, 0.0)
    first = sparse.kron(
        sparse.identity(regions), sparse.csr_matrix(([1.0], ([0], [0])), shape=(1, columns))
    )
    least = np.concatenate([np.zeros(noisy.size), -facts.groups_by_region.astype(float)])
    return _nearest(noisy, facts.tree, none, 0.0, sparse.vstack([falls, -first]), least)


def _nearest(noisy, tree, equal, right, above, least) -> Real:
    """min ‖y‖² with children adding up, equal (n + y) = right and above (n + y) ≥ least."""
    families = np.zeros((tree.regions, tree.regions))
    for region in range(1, tree.regions):
        families[tree.parent[region], region] = 1
    families -= np.diag((~tree.is_leaf).astype(float))
    adding = sparse.kron(families[~tree.is_leaf], sparse.identity(noisy.shape[1]))
    matrix = sparse.vstack([adding, equal, -above]).tocsc()
    sides = np.concatenate(
        [
            np.zeros(adding.shape[0]),
            np.full(equal.shape[0], right),
            -np.broadcast_to(least, above.shape[0]),
        ]
    )
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    solver = clarabel.DefaultSolver(
        sparse.identity(noisy.size).tocsc() * 2,
        np.zeros(noisy.size),
        matrix,
        sides - matrix @ noisy.ravel(),
        [
            clarabel.ZeroConeT(adding.shape[0] + equal.shape[0]),
            clarabel.NonnegativeConeT(above.shape[0]),
        ],
        settings,
    )
    solution = solver.solve()
    assert str(solution.status) == "Solved"
    return noisy + np.array(solution.x).reshape(noisy.shape)
