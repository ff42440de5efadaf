"""Kernels for a leaf: the bounded isotonic fit of a shifted row, and the blocks it pools.

Same geometry as the integer isotonic regression (the concave majorant of prefix sums, with
points dropped in bulk), in doubles, and keeping the blocks: averaging over them is the
derivative of the fit (the generalised Jacobian of the projection onto the monotone cone).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pgsr_core.solvers.isotonic import upper_hull

Int = NDArray[np.int64]
Real = NDArray[np.float64]


@njit(cache=True)
def _candidate_points(values: Int, shift: Real, position: Int, height: Real) -> int:
    """Write prefix sums of values + shift that may be hull vertices, up to the highest.

    The highest prefix sum is a vertex past which every slope is at most zero, hence clipped.
    """
    columns = values.shape[0]
    position[0], height[0] = 0, 0.0
    highest, most, last, total = 0, 0.0, 1, 0.0
    previous = values[0] + shift[0]
    # Invariant: points 0..last−1 are candidates among boundaries 0..k−1; `previous` is cell
    # k − 1. A boundary survives only where values fall, and the highest is such a one.
    for k in range(1, columns):
        current = values[k] + shift[k]
        total += previous
        position[last] = k
        height[last] = total
        highest = last if total > most else highest
        most = max(most, total)
        last += previous > current
        previous = current
    total += previous
    position[last] = columns
    height[last] = total
    return last if total > most else highest


@njit(cache=True)
def pool_leaf(
    values: Int, shift: Real, upper: float, position: Int, height: Real
) -> tuple[int, int]:
    """Hull vertices of values + shift in `position` and `height`; blocks first..last are free.

    Block b spans cells position[b] : position[b + 1] and has the mean slope of its edge. Cells
    before block `first` are at the upper bound, cells from position[last] on at zero.
    """
    last = _candidate_points(values, shift, position, height)
    top = upper_hull(position, height, last)
    first = 0
    while first < top and height[first + 1] - height[first] >= upper * (
        position[first + 1] - position[first]
    ):
        first += 1
    return first, top


@njit(cache=True)
def add_leaf(upper: float, first: int, last: int, position: Int, height: Real, sums: Real) -> None:
    """Add the fitted row to `sums`."""
    for k in range(position[first]):
        sums[k] += upper
    for b in range(first, last):
        level = (height[b + 1] - height[b]) / (position[b + 1] - position[b])
        for k in range(position[b], position[b + 1]):
            sums[k] += level
