"""One row of noisy cumulative counts, smoothed: a random walk seen through noise.

Walking from the largest size down, a row's deviation from what is expected of it changes at each
size by how far the number of groups of that size is from its expectation. With independent
changes of known variances that is a random walk, and its best linear estimate from noisy
sightings is Kalman's filter and the smoother of Rauch, Tung and Striebel 1965: linear time, and
the same as conditioning the joint normal law.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Real = NDArray[np.float64]


class Scratch(NamedTuple):
    """Room for one row's filter: estimates, and variances after and before each sighting."""

    estimate: Real
    after: Real
    before: Real


@njit(cache=True)
def smooth_row(
    seen: Real, steps: Real, noise: float, last_step: float, scratch: Scratch, out: Real, left: Real
) -> None:
    """Estimate d from seen_k = d_k + noise, where d_k = d_(k+1) + a step, and d is 0 beyond N.

    Args:
        seen: the noisy deviations d_1..d_N.
        steps: variance of the step that leads to each d_k.
        noise: variance of the noise.
        last_step: variance of the step from d_1 to d_0 = 0 where the total is known, else −1.
        scratch: room.
        out: the estimates.
        left: their variances.
    """
    columns = len(seen)
    estimate, variance = 0.0, 0.0
    for k in range(columns - 1, -1, -1):
        variance += steps[k]
        scratch.before[k] = variance
        both = variance + noise
        # variance · (1 − gain) would lose its digits where a step is much larger than the noise.
        gain = variance / both if both > 0.0 else 0.0
        variance = variance * (noise / both) if both > 0.0 else 0.0
        estimate += gain * (seen[k] - estimate)
        scratch.estimate[k] = estimate
        scratch.after[k] = variance
    if last_step >= 0.0 and variance > 0.0:
        kept = last_step / (variance + last_step)
        estimate *= kept
        variance *= kept
    out[0], left[0] = estimate, variance
    # Invariant: (estimate, variance) of d_(k−1) are final: they know of every sighting.
    for k in range(1, columns):
        ahead = scratch.before[k - 1]
        back = scratch.after[k] / ahead if ahead > 0.0 else 0.0
        estimate = scratch.estimate[k] + back * (estimate - scratch.estimate[k])
        variance = scratch.after[k] + back * back * (variance - ahead)
        out[k], left[k] = estimate, variance
