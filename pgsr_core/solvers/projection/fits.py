"""Kernels for one row: its bounded isotonic fit under a shift, and averages over its blocks.

Same geometry as the integer isotonic regression (the concave majorant of prefix sums), in
doubles, and keeping the blocks: averaging over them is the derivative of the fit, an element of
the generalised Jacobian of the projection onto the monotone cone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pgsr_core.solvers.isotonic import upper_hull

Int = NDArray[np.int64]
Int32 = NDArray[np.int32]
Real = NDArray[np.float64]


class Blocks(NamedTuple):
    """The free blocks of many rows: block b of row r is ``edges[r, b] : edges[r, b + 1]``.

    Cells left of the first edge are at the upper bound, cells right of the last one at zero.
    """

    edges: Int32
    counts: Int32

    @classmethod
    def empty(cls, rows: int, columns: int) -> Blocks:
        """Room for the worst case; only the few edges that rows have are ever touched."""
        return cls(np.empty((rows, columns + 1), np.int32), np.zeros(rows, np.int32))


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
def fit_row(values: Int, shift: Real, upper: float, position: Int, height: Real) -> tuple[int, int]:
    """Pool values + shift; its blocks first..last − 1 are free, those before are at the bound.

    Block b spans cells position[b] : position[b + 1]; its mean is the slope of its edge, from
    height[b] to height[b + 1]. Cells from position[last] on are at zero.
    """
    last = upper_hull(position, height, _candidate_points(values, shift, position, height))
    first = 0
    while first < last and height[first + 1] - height[first] >= upper * (
        position[first + 1] - position[first]
    ):
        first += 1
    return first, last


@njit(cache=True)
def keep_blocks(
    blocks: Blocks, row: int, first: int, last: int, position: Int, offset: int
) -> None:
    """Record a fitted row's free blocks; `offset` columns stand before the fitted ones."""
    blocks.counts[row] = last - first
    for b in range(first, last + 1):
        blocks.edges[row, b - first] = position[b] + offset


@njit(cache=True)
def add_fit(upper: float, first: int, last: int, position: Int, height: Real, sums: Real) -> None:
    """Add the fitted row to `sums`."""
    for k in range(position[first]):
        sums[k] += upper
    for b in range(first, last):
        level = (height[b + 1] - height[b]) / (position[b + 1] - position[b])
        for k in range(position[b], position[b + 1]):
            sums[k] += level


@njit(cache=True)
def write_fit(upper: float, first: int, last: int, position: Int, height: Real, row: Real) -> None:
    """Write the fitted row; a running minimum takes out rounding errors of the last digit."""
    level = upper
    row[:] = 0.0
    row[: position[first]] = upper
    for b in range(first, last):
        mean = (height[b + 1] - height[b]) / (position[b + 1] - position[b])
        level = min(level, max(mean, 0.0))
        row[position[b] : position[b + 1]] = level


@njit(cache=True)
def add_averages(
    direction: Real,
    scale: float,
    blocks: Blocks,
    first_row: int,
    last_row: int,
    prefix: Real,
    changes: Real,
    out: Real,
) -> None:
    """Add scale · Σ_rows J direction, J averaging over a row's free blocks and zero elsewhere.

    Prefix sums give a block's mean, changes of level its effect, so a row costs its number of
    blocks. `prefix` and `changes` are scratch, one longer than a row.
    """
    columns = direction.shape[0]
    prefix[0] = 0.0
    for k in range(columns):
        prefix[k + 1] = prefix[k] + direction[k]
    changes[:] = 0.0
    for row in range(first_row, last_row):
        start, before = blocks.edges[row, 0], 0.0
        # Invariant: `changes` holds this row's changes of level left of `start`, where its
        # level is `before`.
        for b in range(1, blocks.counts[row] + 1):
            stop = blocks.edges[row, b]
            mean = (prefix[stop] - prefix[start]) / (stop - start)
            changes[start] += mean - before
            start, before = stop, mean
        changes[start] -= before
    level = 0.0
    for k in range(columns):
        level += changes[k]
        out[k] += level * scale


@njit(cache=True)
def add_diagonals(
    blocks: Blocks, first_row: int, last_row: int, floor: float, changes: Real, out: Real
) -> None:
    """Add Σ_rows diag(J) + floor on free cells: 1/length of the cell's block, plus the floor."""
    changes[:] = 0.0
    for row in range(first_row, last_row):
        start, before = blocks.edges[row, 0], 0.0
        for b in range(1, blocks.counts[row] + 1):
            stop = blocks.edges[row, b]
            share = 1.0 / (stop - start) + floor
            changes[start] += share - before
            start, before = stop, share
        changes[start] -= before
    level = 0.0
    for k in range(len(out)):
        level += changes[k]
        out[k] += level
