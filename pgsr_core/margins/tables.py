"""What margins look like: their tables and columns, and what they must satisfy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree

Int = NDArray[np.int64]

MARGINS, MARGINS_BY_LEVEL = "margins", "margins_by_level"
BOUNDS = ("lower_90", "upper_90", "lower_95", "upper_95")
HALF_WIDTHS = ("half_width_90", "half_width_95")


@dataclass(frozen=True)
class Margins:
    """The margins of one release.

    Attributes:
        bounds: the intervals of every cell, one (regions × sizes) table for each of BOUNDS.
        half_widths: one (levels × sizes) table for each of HALF_WIDTHS.
    """

    bounds: Int
    half_widths: Int


def bounds_hold(counts: Int, bounds: Int) -> bool:
    """Say whether 0 ≤ lower_95 ≤ lower_90 ≤ count ≤ upper_90 ≤ upper_95 in every cell."""
    lower_90, upper_90, lower_95, upper_95 = bounds
    return bool(
        np.all(lower_95 >= 0)
        and np.all(lower_95 <= lower_90)
        and np.all(lower_90 <= counts)
        and np.all(counts <= upper_90)
        and np.all(upper_90 <= upper_95)
    )


def typical_half_widths(tree: RegionTree, counts: Int, bounds: Int) -> Int:
    """The typical half-width of each level and size, for each of HALF_WIDTHS.

    How far an interval reaches from its count, on its longer side: the median over the regions
    of the level (of an even number the lower one of the two in the middle, a whole number).
    """
    starts = tree.level_start
    half_widths = np.empty((len(HALF_WIDTHS), tree.levels, counts.shape[1]), dtype=np.int64)
    for confidence in range(len(HALF_WIDTHS)):
        lower, upper = bounds[2 * confidence : 2 * confidence + 2]
        for level in range(tree.levels):
            rows = slice(starts[level], starts[level + 1])
            reach = np.maximum(counts[rows] - lower[rows], upper[rows] - counts[rows])
            middle = (reach.shape[0] - 1) // 2
            half_widths[confidence, level] = np.partition(reach, middle, axis=0)[middle]
    return half_widths
