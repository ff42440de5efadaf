"""The law of sums of double-geometric noise: how large one is at most, with what probability."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

# With so many nodes up to where the characteristic function is negligible, the midpoint rule errs
# only by the probability that a sum lies beyond 150 standard deviations.
NODES = 2_048
REACH = 60.0
FARTHEST = 40.0


@lru_cache(maxsize=4_096)
def tail_bound(scale: Fraction, terms: int, probability: Fraction) -> int:
    """The smallest q with P(S > q) ≤ probability, for a sum S of independent noise terms.

    Each term has P(X = v) ∝ exp(−|v| / scale). The sum is symmetric, so P(S < −q) is the same.
    A single term has a geometric tail, P(X > q) = a^(q+1) / (1 + a) with a = exp(−1/scale). The
    others are found by inverting the characteristic function φ(θ) = (1−a)² / (1 − 2a cos θ + a²)
    of a term (Gil-Pelaez 1951, on a lattice):
    P(S > q) = ½ − (1/π) ∫₀^π φ(θ)^terms sin((q + ½)θ) / (2 sin(θ/2)) dθ.

    Args:
        scale: of a term.
        terms: how many are added up; at least 1.
        probability: above 0 and below ½.
    """
    decay, target = float(1 / scale), float(probability)
    ratio = math.exp(-decay)
    if terms == 1:
        return max(0, math.ceil(-math.log(target * (1 + ratio)) / decay - 1))
    deviation = float(scale) * math.sqrt(terms)
    last = min(math.pi, REACH / deviation)
    nodes = (np.arange(NODES) + 0.5) * (last / NODES)
    # (1 − a)² / ((1 − a)² + 4a sin²(θ/2)): the same without cancellation at large scales.
    loss = math.expm1(-decay) ** 2
    half_sines = np.sin(nodes / 2)
    weights = (1 + 4 * ratio * half_sines**2 / loss) ** -float(terms) / half_sines
    weights *= last / NODES / (2 * math.pi)

    def beyond(q: int) -> float:
        return 0.5 - float(weights @ np.sin((q + 0.5) * nodes))

    # Invariant: P(S > low) > probability ≥ P(S > high).
    low, high = -1, math.ceil(FARTHEST * deviation) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if beyond(middle) <= target:
            high = middle
        else:
            low = middle
    return high
