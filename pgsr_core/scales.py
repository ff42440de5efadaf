"""Arithmetic of noise scales: what is known about the noise without drawing any."""

from __future__ import annotations

import math
from fractions import Fraction


def float_at_least(value: Fraction) -> float:
    """Return the smallest float that is not below an exact positive number.

    Rounding a scale down would spend more than was charged.
    """
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def expected_absolute_noise(scale: Fraction) -> float:
    """E|X| of double-geometric noise: 2a / (1 − a²) with a = exp(−1/scale)."""
    decay = float(1 / scale)
    return 2 * math.exp(-decay) / -math.expm1(-2 * decay)
