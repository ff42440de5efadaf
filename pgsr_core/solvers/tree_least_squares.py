"""Least squares on the tree without bounds: each table's best unbiased and consistent estimate.

Every level is measured with noise of its own variance, so a region is known twice: from its own
row and from its children's. Weighing both by their precision from the leaves up, and handing what
was learnt back down, gives the minimum of Σ (x − y)² / variance over consistent tables, exactly,
in two passes (Hay et al. 2010, section 4.1, for trees whose nodes have any number of children).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.isotonic import read_only

Int = NDArray[np.int64]
Real = NDArray[np.float64]


class TreeFit(NamedTuple):
    """The estimate (regions × sizes) and the variance that is left in the cells of each region."""

    values: Real
    variance: Real


def gather(tree: RegionTree, measured: Int, *, level_variances: Sequence[float]) -> TreeFit:
    """Fit each region to what was measured in and below it alone: the first of the two passes.

    Args:
        tree: the region tree.
        measured: regions × sizes.
        level_variances: those of the noise, root first.
    """
    own = np.array(level_variances, dtype=np.float64)[tree.level]
    fit = TreeFit(measured.astype(np.float64), own.copy())
    _gather(read_only(tree.first_child), own, fit.values, fit.variance)
    return fit


def hand_down(tree: RegionTree, fit: TreeFit) -> None:
    """Let regions know, in place, of what was measured elsewhere: the second pass."""
    _hand_down(read_only(tree.first_child), fit.values, fit.variance)


@njit(cache=True)
def _gather(first_child: Int, own: Real, values: Real, variance: Real) -> None:
    """From the leaves up: what a region's own row and those below it say together."""
    columns = values.shape[1]
    sums = np.empty(columns)
    for region in range(len(own) - 1, -1, -1):
        start, stop = first_child[region], first_child[region + 1]
        if stop == start:
            continue
        below = 0.0
        sums[:] = 0.0
        for child in range(start, stop):
            below += variance[child]
            for k in range(columns):
                sums[k] += values[child, k]
        both = own[region] + below
        weight = own[region] / both if both > 0.0 else 0.0
        for k in range(columns):
            values[region, k] += weight * (sums[k] - values[region, k])
        variance[region] = weight * below


@njit(cache=True)
def _hand_down(first_child: Int, values: Real, variance: Real) -> None:
    """From the root down: children take up what is missing, in proportion to their variance."""
    columns = values.shape[1]
    missing = np.empty(columns)
    # Invariant: a region's row and variance are final before its children's are looked at.
    for region in range(len(first_child) - 1):
        start, stop = first_child[region], first_child[region + 1]
        if stop == start:
            continue
        below = 0.0
        missing[:] = values[region]
        for child in range(start, stop):
            below += variance[child]
            for k in range(columns):
                missing[k] -= values[child, k]
        for child in range(start, stop):
            share = variance[child] / below if below > 0.0 else 1.0 / (stop - start)
            for k in range(columns):
                values[child, k] += share * missing[k]
            variance[child] -= share * share * (below - variance[region])
