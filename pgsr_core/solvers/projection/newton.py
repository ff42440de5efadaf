"""Newton's method on the dual: damped semismooth steps, conjugate gradients, a line search.

The dual ψ is convex and piecewise quadratic, so steps with an element of its generalised
Hessian converge superlinearly once the leaves' blocks are right (Qi and Sun 1993). Far from
there a step overshoots, because rows that look free to bend are held by blocks that split only
later: hence the damping (Levenberg and Marquardt's) and the line search, which looks at the
slope ⟨F(λ + t d), d⟩ rather than at ψ, whose digits are used up by the squares of counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pgsr_core.solvers.projection import dual
from pgsr_core.solvers.projection.layout import Layout

Int = NDArray[np.int64]
Real = NDArray[np.float64]

# Conjugate gradients stop at this share of the first residual, in the preconditioner's norm.
FORCING = 0.1
MOST_CG_STEPS = 200
# Damping, in units of a leaf's stiffness: raised after a short step, lowered after a full one.
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = 0.1, 1e-9, 10.0
DAMPING_FACTOR = 4.0
SHORT_STEP = 0.5
# A step may overshoot until the slope is as much up as this share of what it was down.
MOST_OVERSHOOT = 0.5
MOST_LINE_SEARCHES = 30


class DualNewton:
    """State of the iteration. Every array has a row for each internal region.

    Args:
        layout: the tree as the dual sees it.
        noisy: the measurements, regions × sizes, C-contiguous.
        upper: the largest value of each region.
        root_total: what the root's first column is pinned to, or −1 where it is free.
    """

    def __init__(self, layout: Layout, noisy: Int, upper: Real, root_total: float) -> None:
        shape = len(layout.internal), noisy.shape[1]
        self.layout = layout
        self.noisy = noisy
        self.upper = upper
        self.root_total = root_total
        self.multipliers = np.zeros(shape)
        self.steps = 0
        self.damping = FIRST_DAMPING
        self._gradient = np.empty(shape)
        self._step = np.empty(shape)
        self._search = np.empty(shape)
        self._product = np.empty(shape)
        self._pivots = np.empty(shape)
        # Only the first few cells of a row of edges are ever touched, so most of this is
        # address space, not memory.
        self._edges = np.empty((len(layout.leaves), noisy.shape[1] + 1), dtype=np.int32)
        self._blocks = np.empty(len(layout.leaves), dtype=np.int32)
        self._sums = np.empty((len(layout.task_pool), noisy.shape[1]))
        self.residual = self._evaluate()

    def step(self) -> bool:
        """One Newton step; False where rounding errors leave no direction of descent."""
        # The gradient's storage becomes the linear system's residual: note the slope as we go.
        slope = self._solve_for_step()
        if not slope < 0:
            self.residual = self._evaluate()
            return False
        self.steps += 1
        length = self._search_along_step(slope)
        if length < SHORT_STEP:
            self.damping = min(self.damping * DAMPING_FACTOR, MOST_DAMPING)
        elif length == 1.0:
            self.damping = max(self.damping / DAMPING_FACTOR, LEAST_DAMPING)
        return True

    def leaf_rows(self, values: Real) -> None:
        """Write the leaves' fitted rows, which are monotone and within bounds, into `values`."""
        tree = self.layout
        dual.write_leaves(
            self.noisy,
            self.upper,
            self.multipliers,
            tree.leaves,
            tree.leaf_stiffness,
            tree.task_pool,
            tree.task_start,
            values,
        )

    def internal_rows(self, values: Real) -> None:
        """Write x_i = n_i + (λ_p − λ_i) / w_i of the internal regions into `values`."""
        tree = self.layout
        for i, region in enumerate(tree.internal):
            pull = -self.multipliers[i]
            if tree.above[i] >= 0:
                pull += self.multipliers[tree.above[i]]
            values[region] = self.noisy[region] + pull * tree.stiffness[i]
        if self.root_total >= 0:
            values[0, 0] = self.root_total

    def _evaluate(self) -> float:
        """Gradient and blocks at the multipliers; the largest violation of consistency."""
        tree = self.layout
        dual.fit_pools(
            self.noisy,
            self.upper,
            self.multipliers,
            tree.leaves,
            tree.leaf_stiffness,
            tree.task_pool,
            tree.task_start,
            self._edges,
            self._blocks,
            self._sums,
        )
        return float(
            dual.gradient(
                self.noisy,
                self.multipliers,
                tree.internal,
                tree.above,
                tree.stiffness,
                tree.pool_start,
                self._sums,
                self.root_total,
                self._gradient,
            )
        )

    def _search_along_step(self, slope: float) -> float:
        """Move along the step, by secants on its slope until it no longer overshoots much."""
        length = 1.0
        self.multipliers += self._step
        self.residual = self._evaluate()
        for _ in range(MOST_LINE_SEARCHES):
            new_slope = dual.inner(self._gradient, self._step)
            if not new_slope > MOST_OVERSHOOT * -slope:
                break
            shorter = length * -slope / (new_slope - slope)
            self.multipliers += (shorter - length) * self._step
            length = shorter
            self.residual = self._evaluate()
        return length

    def _solve_for_step(self) -> float:
        """Preconditioned conjugate gradients on (H + damping) d = −F; returns ⟨F, d⟩."""
        tree = self.layout
        self._factorise()
        residual, search, solved = self._gradient, self._search, self._product
        np.negative(residual, out=residual)
        self._step[:] = 0.0
        energy = dual.precondition(residual, tree.above, tree.stiffness, self._pivots, solved)
        search[:] = solved
        enough = FORCING**2 * energy
        descent = 0.0
        # Invariant: residual = −F − (H + damping) step, energy = ⟨residual, M⁻¹ residual⟩, and
        # descent = ⟨−F, step⟩, since ⟨−F, search⟩ = energy at every step of the method.
        for _ in range(MOST_CG_STEPS):
            curvature = self._hessian_product(search, self._product)
            if not (energy > 0 and curvature > 0):
                break
            length = energy / curvature
            dual.advance(length, search, self._product, self._step, residual)
            descent += length * energy
            solved = self._product
            new_energy = dual.precondition(
                residual, tree.above, tree.stiffness, self._pivots, solved
            )
            if not new_energy > enough:
                break
            dual.combine(solved, new_energy / energy, search)
            energy = new_energy
        return -descent

    def _hessian_product(self, direction: Real, out: Real) -> float:
        tree = self.layout
        return float(
            dual.hessian_product(
                direction,
                tree.above,
                tree.stiffness,
                tree.leaf_stiffness,
                tree.pool_leaves,
                self._edges,
                self._blocks,
                self.root_total >= 0,
                self.damping,
                out,
            )
        )

    def _factorise(self) -> None:
        tree = self.layout
        dual.factorise(
            tree.above,
            tree.stiffness,
            tree.leaf_stiffness,
            tree.pool_leaves,
            self._edges,
            self._blocks,
            self.root_total >= 0,
            self.damping,
            self._pivots,
        )
