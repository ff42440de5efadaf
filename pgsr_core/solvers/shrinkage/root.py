"""The root's row, which has no parent to be like: smoothed over its sizes from coarse to fine.

All groups together are known. Of a band of sizes that holds M of them little is expected: sizes
share them in proportion to 1/size, the law that favours no scale, give or take much of M. Each
band is then cut in two, with as many groups in either part as the measurements make of that
expectation, until bands are as narrow as they are for the levels below. So a band that drowns in
noise stays even, and what stands out of it is left as measured.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pgsr_core.solvers.isotonic import isotonic_real
from pgsr_core.solvers.shrinkage.model import band_width
from pgsr_core.solvers.shrinkage.smoother import Scratch, smooth_row

Int = NDArray[np.int64]
Real = NDArray[np.float64]

# That any part of a band's M groups is as likely in its lower half as any other is a variance of
# M²/12; steps whose variances add up to M²/3 over the band, its sum being known, have it.
SPREAD = 1.0 / 3.0
# A step that is so many times its noise's variance is no noise: 3 deviations.
SPIKE = 9.0


def smooth_root(row: Real, *, noise: float, total: float) -> Real:
    """Estimate c_1 ≥ … ≥ c_n from noisy sightings; c_0 = total is known, and c_(n+1) is 0.

    Args:
        row: the sightings.
        noise: variance of their noise.
        total: c_0.
    """
    edges, held = np.array([0, len(row) + 1]), np.array([total])
    # Invariant: band b holds held[b] groups, and reaches from c_edges[b] to c_edges[b + 1].
    while True:
        groups, mass = _expect(edges, held)
        finer = cut(edges)
        if len(finer) == len(edges):
            return smooth(row, groups, _variances(row, edges, groups, noise), noise)
        coarse = smooth(row, groups, groups + SPREAD * mass * groups, noise)
        fitted = isotonic_real(coarse[None, :], upper=total)[0]
        edges, held = finer, -np.diff(np.concatenate([[total], fitted, [0.0]])[finer])


def _expect(edges: Int, held: Real) -> tuple[Real, Real]:
    """The expected number of groups of each step, and that of its whole band."""
    evenly = 1.0 / np.arange(1.0, edges[-1] + 1.0)
    widths = np.diff(edges)
    # A running sum has one order everywhere, as sums of slices need not.
    whole = np.diff(np.concatenate([[0.0], np.cumsum(evenly)])[edges])
    mass = np.repeat(held, widths)
    return mass * evenly / np.repeat(whole, widths), mass


def cut(edges: Int) -> Int:
    """Cut each band that is too wide where its logarithm is halved."""
    finer = [0]
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if stop - start > band_width(start):
            middle = round(((start + 1) * (stop + 1)) ** 0.5) - 1
            finer.append(min(max(middle, start + 1), stop - 1))
        finer.append(stop)
    return np.array(finer)


def _variances(row: Real, edges: Int, groups: Real, noise: float) -> Real:
    """How far steps are from expected, in the last and narrowest bands.

    Neighbours within a band are the more alike the more of them there are. A step further off
    than noise explains is left where it was seen.
    """
    widths = np.diff(edges)
    variance: Real = groups + SPREAD * groups * groups / np.repeat(widths, widths)
    unlike = row - np.append(row[1:], 0.0) - groups[1:]
    shared = np.full(len(row), 2.0 * noise)
    shared[-1:] = noise
    variance[1:] += np.maximum(unlike * unlike - SPIKE * shared, 0.0)
    return variance


def smooth(row: Real, groups: Real, variance: Real, noise: float) -> Real:
    """The best linear estimate, given how many groups each step is expected to have."""
    columns = len(row)
    expected = np.cumsum(groups[:0:-1])[::-1]
    out, left = np.empty((2, columns))
    scratch = Scratch(*np.empty((3, columns)))
    smooth_row(row - expected, variance[1:], noise, float(variance[0]), scratch, out, left)
    smoothed: Real = expected + out
    return smoothed
