"""Isotonic regression of whole tables: each region's row non-increasing, within bounds, in L2.

Rows are cumulative counts from the top (c_k = groups of size at least k), hence non-increasing
in k. Pool adjacent violators (Barlow et al. 1972, section 1.2) solves one row in linear time.
Constant bounds never change the pooling: with a convex cost, the bounded optimum is the
unbounded optimum clipped, because the level set {x ≥ t} of the optimum is the same for every
pair of bounds around t. The integer optimum is the rounded one for the same reason, with the
level sets at t − ½.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numba import njit, prange
from numpy.typing import ArrayLike, NDArray

from pgsr_core.errors import PgsrError
from pgsr_core.limits import largest_isotonic_value

Int = NDArray[np.int64]
Real = NDArray[np.float64]

TABLE_DIMENSIONS = 2
# Rows that one parallel task takes: enough to share a scratch row, few enough to balance.
ROWS_A_TASK = 32
# Passes that drop half of a noisy row's points each; what is left goes to the stack.
BULK_PASSES = 3


class IsotonicInputError(PgsrError):
    """The arguments do not describe a bounded isotonic regression."""


class ValuesTooLarge(IsotonicInputError):
    """A block's sum, multiplied by another block's length, might not fit 64 bits."""

    def __init__(self, *, limit: int, columns: int) -> None:
        self.limit = limit
        self.columns = columns
        super().__init__(
            f"isotonic regression of {columns} columns is exact for values within ±{limit}, "
            f"and a value is outside. Remedy: lower the largest size, or check the measurements."
        )


def isotonic_integers(noisy: Int, *, upper: Int, lower: int = 0) -> Int:
    """The exact integer optimum of each row: non-increasing, lower ≤ x ≤ upper[row].

    Where two integers are equally good for a block (its mean ends in ½), the larger is taken.

    Args:
        noisy: regions × K integers.
        upper: the largest value allowed in each region.
        lower: the smallest value allowed.

    Raises:
        ValuesTooLarge: the exact comparison could overflow 64 bits.
        IsotonicInputError: shapes do not fit, or an upper bound is below the lower one.
    """
    values = read_only(np.ascontiguousarray(_matrix(noisy, np.int64), dtype=np.int64))
    rows, columns = values.shape
    bounds = np.array(np.broadcast_to(np.asarray(upper, dtype=np.int64), (rows,)))
    _check_bounds(bounds, lower)
    fitted = np.empty(values.shape, dtype=np.int64)
    limit = largest_isotonic_value(columns)
    if columns == 0:
        return fitted
    if abs(lower) > limit or not _fit_integers(values, bounds, lower, limit, fitted):
        raise ValuesTooLarge(limit=limit, columns=columns)
    return fitted


def isotonic_real(
    values: Real, *, upper: ArrayLike, lower: float = 0.0, weights: Real | None = None
) -> Real:
    """The L2 optimum of each row: non-increasing, lower ≤ x ≤ upper[row].

    Args:
        values: regions × K numbers.
        upper: the largest value allowed, one for all regions or one for each; may be infinite.
        lower: the smallest value allowed; may be −infinite.
        weights: positive, one for each column or for each cell; None means equal ones.

    Raises:
        IsotonicInputError: shapes do not fit, numbers are not finite, weights are not positive,
            or an upper bound is below the lower one.
    """
    cells = read_only(np.ascontiguousarray(_matrix(values, np.float64), dtype=np.float64))
    rows = cells.shape[0]
    bounds = np.array(np.broadcast_to(np.asarray(upper, dtype=np.float64), (rows,)))
    _check_bounds(bounds, lower)
    if not np.isfinite(cells).all():
        raise IsotonicInputError("values must be finite numbers. Remedy: check the measurements.")
    fitted = np.empty(cells.shape)
    _fit_real(cells, _weight_rows(weights, cells.shape), bounds, float(lower), fitted)
    return fitted


def _matrix(values: ArrayLike, kind: type[np.generic]) -> NDArray[np.generic]:
    matrix = np.asarray(values)
    if matrix.ndim != TABLE_DIMENSIONS or not np.can_cast(matrix.dtype, kind):
        raise IsotonicInputError(
            f"isotonic regression takes a regions × sizes matrix of {np.dtype(kind)}, got "
            f"{matrix.dtype} with shape {matrix.shape}. Remedy: convert the table first."
        )
    return matrix


def _weight_rows(weights: Real | None, shape: tuple[int, ...]) -> Real:
    """One row of weights that serves all regions, or one for each."""
    weight = np.atleast_2d(np.asarray(1.0 if weights is None else weights, dtype=np.float64))
    if not (np.isfinite(weight).all() and (weight > 0).all()):
        raise IsotonicInputError("weights must be positive and finite. Remedy: drop zero weights.")
    try:
        spread = np.broadcast_to(weight, (weight.shape[0], shape[1]))
        np.broadcast_to(spread, shape)
    except ValueError as error:
        raise IsotonicInputError(
            f"weights of shape {weight.shape} do not fit a table of shape {shape}. "
            f"Remedy: give one weight for each column or for each cell."
        ) from error
    return cast(Real, read_only(np.ascontiguousarray(spread)))


def _check_bounds(upper: Int | Real, lower: float) -> None:
    if not (upper >= lower).all():
        raise IsotonicInputError(
            "an upper bound is below the lower bound. Remedy: give bounds that leave a value."
        )


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view: numba compiles once, whether or not the caller's array is frozen."""
    view = array.view()
    view.setflags(write=False)
    return view


