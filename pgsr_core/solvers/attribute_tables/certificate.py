"""Whether cells are the non-negative optimum, from its conditions, whoever found them.

Let f be the weighted squares, H its second derivative, z feasible cells and λ ≥ 0 multipliers of
the bounds. With r = ∇f(z) − λ (less the multipliers of public totals, which are constant over the
leaves that share their lowest public region), and x* the optimum,

    |z − x*|²_H = (∇f(z) − ∇f(x*))·(z − x*) ≤ ∇f(z)·(z − x*) ≤ |r|_{H⁻¹} |z − x*|_H + λ·z,

since λ·x* ≥ 0 and ∇f(x*)·(z − x*) ≥ 0. So |z − x*|_H ≤ (a + √(a² + 4 λ·z)) / 2 with a = |r|_{H⁻¹}.
By Cauchy and Schwarz in the norm of H, a linear function of the cells that has the variance σ²
in the closed form differs by at most σ |z − x*|_H: that norm is the *distance*.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from pgsr_core.solvers.attribute_tables.closed_form import State, gather, hand_down
from pgsr_core.solvers.attribute_tables.plan import Plan
from pgsr_core.solvers.attribute_tables.problem import NOT_PUBLIC, Problem, public_groups
from pgsr_core.solvers.attribute_tables.region import sum_cells, take_components
from pgsr_core.solvers.attribute_tables.schema import Int, Real
from pgsr_core.solvers.attribute_tables.weights import weigh
from pgsr_core.solvers.isotonic import read_only


class Certificate(NamedTuple):
    """What is left of each condition.

    Attributes:
        distance: how many of its own standard deviations any published number can be from the
            optimum's; infinite if the cells are not feasible.
        stationarity: largest entry of r, in the unit of the cells of a leaf.
        complementarity: λ·z.
        equalities: largest miss of a sum along the tree or of a public total.
        negative: largest violation of a bound, of a cell or of a multiplier.
    """

    distance: float
    stationarity: float
    complementarity: float
    equalities: float
    negative: float


def certify(problem: Problem, cells: Real, multipliers: Real) -> Certificate:
    """Check the conditions.

    Args:
        problem: measurements and public facts, with a finite variance of leaves' full tables.
        cells: regions × cells.
        multipliers: of the leaves' bounds; those of impossible cells do not matter.
    """
    tree, possible = problem.tree, problem.possible
    leaves = tree.leaves
    rest = gradient_of(problem, cells)[leaves] - multipliers
    rest[:, ~possible] = 0.0
    _without_totals(problem, rest)
    sums = tree.children_sums(cells)  # type: ignore[arg-type]
    public = problem.totals != NOT_PUBLIC
    missed = np.abs(cells[public].sum(axis=1) - problem.totals[public])
    equalities = max(float(np.abs(sums - cells).max()), float(missed.max(initial=0.0)))
    bounds = max(-float(cells[leaves].min()), -float(multipliers[:, possible].min(initial=0.0)))
    bounds = max(bounds, float(np.abs(cells[:, ~possible]).max(initial=0.0)), 0.0)
    both = max(0.0, float((multipliers * cells[leaves])[:, possible].sum()))
    size = math.sqrt(max(0.0, _inverse_norm(problem, rest)))
    distance = (size + math.sqrt(size * size + 4.0 * both)) / 2.0
    unit = problem.own[leaves, -1] / problem.schema.cells
    feasible = equalities <= 1e-9 * max(1.0, float(cells[0].sum())) and bounds == 0.0
    return Certificate(
        distance if feasible else math.inf,
        float(np.abs(rest * unit[:, None]).max(initial=0.0)),
        both,
        equalities,
        bounds,
    )


def gradient_of(problem: Problem, cells: Real) -> Real:
    """Regions × cells: the derivative of the weighted squares, straight from the tables.

    A region's row counts its own tables and those of all regions above it.
    """
    schema, tree = problem.schema, problem.tree
    shape = (len(cells), *schema.domains)
    gradient = np.zeros(shape)
    for place, table in enumerate(schema.tables):
        noise = problem.noise[:, place]
        counted = np.isfinite(noise) & (noise > 0)
        missed = schema.margin(cells, schema.full, table) - problem.measured[place]
        missed = np.where(counted[:, None], missed, 0.0)
        missed /= np.where(counted, noise, 1.0)[:, None]
        sides = [n if a in table else 1 for a, n in enumerate(schema.domains)]
        gradient += missed.reshape(len(cells), *sides)
    flat = gradient.reshape(cells.shape)
    if problem.ridge is not None:
        bare, target, variance = problem.ridge
        flat[bare] += (cells[bare] - target) / variance
    for level in range(1, tree.levels):
        start, stop = tree.level_start[level], tree.level_start[level + 1]
        flat[start:stop] += flat[tree.parent[start:stop]]
    return flat


def _without_totals(problem: Problem, rest: Real) -> None:
    """Take out what multipliers of public totals can explain: a constant for each group."""
    leaves, possible = problem.tree.leaves, problem.possible
    group = public_groups(problem.tree, problem.totals)[leaves]
    if (group < 0).all() or not possible.any():
        return
    sums = np.bincount(group + 1, rest.sum(axis=1), minlength=problem.tree.regions + 1)
    members = np.bincount(group + 1, minlength=problem.tree.regions + 1)
    mean = sums / np.maximum(members, 1) / possible.sum()
    mean[0] = 0.0
    rest[:, possible] -= mean[group + 1][:, None]


def _inverse_norm(problem: Problem, rest: Real) -> float:
    """r·H⁻¹r: the closed form with r as its right-hand side is H⁻¹r."""
    tree, plan, leaves = problem.tree, problem.plan, problem.tree.leaves
    state = State(*(np.zeros_like(part) for part in problem.state))
    scale = problem.own / problem.schema.cells
    _right_hand_side(plan, read_only(leaves), rest, scale, state)
    weights = weigh(tree, problem.own)
    gather(tree, weights, plan, state)
    hand_down(tree, weights, plan, state)
    return float((rest * state.cells[leaves]).sum())


@njit(cache=True)
def _right_hand_side(plan: Plan, leaves: Int, rest: Real, scale: Real, state: State) -> None:
    cells, known, carried = state
    full = len(plan.density)
    for number in range(len(leaves)):
        leaf = leaves[number]
        packed = carried[leaf]
        sum_cells(plan, rest[number], packed)
        take_components(plan, packed)
        for one in range(full):
            for place in range(plan.start[one], plan.start[one + 1]):
                known[leaf, place] = scale[leaf, one] * packed[place]
        for place in range(plan.small):
            packed[place] *= scale[leaf, full]
        for cell in range(rest.shape[1]):
            cells[leaf, cell] = scale[leaf, full] * rest[number, cell]
