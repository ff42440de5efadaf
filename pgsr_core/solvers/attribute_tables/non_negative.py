"""The exact non-negative optimum: the weighted squares of `closed_form` with x ≥ 0 in the leaves.

Alternating directions: the quadratic step is the closed form, in which a leaf's proximal term is
one more measurement of its full table (`proximal`). Leaves start at the closed form.

Rounds go on until the certificate holds: every published number lies within `distance` of its own
standard deviations from the optimum (`certificate`).

Where a leaf's full table is not measured the optimum is not unique, and a rule must choose: the
squares plus RIDGE times the least precise class's weight on the squared distance from the closed
form, which has the least norm. That draws the margins, too; so the answer takes the closed
form's place and the step is repeated (the proximal point method, Rockafellar 1976), whose limit
is an optimum of the squares alone. The certificate is that of the last step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from pgsr_core.solvers.attribute_tables.certificate import Certificate, certify
from pgsr_core.solvers.attribute_tables.closed_form import State, gather, hand_down
from pgsr_core.solvers.attribute_tables.plan import Plan
from pgsr_core.solvers.attribute_tables.problem import Problem, keep_totals
from pgsr_core.solvers.attribute_tables.proximal import STIFFNESS, advance, mix
from pgsr_core.solvers.attribute_tables.schema import Int, Real
from pgsr_core.solvers.attribute_tables.threads import threads_for
from pgsr_core.solvers.attribute_tables.weights import Weights, weigh
from pgsr_core.solvers.isotonic import read_only

RIDGE = 0.1
REPEATED = 6
CHECKED_EVERY = 10
MOST_ROUNDS = 20_000


class NonNegative(NamedTuple):
    """The optimum.

    Attributes:
        cells: regions × cells, non-negative and consistent along the tree.
        multipliers: of x ≥ 0, leaves × cells.
        rounds: how many were needed.
        certificate: how far it can be from the optimum.
    """

    cells: Real
    multipliers: Real
    rounds: int
    certificate: Certificate


def non_negative(
    problem: Problem, *, distance: float = 0.1, most_rounds: int = MOST_ROUNDS
) -> NonNegative:
    """The optimum, certified.

    Args:
        problem: measurements and public facts.
        distance: how many of its own standard deviations a published number may be from the
            optimum's.
        most_rounds: where to stop although the certificate does not hold; it then says so.
    """
    ridged = with_full_leaves(problem, None)
    found = _solve(ridged, distance, most_rounds)
    for _ in range(REPEATED if ridged.ridge is not None else 0):
        more = _solve(with_full_leaves(problem, found.cells), distance, most_rounds)
        found = more._replace(rounds=found.rounds + more.rounds)
    return found


def _solve(problem: Problem, distance: float, most_rounds: int) -> NonNegative:
    tree, leaves = problem.tree, problem.tree.leaves
    rho = STIFFNESS / problem.own[leaves, -1]
    own = problem.own.copy()
    with np.errstate(divide="ignore", invalid="ignore"):
        own[leaves] = 1.0 / (1.0 / own[leaves] + rho[:, None])
        keep = np.where(problem.own[leaves] > 0, own[leaves] / problem.own[leaves], 1.0)
    weights = weigh(tree, own)
    held = closed_form_of(problem)[leaves]
    work = State(*(np.empty_like(part) for part in problem.state))
    rounds = 0
    while True:
        for _ in range(CHECKED_EVERY):
            _round(problem, weights, keep, held, work)
        rounds += CHECKED_EVERY
        cells, multipliers = _solution(problem, held, rho, work.cells)
        found = certify(problem, cells, multipliers)
        if found.distance <= distance or rounds >= most_rounds:
            return NonNegative(cells, multipliers, rounds, found)


def _round(problem: Problem, weights: Weights, keep: Real, held: Real, work: State) -> None:
    tree, plan, leaves = problem.tree, problem.plan, read_only(problem.tree.leaves)
    inner = np.flatnonzero(~tree.is_leaf)
    for now, first in zip(work, problem.state, strict=True):
        now[inner] = first[inner]
    with threads_for(held.size):
        _measure(plan, leaves, held, problem.possible, keep, problem.state, work)
    gather(tree, weights, plan, work)
    hand_down(tree, weights, plan, work)
    with threads_for(held.size):
        _step(leaves, work.cells, problem.possible, held)


def closed_form_of(problem: Problem) -> Real:
    """Least squares without bounds."""
    weights = weigh(problem.tree, problem.own)
    state = State(*(part.copy() for part in problem.state))
    gather(problem.tree, weights, problem.plan, state)
    hand_down(problem.tree, weights, problem.plan, state)
    return state.cells


def with_full_leaves(problem: Problem, target: Real | None) -> Problem:
    """The problem in which every leaf's full table has a finite variance: the ridge, if needed."""
    leaves = problem.tree.leaves
    bare = leaves[np.isinf(problem.own[leaves, -1])]
    if not len(bare):
        return problem
    target = closed_form_of(problem) if target is None else target
    finite = problem.own[np.isfinite(problem.own) & (problem.own > 0)]
    ridge = (finite.max() if len(finite) else 1.0) / RIDGE
    own = problem.own.copy()
    with np.errstate(divide="ignore", invalid="ignore"):
        own[bare] = 1.0 / (1.0 / own[bare] + 1.0 / ridge)
        keep = np.where(problem.own[bare] > 0, own[bare] / problem.own[bare], 1.0)
    state = State(*(part.copy() for part in problem.state))
    # With every cell called impossible, what is measured is −held itself.
    nowhere = np.zeros(problem.schema.cells, dtype=bool)
    _measure(problem.plan, read_only(bare), -target[bare], nowhere, keep, problem.state, state)
    cell_variance = ridge / problem.schema.cells
    return problem._replace(own=own, state=state, ridge=(bare, target[bare], cell_variance))


def _solution(problem: Problem, held: Real, rho: Real, spare: Real) -> tuple[Real, Real]:
    """Feasible cells of all regions, and multipliers of the leaves' bounds."""
    tree, leaves = problem.tree, problem.tree.leaves
    cells = np.zeros_like(spare)
    cells[leaves] = np.maximum(held, 0.0) * problem.possible
    keep_totals(problem, cells)
    tree.aggregate(cells)  # type: ignore[arg-type]
    return cells, np.maximum(-held, 0.0) * (rho * problem.schema.cells)[:, None]


@njit(cache=True, parallel=True)
def _measure(
    plan: Plan,
    leaves: Int,
    held: Real,
    possible: NDArray[np.bool_],
    keep: Real,
    first: State,
    work: State,
) -> None:
    """Leaves' state from their own tables and z − u as one more measurement."""
    cells0, known0, carried0 = first
    cells, known, carried = work
    for number in prange(len(leaves)):
        leaf = leaves[number]
        mix(
            plan,
            held[number],
            possible,
            keep[number],
            (cells0[leaf], known0[leaf], carried0[leaf]),
            (cells[leaf], known[leaf], carried[leaf]),
        )


@njit(cache=True, parallel=True)
def _step(leaves: Int, cells: Real, possible: NDArray[np.bool_], held: Real) -> None:
    for number in prange(len(leaves)):
        advance(cells[leaves[number]], possible, held[number])