@njit(cache=True)
def _candidate_points(values: Int, lower: int, position: Int, height: Int) -> int:
    """Write the prefix sums that may be hull vertices, up to the split; index of the last.

    The split is the last of the points highest over the line of slope lower + ½: a vertex, past
    which every slope is less than lower + ½ and rounds to the lower bound or below.
    """
    columns = values.shape[0]
    slope = 2 * lower + 1
    position[0], height[0] = 0, 0
    split, most, last, total = 0, np.int64(0), 1, np.int64(0)
    # Invariant: points 0..last−1 are candidates among boundaries 0..k−1, total is the prefix
    # sum at k. Boundary k survives only where values fall; the split is such a boundary, for
    # were values[k] ≥ values[k − 1], boundary k + 1 would be at least as high over the line.
    for k in range(1, columns):
        total += values[k - 1]
        position[last] = k
        height[last] = total
        excess = 2 * total - slope * k
        split = last if excess >= most else split
        most = max(most, excess)
        last += values[k - 1] > values[k]
    total += values[columns - 1]
    position[last] = columns
    height[last] = total
    return last if 2 * total - slope * columns >= most else split


@njit(cache=True)
def _drop_points_below_neighbours(position: Int, height: Int | Real, last: int) -> int:
    """Drop, at once, every point on or below the chord of its two neighbours.

    Such a point is no vertex of the hull, whatever happens to its neighbours, so one pass
    needs no stack and no unpredictable branch. Returns the index of the last point.
    """
    kept = 0
    x, y = position[0], height[0]
    dx, dy = position[1] - x, height[1] - y
    # Invariant: points 0..kept are kept; (dx, dy) leads from old point j − 1 to old point j.
    for j in range(1, last):
        x, y = position[j], height[j]
        next_dx, next_dy = position[j + 1] - x, height[j + 1] - y
        position[kept + 1] = x
        height[kept + 1] = y
        kept += dy * next_dx > next_dy * dx
        dx, dy = next_dx, next_dy
    position[kept + 1] = position[last]
    height[kept + 1] = height[last]
    return kept + 1


