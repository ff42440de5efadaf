"""The step that both solvers with bounds share: alternating directions in one region.

Let s be the sum of iterate and scaled multiplier of x ≥ 0. Then z = max(s, 0), u = min(s, 0), and
z − u, which the next quadratic step measures as one more full table, is |s|: one array holds it
all. Impossible cells have z = 0 and u = s. (Boyd et al. 2011, section 5.2, over-relaxed.)
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pgsr_core.solvers.attribute_tables.plan import Plan
from pgsr_core.solvers.attribute_tables.region import sum_cells, take_components
from pgsr_core.solvers.attribute_tables.schema import Real

# The proximal term's weight beside the full table's own.
STIFFNESS = 5.0
RELAXATION = 1.7


@njit(cache=True)
def mix(
    plan: Plan,
    held: Real,
    possible: NDArray[np.bool_],
    keep: Real,
    first: tuple[Real, Real, Real],
    work: tuple[Real, Real, Real],
) -> None:
    """A region's own estimate, and z − u as one more measurement that counts 1 − keep."""
    cells0, known0, carried0 = first
    cells, known, carried = work
    full = len(plan.density)
    for cell in range(len(held)):
        cells[cell] = abs(held[cell]) if possible[cell] else -held[cell]
    sum_cells(plan, cells, carried)
    take_components(plan, carried)
    for one in range(full):
        for place in range(plan.start[one], plan.start[one + 1]):
            known[place] = keep[one] * known0[place] + (1.0 - keep[one]) * carried[place]
    for place in range(plan.small):
        carried[place] = keep[full] * carried0[place] + (1.0 - keep[full]) * carried[place]
    for cell in range(len(held)):
        cells[cell] = keep[full] * cells0[cell] + (1.0 - keep[full]) * cells[cell]


@njit(cache=True)
def advance(cells: Real, possible: NDArray[np.bool_], held: Real) -> float:
    """The next s; returns the larger of both residuals."""
    worst = 0.0
    for cell in range(len(held)):
        s = held[cell]
        z = max(s, 0.0) if possible[cell] else 0.0
        s = RELAXATION * (cells[cell] - z) + s
        held[cell] = s
        new = max(s, 0.0) if possible[cell] else 0.0
        worst = max(worst, abs(new - z), abs(cells[cell] - new))
    return worst
