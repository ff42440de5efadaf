"""Arithmetic of noise scales: what is known about the noise without drawing any."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

# With noise of a smaller scale measurements are true to a group or two: to draw rows of whole
# numbers anywhere would do more harm than the noise. Chosen by trying, see docs/solvers.md.
LEAST_POOLED_SCALE = Fraction(8, 5)


def float_at_least(value: Fraction) -> float:
    """Return the smallest float that is not below an exact positive number.

    Rounding a scale down would spend more than was charged.
    """
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def ratio_at_least(value: Fraction, *, numerator: int, denominator: int) -> tuple[int, int]:
    """Return t/s, not below an exact positive number, with t and s not above the given bounds.

    It is the number itself where that fits. Else s is the largest possible and t = ⌈value · s⌉,
    which exceeds the value by less than 1/s: relative to it, by less than 2/numerator (unless the
    bound of s stops it, which is for values so small that noise of that scale is always 0).

    Raises:
        ValueError: the value is not positive, or above the bound of the numerator.
    """
    if not 0 < value <= numerator:
        raise ValueError(f"a scale must be above 0 and at most {numerator}, got {value}")
    if value.numerator <= numerator and value.denominator <= denominator:
        return value.numerator, value.denominator
    below = min(denominator, math.floor(numerator / value))
    return math.ceil(value * below), below


def worth_pooling(scales: Iterable[Fraction]) -> bool:
    """Whether there is noise enough at any level that regions should learn from each other."""
    return any(scale >= LEAST_POOLED_SCALE for scale in scales)


def expected_absolute_noise(scale: Fraction) -> float:
    """E|X| of double-geometric noise: 2a / (1 − a²) with a = exp(−1/scale)."""
    decay = float(1 / scale)
    return 2 * math.exp(-decay) / -math.expm1(-2 * decay)
