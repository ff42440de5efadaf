"""M_dp^OP: the dynamic program on the tree, with a constraint program for each table entry.

For each size there is one copy of the region tree, and all roots hang under a dummy root whose
value is G. A node's cost table is (Fioretto and Van Hentenryck 2019, section 6, Figure 5)

    τ(v) = (v − n)² + φ(v),   φ(v) = min { Σ τ_c(x_c) : Σ x_c = v, x_c in D_c },   v in D,

and every φ(v) is a constraint program of its own: children's cost tables as table constraints,
solved by OR-tools CP-SAT. That tables are convex (Lemma 5) is not used; `cost_tables` has the
version that uses it.

CP-SAT computes with integers, on one thread with a fixed seed: its answers are exact, and the
same with the same version. The time limit ends a run without an answer, so it never changes one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.generic.errors import SolverMissing, SolverTimedOut

Int = NDArray[np.int64]
CostTable = Mapping[int, int]
SOLVER = "CP-SAT"


def solve_by_constraint_tables(
    tree: RegionTree,
    noisy: Int,
    *,
    groups: int,
    radii: Sequence[int],
    cheapest: CheapestShares,
) -> Int | None:
    """The optimum over the domains {n − δ .. n + δ} clipped at 0, or None where they have none.

    Args:
        tree: the region tree.
        noisy: noisy counts (regions × sizes).
        groups: G, the sum of the root's row.
        radii: δ of each level, root first.
        cheapest: solves the constraint programs, in the time that it has.

    Raises:
        SolverTimedOut: no optimum in time.
    """
    radius = np.array(radii)[tree.level]
    columns = range(noisy.shape[1])
    tables = [_tables(tree, noisy[:, column], radius, cheapest) for column in columns]
    totals = cheapest([tables[column][0] for column in columns], groups)
    if totals is None:
        return None
    counts = np.zeros(noisy.shape, dtype=np.int64)
    counts[0] = totals
    for region in np.flatnonzero(~tree.is_leaf):
        children = range(tree.first_child[region], tree.first_child[region + 1])
        for column in columns:
            below = [tables[column][child] for child in children]
            # A value that a table holds can be shared out: that is how it got there.
            shares = cast(list[int], cheapest(below, int(counts[region, column])))
            counts[children, column] = shares
    return counts


def _tables(tree: RegionTree, noisy: Int, radius: Int, cheapest: CheapestShares) -> list[CostTable]:
    """The cost table of every region for one size, leaves first."""
    tables: list[CostTable] = [{}] * tree.regions
    for region in range(tree.regions - 1, -1, -1):
        n, delta = int(noisy[region]), int(radius[region])
        domain = range(max(0, n - delta), n + delta + 1)
        inner: CostTable = dict.fromkeys(domain, 0)
        if not tree.is_leaf[region]:
            children = tables[tree.first_child[region] : tree.first_child[region + 1]]
            inner = _inner_costs(children, domain, cheapest)
        tables[region] = {v: (v - n) ** 2 + cost for v, cost in inner.items()}
    return tables


def _inner_costs(
    children: Sequence[CostTable], domain: Iterable[int], cheapest: CheapestShares
) -> CostTable:
    """φ(v) for the values of a domain that children can add up to."""
    shares = {v: cheapest(children, v) for v in domain}
    return {
        v: sum(table[x] for table, x in zip(children, values, strict=True))
        for v, values in shares.items()
        if values is not None
    }


class CheapestShares:
    """Shares a value out among children at the least cost, by a constraint program.

    Args:
        time_limit: seconds that all programs together may take, as the solver counts them.

    Raises:
        SolverMissing: OR-tools is not installed.
    """

    def __init__(self, time_limit: float) -> None:
        self._cp = _cp_sat()
        self._time_limit = self._left = time_limit

    def __call__(self, tables: Sequence[CostTable], total: int) -> list[int] | None:
        """One value of each table, with a given sum; None where none have it.

        Raises:
            SolverTimedOut: the time of all programs is used up.
        """
        if not all(tables) or not sum(map(min, tables)) <= total <= sum(map(max, tables)):
            return None
        model = self._cp.CpModel()
        values, costs = [], []
        for number, table in enumerate(tables):
            value = model.new_int_var(min(table), max(table), f"x{number}")
            cost = model.new_int_var(0, max(table.values()), f"cost{number}")
            model.add_allowed_assignments([value, cost], list(table.items()))
            values.append(value)
            costs.append(cost)
        model.add(sum(values) == total)
        model.minimize(sum(costs))
        solver = self._cp.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        solver.parameters.max_time_in_seconds = self._left
        status = solver.solve(model)
        self._left -= solver.wall_time
        if status == self._cp.INFEASIBLE:
            return None
        if status != self._cp.OPTIMAL or self._left <= 0:
            raise SolverTimedOut(solver=SOLVER, time_limit=self._time_limit)
        return [int(solver.value(value)) for value in values]


def _cp_sat() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise SolverMissing(package="ortools", reason=str(error)) from error
    return cp_model
