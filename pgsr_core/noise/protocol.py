"""What a noise sampler looks like, and the exact arithmetic of scales."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
Progress = Callable[[int], None]


class Sampler(Protocol):
    """Adds independent double-geometric noise, P(X = v) ∝ exp(−|v| / scale), to integers.

    Guarantee. For a query of L1 sensitivity Δ and scale ≥ Δ/ε the result is
    ε-differentially private (Ghosh, Roughgarden and Sundararajan 2012, Theorem 3.1 with
    a = exp(−ε/Δ)), provided the sampler is exact and its randomness is secret; `private` says
    whether it is.
    """

    @property
    def name(self) -> str: ...

    @property
    def private(self) -> bool: ...

    def add_noise(self, values: Int, *, scale: Fraction, progress: Progress | None = None) -> Int:
        """Return values plus noise of at least the scale; progress gets the cells done."""
        ...


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