@njit(cache=True)
def upper_hull(position: Int, height: Int | Real, last: int) -> int:
    """Leave the vertices of the upper hull of points 0..last in place; index of the last one.

    Points come from left to right; exact for integer heights.
    """
    for _ in range(BULK_PASSES):
        if last > 1:
            last = _drop_points_below_neighbours(position, height, last)
    top = 0
    # Invariant: points 0..top are the hull of points 0..j − 1 (Andrew's monotone chain). Each
    # pass of the inner loop removes a point for good: linear time in all.
    for j in range(1, last + 1):
        x, y = position[j], height[j]
        while top > 0 and (height[top] - height[top - 1]) * (x - position[top]) <= (
            y - height[top]
        ) * (position[top] - position[top - 1]):
            top -= 1
        top += 1
        position[top] = x
        height[top] = y
    return top


@njit(cache=True)
def _fit_integer_row(
    values: Int, lower: int, upper: int, fitted: Int, position: Int, height: Int
) -> None:
    """Pool, round half up and clip one row, as the concave majorant of its prefix sums.

    Pooled blocks are the edges of the upper hull of the points (k, values[0] + … +
    values[k − 1]) and their means are its slopes. Points below their neighbours' chord are
    dropped in bulk, so that random noise does not cost a mispredicted branch for each cell.
    """
    last = _candidate_points(values, lower, position, height)
    top = upper_hull(position, height, last)
    for b in range(top):
        length = position[b + 1] - position[b]
        level = (2 * (height[b + 1] - height[b]) + length) // (2 * length)
        fitted[position[b] : position[b + 1]] = min(max(level, lower), upper)
    fitted[position[top] :] = lower


@njit(cache=True, parallel=True)
def _fit_integers(values: Int, upper: Int, lower: int, limit: int, fitted: Int) -> bool:
    """Fit every row; False if a magnitude above the limit makes the result meaningless."""
    rows, columns = values.shape
    tasks = (rows + ROWS_A_TASK - 1) // ROWS_A_TASK
    in_range = np.ones(tasks, dtype=np.bool_)
    for task in prange(tasks):
        position = np.empty(columns + 1, dtype=np.int64)
        height = np.empty(columns + 1, dtype=np.int64)
        for r in range(task * ROWS_A_TASK, min((task + 1) * ROWS_A_TASK, rows)):
            row = values[r]
            smallest, largest = np.int64(0), np.int64(0)
            for k in range(columns):
                smallest = min(smallest, row[k])
                largest = max(largest, row[k])
            if largest > limit or smallest < -limit:
                in_range[task] = False
            else:
                _fit_integer_row(row, lower, upper[r], fitted[r], position, height)
    return bool(in_range.all())


@njit(cache=True)
def _fit_real_row(
    values: Real, weights: Real, lower: float, upper: float, fitted: Real, mass: Real, ends: Int
) -> None:
    """Pool and clip one row; `fitted` doubles as the stack of weighted block sums."""
    top = -1
    # Invariant: blocks 0..top have weighted sums fitted[b] and weights mass[b], end before cell
    # ends[b], cover values[:k], and their means fall. top < k: the stack never overtakes k.
    for k in range(values.shape[0]):
        weight = weights[k]
        total = values[k] * weight
        while top >= 0 and fitted[top] * weight <= total * mass[top]:
            total += fitted[top]
            weight += mass[top]
            top -= 1
        top += 1
        fitted[top] = total
        mass[top] = weight
        ends[top] = k + 1
    # Invariant: blocks above b are written out. Block b starts at or after cell b, so writing
    # it destroys no sum that is still to be read.
    for b in range(top, -1, -1):
        level = min(max(fitted[b] / mass[b], lower), upper)
        fitted[ends[b - 1] if b > 0 else 0 : ends[b]] = level


@njit(cache=True, parallel=True)
def _fit_real(values: Real, weights: Real, upper: Real, lower: float, fitted: Real) -> None:
    rows, columns = values.shape
    tasks = (rows + ROWS_A_TASK - 1) // ROWS_A_TASK
    for task in prange(tasks):
        mass = np.empty(columns)
        ends = np.empty(columns, dtype=np.int64)
        for r in range(task * ROWS_A_TASK, min((task + 1) * ROWS_A_TASK, rows)):
            weight = weights[min(r, weights.shape[0] - 1)]
            _fit_real_row(values[r], weight, lower, upper[r], fitted[r], mass, ends)
