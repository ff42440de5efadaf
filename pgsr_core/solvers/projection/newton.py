"""Newton's method on the dual: damped semismooth steps, conjugate gradients, a line search.

The dual ψ is convex and piecewise quadratic, so steps with an element of its generalised
Hessian converge superlinearly once the blocks of the fits are right (Qi and Sun 1993). Far
from there a step overshoots, because rows that look free to bend are held by blocks that split
only later: hence the damping (Levenberg and Marquardt's) and the line search, which looks at
the slope ⟨F(λ + t d), d⟩ rather than at ψ, whose digits are used up by the squares of counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pgsr_core.solvers.projection import dual, preconditioner
from pgsr_core.solvers.projection.fits import Blocks
from pgsr_core.solvers.projection.layout import Layout

Int = NDArray[np.int64]
Real = NDArray[np.float64]

# Conjugate gradients stop when their residual, in the preconditioner's norm and in its largest
# entry, is at most these shares of what it was.
NORM_SHARE, LARGEST_SHARE = 0.3, 0.1
MOST_CG_STEPS = 200
# As a share of the steepest curvature that the dual can have.
FIRST_DAMPING = 0.01
# A step is good when the slope at its end is within ± this share of the slope at its start.
SLOPE_SHARE = 0.5
MOST_LINE_SEARCHES = 30


class DualNewton:
    """State of the iteration; its arrays have a row for each internal region.

    Args:
        layout: the tree as the dual sees it.
        noisy: the measurements, regions × sizes, C-contiguous.
        upper: the largest value of each region.

    Attributes:
        residual: the largest violation of consistency at the present multipliers.
        steps: steps taken.
    """

    def __init__(self, layout: Layout, noisy: Int, upper: Real) -> None:
        columns = noisy.shape[1]
        shape = len(layout.internal), columns
        self._layout, self._noisy, self._upper = layout, noisy, upper
        self._multipliers = np.empty(shape)
        self._gradient = np.empty(shape)
        self._step = np.empty(shape)
        self._search = np.empty(shape)
        self._product = np.empty(shape)
        self._links = np.empty(shape, np.float32)
        self._pivots = np.empty(shape, np.float32)
        self._damping = np.full((shape[0], -(-columns // dual.BAND)), FIRST_DAMPING)
        self._leaf_blocks = Blocks.empty(len(layout.leaves), columns)
        self._blocks = Blocks.empty(shape[0], columns)
        self._sums = np.empty((len(layout.task_pool), columns))
        self.steps = 0
        dual.guess(layout, noisy, upper, self._blocks, self._multipliers)
        self.residual = self._evaluate()

    def step(self) -> bool:
        """One Newton step; False where rounding errors leave no direction of descent."""
        slope = self._solve_for_step()
        if not slope < 0:
            self.residual = self._evaluate()
            return False
        self.steps += 1
        # The linear system's residual is in the gradient's place: keep it out of harm's way.
        unsolved, self._gradient, self._search = self._gradient, self._search, self._gradient
        self._multipliers += self._step
        self.residual = self._evaluate()
        dual.adapt_damping(self._layout, self._gradient, unsolved, self._step, self._damping)
        self._shorten(slope)
        return True

    def values(self) -> Real:
        """The table at the present multipliers; leaves are monotone and within bounds."""
        table = np.empty(self._noisy.shape)
        given = self._layout, self._noisy, self._upper, self._multipliers
        dual.write_leaves(*given, table)
        dual.write_internal(*given, self._blocks, table)
        return table

    def _evaluate(self) -> float:
        """Gradient and blocks at the multipliers; the largest violation of consistency."""
        given = self._layout, self._noisy, self._upper, self._multipliers
        dual.fit_pools(*given, self._leaf_blocks, self._sums)
        return float(dual.gradient(*given, self._sums, self._blocks, self._gradient))

    def _shorten(self, slope: float) -> None:
        """Shorten a full step that overshot, until the slope at its end is small."""
        length = 1.0
        low, low_slope, high, high_slope = 0.0, slope, 0.0, 0.0
        # Invariant: the slope is negative at `low`; from the first pass on, positive at `high`.
        for _ in range(MOST_LINE_SEARCHES):
            end_slope = dual.inner(self._gradient, self._step)
            if end_slope > SLOPE_SHARE * -slope:
                # Halve the slope of an end that stays, or secants would creep (Illinois rule).
                low_slope *= 0.5 if high > 0 else 1.0
                high, high_slope = length, end_slope
            elif high > 0 and end_slope < SLOPE_SHARE * slope:
                high_slope *= 0.5
                low, low_slope = length, end_slope
            else:
                return
            between = low + (high - low) * -low_slope / (high_slope - low_slope)
            self._multipliers += (between - length) * self._step
            length = between
            self.residual = self._evaluate()

    def _solve_for_step(self) -> float:
        """Preconditioned conjugate gradients on (H + damping) d = −F; returns ⟨F, d⟩."""
        layout, links, pivots = self._layout, self._links, self._pivots
        blocks = self._leaf_blocks, self._blocks
        preconditioner.factorise(layout, *blocks, self._damping, links, pivots)
        residual, search, product = self._gradient, self._search, self._product
        np.negative(residual, out=residual)
        self._step[:] = 0.0
        energy = preconditioner.precondition(layout, residual, links, pivots, search)
        enough = NORM_SHARE**2 * energy
        descent = 0.0
        # Invariant: residual = −F − (H + damping) step, energy = ⟨residual, M⁻¹ residual⟩, and
        # descent = ⟨−F, step⟩, since ⟨−F, search⟩ = energy in every pass.
        for _ in range(MOST_CG_STEPS):
            curvature = dual.hessian_product(layout, search, *blocks, self._damping, product)
            if not (energy > 0 and curvature > 0):
                break
            length = energy / curvature
            largest = preconditioner.advance(length, search, product, self._step, residual)
            descent += length * energy
            # The product is no longer needed: its place takes M⁻¹ residual.
            new_energy = preconditioner.precondition(layout, residual, links, pivots, product)
            if not (new_energy > enough or largest > LARGEST_SHARE * self.residual):
                break
            preconditioner.combine(product, new_energy / energy, search)
            energy = new_energy
        return -descent
