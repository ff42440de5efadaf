"""Independence: no two runs, regions or levels share noise, nor do neighbouring sizes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.privacy_audit.distribution import NoiseRuns
from benchmarks.privacy_audit.verdicts import Verdict, worst

Marks = NDArray[np.bool_]


def independence(runs: NoiseRuns) -> Verdict:
    """Compare every two noise vectors (one a run and region), and each with itself shifted.

    A vector that stands there twice is a collision. Otherwise signs and sizes of the noise are
    compared in a two-by-two table each (Fisher's test: exact, whatever the noise's scale).
    """
    vectors = runs.noise.reshape(-1, runs.noise.shape[2])
    names = [
        f"run {run + 1}, region {region + 1}"
        for run in range(runs.noise.shape[0])
        for region in range(runs.noise.shape[1])
    ]
    one, other = np.triu_indices(len(vectors), k=1)
    repeated = (vectors[one] == vectors[other]).all(axis=1)
    if repeated.any():
        first = int(np.flatnonzero(repeated)[0])
        return Verdict(0.0, f"{names[one[first]]} is {names[other[first]]}")
    magnitudes = np.abs(vectors)
    marks = {"sign": vectors > 0, "size": magnitudes > np.median(magnitudes)}
    p_values = {}
    for kind, mark in marks.items():
        pairs = fisher(mark[one], mark[other])
        worst_pair = int(np.argmin(pairs))
        between = f"{kind}: {names[one[worst_pair]]} and {names[other[worst_pair]]}"
        p_values[between] = min(1.0, float(pairs[worst_pair]) * len(pairs))
        shifted = fisher(mark[:, :-1], mark[:, 1:])
        p_values[f"{kind}: neighbouring sizes"] = min(1.0, float(shifted.min()) * len(shifted))
    return worst(p_values)


def fisher(one: Marks, other: Marks) -> NDArray[np.float64]:
    """Two-sided p-values, row by row, of how often two rows of marks agree."""
    cells = one.shape[1]
    both = (one & other).sum(axis=1)
    margins = cells, one.sum(axis=1), other.sum(axis=1)
    more = stats.hypergeom.sf(both - 1, *margins)
    fewer = stats.hypergeom.cdf(both, *margins)
    p_values: NDArray[np.float64] = np.minimum(1.0, 2 * np.minimum(more, fewer))
    return p_values
