"""The quadratic integer programs of M_H and M_c as they stand, solved by SCIP.

Nothing of their structure is used: one integer variable a cell, and branch and bound. The
variables are the changes y = x − n, since x itself would lose its digits against n². Costs are
integer variables t ≥ y², so that a violation within SCIP's tolerance (10⁻⁶) rounds away.

One thread and SCIP's fixed seeds: the same measurements give the same table with the same version
of SCIP. The time limit ends a run without an answer, so it never changes one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.generic.errors import NotProved, SolverMissing, SolverTimedOut

Int = NDArray[np.int64]
SOLVER = "SCIP"


def closest_counts(tree: RegionTree, noisy: Int, *, groups: int, time_limit: float) -> Int:
    """M_H: the program (H1)–(H4) of Fioretto and Van Hentenryck 2019, Figure 3.

    (H2) holds at the root alone; "for all r" there contradicts (H3). Domains are not truncated.

    Raises:
        SolverMissing: SCIP is not installed.
        SolverTimedOut: no proved optimum in time.
        NotProved: the optimum could not be proved.
    """
    program = _Program(noisy, upper=np.full(tree.regions, groups), time_limit=time_limit)
    program.add_up(tree)
    program.require(program.changes[0], groups - int(noisy[0].sum()))
    return program.solve()


def closest_cumulative(
    tree: RegionTree,
    noisy: Int,
    *,
    groups: int,
    groups_by_region: Int | None,
    time_limit: float,
) -> Int:
    """M_c: the program (C1)–(C5) of Figure 7, for cumulative counts from the top.

    c_k = groups of size at least k does not rise with k (C3), and c_1 of the root is G (C2).
    Where the number of groups of every region is public, size 0 is published as well, and
    c_1 ≤ G_r takes the place of (C2). (C3) is stated for leaves; sums of such rows have it.

    Raises:
        SolverMissing: SCIP is not installed.
        SolverTimedOut: no proved optimum in time.
        NotProved: the optimum could not be proved.
    """
    upper = np.full(tree.regions, groups) if groups_by_region is None else groups_by_region
    program = _Program(noisy, upper=upper, time_limit=time_limit)
    program.add_up(tree)
    if groups_by_region is None:
        program.require(program.changes[0, :1], groups - int(noisy[0, 0]))
    program.never_rise(tree.leaves)
    return program.solve()


class _Program:
    """min Σ y² over integers 0 ≤ n + y ≤ upper, and what is required of y."""

    def __init__(self, noisy: Int, *, upper: Int, time_limit: float) -> None:
        self._noisy = noisy
        self._time_limit = time_limit
        self._model, self._sum = _scip()
        self._model.hideOutput()
        self._model.setParams(
            {"limits/time": time_limit, "limits/gap": 0.0, "parallel/maxnthreads": 1}
        )
        self.changes = np.empty(noisy.shape, dtype=object)
        costs = []
        for (region, column), n in np.ndenumerate(noisy):
            change = self._model.addVar(vtype="I", lb=-int(n), ub=int(upper[region] - n))
            cost = self._model.addVar(vtype="I", lb=0)
            self._model.addCons(change * change <= cost)
            self.changes[region, column] = change
            costs.append(cost)
        self._model.setObjective(self._sum(costs))

    def require(self, changes: Any, total: int) -> None:
        """Some changes have a sum."""
        self._model.addCons(self._sum(changes) == total)

    def add_up(self, tree: RegionTree) -> None:
        """Children add up to their parent, size by size."""
        lacking = self._noisy - tree.children_sums(self._noisy)
        for region in np.flatnonzero(~tree.is_leaf):
            children = slice(tree.first_child[region], tree.first_child[region + 1])
            for column in range(self._noisy.shape[1]):
                terms = [*self.changes[children, column], -self.changes[region, column]]
                self.require(terms, int(lacking[region, column]))

    def never_rise(self, regions: Int) -> None:
        """The rows n + y do not rise."""
        for region in regions:
            rises = np.diff(self._noisy[region])
            for column, rise in enumerate(rises):
                fall = self.changes[region, column] - self.changes[region, column + 1]
                self._model.addCons(fall >= int(rise))

    def solve(self) -> Int:
        """The optimum n + y.

        Its cost is computed anew, from integers: as it is an integer too, it is the least if it
        is less than 1 above SCIP's lower bound.
        """
        self._model.optimize()
        if self._model.getStatus() == "timelimit":
            raise SolverTimedOut(solver=SOLVER, time_limit=self._time_limit)
        if self._model.getStatus() != "optimal":
            raise NotProved(solver=SOLVER)
        value = self._model.getVal
        changes = np.array([round(value(y)) for y in self.changes.flat], dtype=np.int64)
        if float(changes @ changes) - self._model.getDualbound() >= 1:
            raise NotProved(solver=SOLVER)
        table: Int = self._noisy + changes.reshape(self._noisy.shape)
        return table


def _scip() -> tuple[Any, Any]:
    try:
        from pyscipopt import Model, quicksum
    except ImportError as error:
        raise SolverMissing(package="pyscipopt", reason=str(error)) from error
    return Model(), quicksum
