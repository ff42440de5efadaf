"""The root once more, from its parts: a child tells of its parent by more than the sum.

Least squares learns of a region from its children's sum alone, which is as noisy as all of them
together. But a child that is expected to have a share s of its parent's groups, give or take a
variance D, has the parent's row in its own, divided by s: where one region has nearly all groups
and the others nearly none, that is a second measurement of the whole.

Of each cumulative count x of the root, children are seen as z_c = s_c x + d_c + noise of variance
v_c, where the d_c have variances D_c and the sum zero: their covariance is
diag(D) − D Dᵀ / ΣD. Generalised least squares of x on z and on the root's own measurement follows,
by the formula of Sherman and Morrison. As D grows it becomes plain least squares.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pgsr_core.solvers.shrinkage.model import Level, Shares

Real = NDArray[np.float64]


@njit(cache=True)
def root_and_parts(
    level: Level, own: Real, own_noise: float, seen: Real, noise: Real, shares: Shares, found: Real
) -> tuple[Real, float]:
    """Estimate the root's row from all there is; also the variance left, its mean over sizes.

    Args:
        level: the root's children.
        own: the root's measurement.
        own_noise: variance of its noise.
        seen: the children's rows, from what was measured in and below them.
        noise: the variance of each child's.
        shares: what each child is expected to have.
        found: overdispersion by band of sizes.
    """
    children, columns = seen.shape
    shape = level.shapes[0]
    spread = np.zeros(children)
    row, left = np.empty(columns), 0.0
    for k in range(columns - 1, -1, -1):
        groups = shape[k] - (shape[k + 1] if k < columns - 1 else 0.0)
        by_share, of_share, by_spread, of_spread, loose = 0.0, 0.0, 0.0, 0.0, 0.0
        for c in range(children):
            share = shares.share[level.start + c]
            expected = share * groups
            spread[c] += expected + found[level.band[k]] * expected * expected
            spread[c] += shares.doubt[level.start + c] * groups * shape[0]
            both = noise[c] + spread[c]
            weight = 1.0 / both if both > 0.0 else 0.0
            by_share += share * weight * share
            of_share += share * weight * seen[c, k]
            by_spread += share * weight * spread[c]
            of_spread += spread[c] * weight * seen[c, k]
            loose += spread[c] * weight * noise[c]
        tied = by_spread / loose if loose > 0.0 else 0.0
        precision = 1.0 / own_noise + by_share + tied * by_spread
        row[k] = (own[k] / own_noise + of_share + tied * of_spread) / precision
        left += 1.0 / precision
    return row, left / columns
