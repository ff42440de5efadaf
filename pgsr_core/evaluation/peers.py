"""Peers that measure the counts: noise as it comes, and rounding from the top down."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgsr_core.evaluation.protocol import Answer, Int, Setting, level_scales, measured
from pgsr_core.postprocessing.protocol import Query

Real = NDArray[np.float64]


@dataclass(frozen=True)
class Plain:
    """The noisy counts as they come: some negative, and nothing adds up."""

    name: str = "plain"
    notation: str = "noise alone"
    consistent: bool = False

    def __call__(self, setting: Setting) -> Answer:
        """See Contender."""
        scales = level_scales(setting, Query.COUNTS)
        return Answer(values=measured(setting, Query.COUNTS, scales), seconds=0.0)


@dataclass(frozen=True)
class TopDown:
    """In the manner of the TopDown algorithm of the 2020 US Census (Abowd et al. 2022).

    The root's counts are fixed first; then, family by family, the children's. Each time the
    non-negative real numbers nearest to the noisy counts that add up to what is fixed are found,
    and rounded to integers that do. Only G is held; the Census's further queries and invariants
    have no counterpart here.
    """

    name: str = "top-down"
    notation: str = "TopDown"
    consistent: bool = True

    def __call__(self, setting: Setting) -> Answer:
        """See Contender."""
        tree = setting.data.tree
        scales = level_scales(setting, Query.COUNTS)
        noisy = measured(setting, Query.COUNTS, scales)
        groups = np.array([setting.data.facts().groups])
        # Not the generator that drew the noise: which child gets a unit must not depend on that.
        lots = np.random.default_rng([setting.seed, 1])
        begun = time.perf_counter()
        counts = np.empty_like(noisy)
        counts[0] = _shared_out(noisy[:1].T, groups, lots)[:, 0]
        for region in np.flatnonzero(~tree.is_leaf):
            children = slice(tree.first_child[region], tree.first_child[region + 1])
            counts[children] = _shared_out(noisy[children], counts[region], lots)
        return Answer(values=counts, seconds=time.perf_counter() - begun)


def _shared_out(noisy: Int, totals: Int, lots: np.random.Generator) -> Int:
    """Integers near the projected columns with the given sums: units left go by remainder.

    The projection moves a column's positive entries by one amount, so that their remainders are
    equal up to rounding; lots decide among those.
    """
    real = nearest_with_sums(noisy, totals)
    counts = np.floor(real + 1e-9).astype(np.int64)
    order = np.lexsort((lots.random(real.shape), np.round(counts - real, 6)), axis=0)
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(len(order))[:, None], axis=0)
    shared: Int = counts + (rank < totals - counts.sum(axis=0))
    return shared


def nearest_with_sums(values: Int, totals: Int) -> Real:
    """Non-negative columns with the given sums, nearest in L2 (Held, Wolfe and Crowder 1974).

    The answer is max(0, value − shift), with one shift a column; the entries that stay positive
    are the largest ones, as many as have the largest of the shifts that such a set implies.
    """
    falling = -np.sort(-values, axis=0)
    members = np.arange(1, len(values) + 1)[:, None]
    shift = ((np.cumsum(falling, axis=0) - totals) / members).max(axis=0)
    nearest: Real = np.maximum(values - shift, 0.0)
    return nearest
