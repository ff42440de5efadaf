"""Kernels on one pool: the leaf children of a region, for a block of sizes side by side.

A leaf of noisy count n answers a multiplier θ with max(0, n + θ). Everything a pool needs is the
tally of its active leaves, {n ≥ threshold}: their sum and number, and the interval in which the
threshold can move without changing the set. Tallies run on a compact copy of the leaves, in 32
bits where every sum provably fits, so that the inner loop is a handful of vector instructions.

Inner loops index with the plain loop variable only: a sum of indices might be negative for all the
compiler knows, and would cost the loop its vectors.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pgsr_core.solvers.cpwl.layout import Int, Layout

Leaves = NDArray[np.int32] | Int

# Leaves packed in 32 bits stay below this, which marks "none" in their tallies; their sums below
# the other.
NARROW = 2**30
NARROW_SUM = 2**31

# Rows of a tally.
THRESHOLD, SUM, COUNT, BELOW, ABOVE = 0, 1, 2, 3, 4
TALLIES = 5


@njit(cache=True, nogil=True)
def pack_rows(first: int, last: int, noisy: Int, rows: Int, leaves: Leaves) -> int:
    """Copy leaves ``rows[first:last]`` into (block, leaf, lane) order; returns their magnitude.

    The magnitude is the bitwise union of n or −n − 1: below the next power of two above the largest
    |n|, and never less than it minus 1. Whole rows are read at a time, as memory likes it.
    """
    blocks, width = leaves.shape[0], leaves.shape[2]
    union = 0
    for i in range(first, last):
        region = rows[i]
        for block in range(blocks):
            start = np.uint64(block * width)
            # Unsigned indices are never negative: no check, and the loop runs in vectors.
            for j in range(np.uint64(min(width, noisy.shape[1] - block * width))):
                value = noisy[region, start + j]
                union |= value ^ (value >> 63)
                leaves[block, i, j] = value
    return union


@njit(cache=True, nogil=True)
def largest_sum(noisy: Int, layout: Layout) -> int:
    """The largest Σ |n| over a pool, for any size; right while it is below 2^63."""
    sums, largest = np.empty(noisy.shape[1], np.int64), 0
    for node in range(len(layout.row)):
        sums[:] = 0
        for i in range(layout.first_leaf[node], layout.first_leaf[node + 1]):
            values = noisy[layout.leaf_row[i]]
            for j in range(len(values)):
                sums[j] += abs(values[j])
        for j in range(len(sums)):
            largest = max(largest, sums[j])
    return largest


@njit(cache=True)
def take_tally(leaves: Leaves, tally: Leaves, none: int) -> None:
    """Tally one pool's leaves (leaf, lane) against ``tally[THRESHOLD]``.

    Leaves in the other rows of the tally: sum and count of {n ≥ threshold}, the largest leaf
    below the threshold and the smallest one above (∓none where there is none).
    """
    rows, width = leaves.shape
    for j in range(width):
        tally[SUM, j] = 0
        tally[COUNT, j] = 0
        tally[BELOW, j] = -none
        tally[ABOVE, j] = none
    quads = rows - rows % 4
    # Four leaves at a time: the tally's rows are loaded and stored once for all four.
    for i in range(0, quads, 4):
        for j in range(width):
            least = tally[THRESHOLD, j]
            a, b, c, d = leaves[i, j], leaves[i + 1, j], leaves[i + 2, j], leaves[i + 3, j]
            tally[SUM, j] += (
                (a if a >= least else 0)
                + (b if b >= least else 0)
                + (c if c >= least else 0)
                + (d if d >= least else 0)
            )
            tally[COUNT, j] += (a >= least) + (b >= least) + (c >= least) + (d >= least)
            # Without a literal of 64 bits in it, all this stays in the leaves' own width.
            low, high = tally[BELOW, j], tally[ABOVE, j]
            low = max(low, a if a < least else low)
            high = min(high, a if a >= least else high)
            low = max(low, b if b < least else low)
            high = min(high, b if b >= least else high)
            low = max(low, c if c < least else low)
            high = min(high, c if c >= least else high)
            tally[BELOW, j] = max(low, d if d < least else low)
            tally[ABOVE, j] = min(high, d if d >= least else high)
    for i in range(quads, rows):
        for j in range(width):
            least, a = tally[THRESHOLD, j], leaves[i, j]
            tally[SUM, j] += a if a >= least else 0
            tally[COUNT, j] += a >= least
            low, high = tally[BELOW, j], tally[ABOVE, j]
            tally[BELOW, j] = max(low, a if a < least else low)
            tally[ABOVE, j] = min(high, a if a >= least else high)
