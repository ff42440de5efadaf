"""What a noise sampler looks like."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
Progress = Callable[[int], None]
DISTRIBUTION = "double-geometric"


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
