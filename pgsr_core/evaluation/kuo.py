"""The hierarchical count-of-counts histograms of Kuo et al. 2018 (VLDB 11, arXiv 1804.00370).

Each region is estimated by itself, by one of two methods:

- Hc: cumulative counts with noise, made monotone in L1;
- Hg: the sizes of all groups, sorted, with noise, made monotone in L2.

Then, from the root down, the groups of a region are matched with those of its children, and each
pair's estimates are averaged by their variances. The leaves' histograms are the result; all others
are their sums. Written from the description, with the settings that its authors recommend: L1 for
Hc, L2 for Hg, an equal share of ε for every level.

Their model has the number of groups of every region public. Where a data set has units from the
data, they are given those numbers all the same: more than a mechanism of the product gets there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pgsr_core.evaluation.datasets import EvaluationData
from pgsr_core.evaluation.matching import least_absolute_fit, match_family, pool_rising
from pgsr_core.evaluation.protocol import Answer, Int, Setting, level_scales, measured
from pgsr_core.hierarchy import RegionTree
from pgsr_core.noise.seeded import SeededSampler
from pgsr_core.postprocessing.protocol import Query

Real = NDArray[np.float64]
CHUNK = 1 << 20
"""Groups whose sizes are held at a time."""


@dataclass(frozen=True)
class KuoHc:
    """Cumulative counts, monotone in L1; matched across levels."""

    name: str = "kuo-hc"
    notation: str = "Kuo et al., Hc"
    consistent: bool = True

    def __call__(self, setting: Setting) -> Answer:
        """See Contender."""
        data = setting.data
        scales = level_scales(setting, Query.CUMULATIVE)
        noisy = measured(setting, Query.CUMULATIVE, scales)
        begun = time.perf_counter()
        totals = data.truth.sum(axis=1)
        # A column for the smallest size, which every group has at least.
        cumulative = np.zeros((data.tree.regions, data.truth.shape[1] + 1), dtype=np.int64)
        cumulative[:, 0] = totals
        free = noisy[:, data.smallest_size :]
        if free.shape[1]:
            cumulative[:, 1:-1] = least_absolute_fit(free, totals)
        estimates = cumulative[:, :-1] - cumulative[:, 1:]
        # A count is a difference of two measurements: twice their variance, 2 λ² each.
        values = matched_from_the_root(data.tree, estimates, _variances(data, scales, 4.0))
        return Answer(values=values, seconds=time.perf_counter() - begun)


@dataclass(frozen=True)
class KuoHg:
    """The sorted sizes of all groups, monotone in L2; matched across levels.

    Guarantee. One record changes one group's size by one, hence one entry of the sorted list by
    one: the sensitivity is 1 where the number of groups is public.
    """

    name: str = "kuo-hg"
    notation: str = "Kuo et al., Hg"
    consistent: bool = True

    def __call__(self, setting: Setting) -> Answer:
        """See Contender."""
        data = setting.data
        scales = level_scales(setting, Query.CUMULATIVE)
        sampler = SeededSampler(np.random.default_rng(setting.seed))
        seconds = 0.0
        estimates = np.empty_like(data.truth)
        for region, level in enumerate(data.tree.level):
            fit = _RisingFit()
            for sizes in _sorted_sizes(data.truth[region]):
                noisy = sampler.add_noise(sizes, scale=scales[level])
                begun = time.perf_counter()
                fit.add(noisy)
                seconds += time.perf_counter() - begun
            estimates[region] = fit.histogram(data.truth.shape[1])
        begun = time.perf_counter()
        values = matched_from_the_root(data.tree, estimates, _variances(data, scales, 2.0))
        return Answer(values=values, seconds=seconds + time.perf_counter() - begun)


class _RisingFit:
    """Isotonic regression of a list that comes in parts."""

    def __init__(self) -> None:
        self._sums = np.empty(0, dtype=np.int64)
        self._lengths = np.empty(0, dtype=np.int64)

    def add(self, values: Int) -> None:
        """Append a part."""
        top = len(self._sums) - 1
        room = np.zeros(len(values), dtype=np.int64)
        sums, lengths = np.append(self._sums, room), np.append(self._lengths, room)
        top = pool_rising(values, sums, lengths, top)
        self._sums, self._lengths = sums[: top + 1], lengths[: top + 1]

    def histogram(self, columns: int) -> Int:
        """How many values of the fit, rounded half up and clipped, are in each column."""
        counts = np.zeros(columns, dtype=np.int64)
        nearest = (2 * self._sums + self._lengths) // np.maximum(2 * self._lengths, 1)
        np.add.at(counts, np.clip(nearest, 0, columns - 1), self._lengths)
        return counts


def matched_from_the_root(tree: RegionTree, estimates: Int, variances: Real) -> Int:
    """Merge the regions' estimates from the root down; leaves decide, and are added up.

    Args:
        tree: the region tree.
        estimates: groups by region and size; a region has as many as its children together.
        variances: of one group's size by region, where it is the only one of that size; among
            m groups of a size the noise is shared, and each has an m-th of it.
    """
    counts = estimates.copy()
    variance = variances[:, None] / np.maximum(counts, 1)
    for region in np.flatnonzero(~tree.is_leaf):
        children = slice(tree.first_child[region], tree.first_child[region + 1])
        merged, merged_variance = np.zeros_like(counts[children]), np.zeros_like(variance[children])
        match_family(
            counts[region].copy(),
            variance[region],
            counts[children].copy(),
            variance[children],
            merged,
            merged_variance,
        )
        counts[children], variance[children] = merged, merged_variance
    counts[~tree.is_leaf] = 0
    return tree.aggregate(counts)


def _variances(data: EvaluationData, scales: Sequence[Fraction], factor: float) -> Real:
    return np.array([factor * float(scale) ** 2 for scale in scales])[data.tree.level]


def _sorted_sizes(counts: Int) -> Iterator[Int]:
    """The columns of all groups of a region, in order, in parts."""
    ends = np.cumsum(counts)
    for start in range(0, int(ends[-1]), CHUNK):
        inside = np.clip(ends, start, start + CHUNK) - np.clip(ends - counts, start, start + CHUNK)
        yield np.repeat(np.arange(len(counts)), inside)
