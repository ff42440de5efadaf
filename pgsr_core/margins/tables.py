"""What margins look like: their tables and columns, and what they must satisfy."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]

MARGINS, MARGINS_BY_LEVEL = "margins", "margins_by_level"
CONFIDENCES = (Fraction(90, 100), Fraction(95, 100))
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


def half_widths_hold(half_widths: Int) -> bool:
    """Say whether 0 ≤ half_width_90 ≤ half_width_95 for every level and size."""
    narrow, wide = half_widths
    return bool(np.all(narrow >= 0) and np.all(narrow <= wide))
