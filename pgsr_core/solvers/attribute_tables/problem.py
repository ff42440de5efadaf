"""A whole problem, checked once: what the solvers with bounds have in common."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.attribute_tables.closed_form import Measured, State, gather_tables
from pgsr_core.solvers.attribute_tables.plan import Plan, make_plan
from pgsr_core.solvers.attribute_tables.schema import Int, Real, Schema, TablesDoNotFit
from pgsr_core.solvers.attribute_tables.weights import by_region, own_variances

NOT_PUBLIC = -1


class TotalsDoNotFit(TablesDoNotFit):
    """Public totals contradict each other, or leave no room for whole numbers of people."""


class Problem(NamedTuple):
    """Measurements and public facts.

    Attributes:
        noise: regions × tables, variances.
        own: regions × classes, variances of what a region's own tables say together.
        state: what they say.
        possible: for each cell of the full table, whether anybody can be in it.
        totals: public total of each region, NOT_PUBLIC where there is none.
        measured: the tables themselves.
        ridge: regions whose full table is drawn to a target, the target, and the variance.
    """

    tree: RegionTree
    schema: Schema
    plan: Plan
    noise: Real
    own: Real
    state: State
    possible: NDArray[np.bool_]
    totals: Int
    measured: Measured
    ridge: tuple[Int, Real, float] | None = None


def make_problem(
    tree: RegionTree,
    schema: Schema,
    measured: Measured,
    *,
    variances: ArrayLike,
    possible: NDArray[np.bool_] | None = None,
) -> Problem:
    """Check and gather.

    Raises:
        TablesDoNotFit: shapes or variances do not fit, or another table than the total is public.
        TotalsDoNotFit: no whole numbers can have the public totals.
    """
    plan = make_plan(schema)
    noise = by_region(tree, variances, schema)
    own = own_variances(schema, noise)
    some = np.ones(schema.cells, dtype=bool) if possible is None else np.asarray(possible, bool)
    if some.shape != (schema.cells,):
        raise TablesDoNotFit(
            f"possible cells have shape {some.shape}, expected ({schema.cells},). "
            "Remedy: say of each cell of the full table whether it can occur."
        )
    totals = np.full(tree.regions, NOT_PUBLIC, dtype=np.int64)
    for place, table in enumerate(schema.tables):
        exact = noise[:, place] == 0.0
        if table and exact.any():
            raise TablesDoNotFit(
                f"table {table} is public in some regions, and only totals can be. "
                "Remedy: give every other table noise."
            )
        if not table:
            totals[exact] = np.asarray(measured[place])[exact, 0]
            if (measured[place][exact, 0] != totals[exact]).any() or (totals[exact] < 0).any():
                raise TotalsDoNotFit(
                    "a public total is no whole number of people. Remedy: correct the totals."
                )
    least_totals(tree, totals, room=bool(some.any()))
    state = gather_tables(tree, schema, plan, measured, noise=noise, own=own)
    return Problem(tree, schema, plan, noise, own, state, some, totals, measured)


def least_totals(
    tree: RegionTree, totals: Int, *, room: bool = True
) -> tuple[Int, NDArray[np.bool_]]:
    """For each region the fewest people that public totals allow, and whether that is exact.

    Raises:
        TotalsDoNotFit: totals beneath a public one pass it, or do not reach it although they
            cover it; or there are people and no possible cell.
    """
    least = np.maximum(totals, 0)
    exact = totals != NOT_PUBLIC
    for region in range(tree.regions - 1, -1, -1):
        start, stop = tree.first_child[region], tree.first_child[region + 1]
        if start == stop:
            continue
        below, covered = int(least[start:stop].sum()), bool(exact[start:stop].all())
        if totals[region] == NOT_PUBLIC:
            least[region], exact[region] = below, covered
        elif below > totals[region] or (covered and below != totals[region]):
            raise TotalsDoNotFit(
                f"the public total of region {tree.names[region]} is {totals[region]}, and those "
                f"beneath it add up to {below}. Remedy: correct the totals."
            )
    if not room and least[0] > 0:
        raise TotalsDoNotFit(
            "every cell is impossible and yet public totals count people. Remedy: correct either."
        )
    return least, exact


def public_groups(tree: RegionTree, totals: Int) -> Int:
    """For each region the lowest region at or above it whose total is public; −1 without one."""
    group = np.where(totals != NOT_PUBLIC, np.arange(tree.regions), -1)
    for level in range(1, tree.levels):
        start, stop = tree.level_start[level], tree.level_start[level + 1]
        inherited = group[tree.parent[start:stop]]
        group[start:stop] = np.where(group[start:stop] < 0, inherited, group[start:stop])
    return group


def keep_totals(problem: Problem, cells: Real) -> None:
    """Scale the leaves' cells, in place, to the public totals; other rows do not matter.

    The leaves that share their lowest public region have one sum to keep: its total without those
    of the public regions right beneath it.
    """
    tree, totals = problem.tree, problem.totals
    public = np.flatnonzero(totals != NOT_PUBLIC)
    if not len(public):
        return
    group = public_groups(tree, totals)
    wanted = np.where(totals != NOT_PUBLIC, totals, 0).astype(np.float64)
    for region in public:
        above = group[tree.parent[region]] if region > 0 else -1
        if above >= 0:
            wanted[above] -= totals[region]
    leaves = tree.leaves
    held = np.bincount(group[leaves] + 1, cells[leaves].sum(axis=1), minlength=tree.regions + 1)[1:]
    members = np.bincount(group[leaves] + 1, minlength=tree.regions + 1)[1:]
    for region in public:
        mine = leaves[group[leaves] == region] if held[region] <= 0 < wanted[region] else None
        if mine is not None and members[region]:
            cells[mine] = problem.possible / (len(mine) * problem.possible.sum())
            held[region] = 1.0
    factor = np.ones(tree.regions + 1)
    factor[public] = np.where(
        held[public] > 0, wanted[public] / np.maximum(held[public], 1e-300), 0
    )
    cells[leaves] *= factor[group[leaves]][:, None]
