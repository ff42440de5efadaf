"""Kernels of the method of Kuo et al. 2018: fits of one region, and matching across levels."""

from __future__ import annotations

import heapq

import numpy as np
from numba import njit
from numpy.typing import NDArray

Int = NDArray[np.int64]
Real = NDArray[np.float64]


@njit(cache=True)
def least_absolute_fit(values: Int, upper: Int) -> Int:
    """Rows that never rise, within [0, upper], nearest in L1: integers, as the values are.

    From the right the answer never falls. The optimal cost of a prefix is convex and piecewise
    linear in its last value; the heap holds the breakpoints up to its minimum, the largest on top
    (a sign makes the least the largest). A value below the top pulls the minimum down.
    """
    fitted = np.empty_like(values)
    rows, columns = values.shape
    for r in range(rows):
        breakpoints = [-values[r, columns - 1]]
        fitted[r, columns - 1] = values[r, columns - 1]
        for k in range(columns - 2, -1, -1):
            heapq.heappush(breakpoints, -values[r, k])
            if -breakpoints[0] > values[r, k]:
                heapq.heapreplace(breakpoints, -values[r, k])
            fitted[r, k] = -breakpoints[0]
        for k in range(1, columns):
            fitted[r, k] = min(fitted[r, k], fitted[r, k - 1])
        for k in range(columns):
            fitted[r, k] = min(max(fitted[r, k], 0), upper[r])
    return fitted


@njit(cache=True)
def pool_rising(values: Int, sums: Int, lengths: Int, top: int) -> int:
    """Go on pooling adjacent violators, for a fit that never falls; returns the new top.

    Invariant: blocks 0..top have the sums and lengths of what came so far, and rising means.
    """
    for value in values:
        total, length = value, np.int64(1)
        while top >= 0 and sums[top] / lengths[top] >= total / length:
            total += sums[top]
            length += lengths[top]
            top -= 1
        top += 1
        sums[top] = total
        lengths[top] = length
    return top


@njit(cache=True)
def match_family(
    parent: Int,
    parent_variance: Real,
    children: Int,
    variance: Real,
    merged: Int,
    merged_variance: Real,
) -> None:
    """Match the groups of a parent with those of its children, and merge their estimates.

    Columns are sizes; a row counts groups. The smallest unmatched groups of both sides go
    together, which makes Σ |difference of sizes| as small as it can be. Where the children have
    more groups of their smallest size than the parent has of its own, each child gives in
    proportion. Each pair's estimates are averaged with the inverses of their variances as weights.

    Args:
        parent: groups by size; used up.
        parent_variance: of the estimates, by size.
        children: groups by child and size; used up.
        variance: of the children's estimates.
        merged: gets the groups of each child by merged size; zero on entry.
        merged_variance: gets the mean variance of those of one size; zero on entry.
    """
    sizes = len(parent)
    available = children.sum(axis=0)
    unmatched = parent.sum()
    p, c = 0, 0
    # Invariant: both sides have as many unmatched groups, none of them below sizes p and c.
    while unmatched > 0:
        while parent[p] == 0:
            p += 1
        while available[c] == 0:
            c += 1
        number = int(min(parent[p], available[c]))
        unmatched -= number
        given = _in_proportion(children[:, c], available[c], number)
        parent[p] -= number
        available[c] -= number
        for child in range(len(given)):
            if given[child] > 0:
                children[child, c] -= given[child]
                ours, theirs = 1 / variance[child, c], 1 / parent_variance[p]
                size = int(np.floor((c * ours + p * theirs) / (ours + theirs) + 0.5))
                merged[child, size] += given[child]
                merged_variance[child, size] += given[child] / (ours + theirs)
    for child in range(merged.shape[0]):
        for size in range(sizes):
            if merged[child, size] > 0:
                merged_variance[child, size] /= merged[child, size]


@njit(cache=True)
def _in_proportion(weights: Int, total: int, number: int) -> Int:
    """Share out a number in proportion to weights of a given total; largest remainders first."""
    shares = weights * (number / total)
    given: Int = np.floor(shares + 1e-9).astype(np.int64)
    remainders = shares - given
    for _ in range(number - given.sum()):
        child = remainders.argmax()
        given[child] += 1
        remainders[child] = -1.0
    return given
