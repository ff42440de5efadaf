"""Isotonic regression of whole tables: each region's row non-increasing, within bounds, in L2.

Rows are cumulative counts from the top (c_k = groups of size at least k), hence non-increasing
in k. Pool adjacent violators (Barlow et al. 1972, section 1.2) solves one row in linear time.
Constant bounds never change the pooling: with a convex cost, the bounded optimum is the
unbounded optimum clipped, because the level set {x ≥ t} of the optimum is the same for every
pair of bounds around t. The integer optimum is the rounded one for the same reason, with the
level sets at t − ½.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange
from numpy.typing import ArrayLike, NDArray

from pgsr_core.errors import PgsrError

Int = NDArray[np.int64]
Real = NDArray[np.float64]

# Rows that one parallel task takes: enough to share a scratch row, few enough to balance.
ROWS_A_TASK = 32


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


def largest_exact_value(columns: int) -> int:
    """The largest magnitude for which no 64-bit product of the integer solver can overflow.

    A block's sum is at most M·K; it is multiplied by a length of at most K when blocks are
    compared, and 2s + c is formed when a mean is rounded (at most 3·M·K).
    """
    return int(np.iinfo(np.int64).max) // (columns * max(columns, 3)) if columns else 0


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
    values = _read_only(np.ascontiguousarray(_matrix(noisy, np.int64), dtype=np.int64))
    rows, columns = values.shape
    bounds = np.array(np.broadcast_to(np.asarray(upper, dtype=np.int64), (rows,)))
    _check_bounds(bounds, lower)
    fitted = np.empty_like(values)
    limit = largest_exact_value(columns)
    if not _fit_integers(values, bounds, lower, limit, fitted):
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
    cells = _read_only(np.ascontiguousarray(_matrix(values, np.float64), dtype=np.float64))
    rows = cells.shape[0]
    bounds = np.array(np.broadcast_to(np.asarray(upper, dtype=np.float64), (rows,)))
    _check_bounds(bounds, lower)
    if not np.isfinite(cells).all():
        raise IsotonicInputError("values must be finite numbers. Remedy: check the measurements.")
    weight = np.ones((1, 1)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not (np.isfinite(weight).all() and (weight > 0).all()):
        raise IsotonicInputError("weights must be positive and finite. Remedy: drop zero weights.")
    fitted = np.empty_like(cells)
    _fit_real(cells, np.broadcast_to(weight, cells.shape), bounds, float(lower), fitted)
    return fitted


def _matrix(values: ArrayLike, kind: type[np.generic]) -> NDArray[np.generic]:
    matrix = np.asarray(values)
    if matrix.ndim != 2 or not np.can_cast(matrix.dtype, kind):
        raise IsotonicInputError(
            f"isotonic regression takes a regions × sizes matrix of {np.dtype(kind)}, got "
            f"{matrix.dtype} with shape {matrix.shape}. Remedy: convert the table first."
        )
    return matrix


def _check_bounds(upper: NDArray[np.generic], lower: float) -> None:
    if not (upper >= lower).all():
        raise IsotonicInputError(
            "an upper bound is below the lower bound. Remedy: give bounds that leave a value."
        )


def _read_only[T: np.generic](array: NDArray[T]) -> NDArray[T]:
    """A read-only view: numba compiles once, whether or not the caller's array is frozen."""
    view = array.view()
    view.setflags(write=False)
    return view
