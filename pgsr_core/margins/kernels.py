"""Compiled loops behind the margins: intervals cell by cell, seeded noise, counts of errors."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

Int = NDArray[np.int64]
Real = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Places in the last dimensions of Reaches.own: terms of noise, and ends of an interval.
ONE, TWO = 0, 1
LOWER, UPPER = 0, 1
# Errors are told apart exactly below 2 · FINE, then to one part in FINE.
FINE_BITS = 6
FINE = 1 << FINE_BITS
ERROR_BINS = FINE * (64 - FINE_BITS)


@njit(cache=True)
def _shorter_share(mean: float, own: Int, terms: int) -> int:
    """How to share α around a single value: what makes the interval shorter, as expected."""
    best, shortest = 0, np.inf
    for share in range(own.shape[1]):
        below, above = own[0, share, terms, LOWER], own[0, share, terms, UPPER]
        width = mean + above - max(0.0, mean - below)
        if width < shortest:
            best, shortest = share, width
    return best


@njit(cache=True)
def _put_around(bounds: Int, value: int, own: Int, share: int, terms: int) -> None:
    for conf in range(own.shape[0]):
        bounds[2 * conf] = value - own[conf, share, terms, LOWER]
        bounds[2 * conf + 1] = value + own[conf, share, terms, UPPER]


@njit(cache=True)
def _choose(
    k: int,
    first: int,
    weight: float,
    expected: Real,
    windows: Int,
    both_sides: Int,
    left_side: Int,
    own: Int,
) -> tuple[int, int, bool]:
    """Choose the share of α, the window (by its place) and whether it has a right side.

    Args:
        k: the cell's column.
        first: the first column that a window may use.
        weight: the region's share of its level.
        expected: prefix sums of the cumulative counts expected of the level.
        windows: see Reaches, as the rest.
        both_sides: of this level.
        left_side: of this level.
        own: of this level.
    """
    columns = expected.shape[0] - 1
    last = k == columns - 1
    mean = weight * (expected[k + 1] - expected[k])
    if not last:
        mean -= weight * (expected[k + 2] - expected[k + 1])
    terms = ONE if last else TWO
    share, place, both, shortest = 0, 0, not last, np.inf
    # The share that spends more on the lower end has the higher lower end.
    highest = max(0.0, mean - own[0, 0, terms, LOWER])
    for i in range(windows.shape[0]):
        w = windows[i]
        if k + 1 - w < first:
            break
        left = weight * (expected[k + 1] - expected[k + 1 - w]) / w
        two_sided = k + 1 + w <= columns
        right = weight * (expected[k + 1 + w] - expected[k + 1]) / w if two_sided else 0.0
        # Invariant: `shortest` is the least width of all windows before w. What a window is
        # expected to hold only grows with it, so later ones are no shorter than this.
        if left - right - highest >= shortest:
            break
        for s in range(own.shape[1]):
            lower = max(0.0, mean - own[0, s, terms, LOWER])
            width = left + left_side[0, s, i] / w - lower
            if width < shortest:
                share, place, both, shortest = s, i, False, width
            width = left - right + both_sides[0, s, i] / w - lower
            if two_sided and width < shortest:
                share, place, both, shortest = s, i, True, width
    return share, place, both


@njit(cache=True)
def _differences(
    row: Int,
    first: int,
    weight: float,
    expected: Real,
    alone: bool,
    windows: Int,
    both_sides: Int,
    left_side: Int,
    own: Int,
    bounds: Int,
) -> None:
    """Write the intervals of one region's differences of neighbours; see _choose."""
    columns = row.shape[0]
    sums = np.zeros(columns + 1, dtype=np.int64)
    sums[1:] = np.cumsum(row)
    for k in range(columns):
        last = k == columns - 1
        share, place, both = 0, 0, not last
        if k >= first and not alone:
            share, place, both = _choose(
                k, first, weight, expected, windows, both_sides, left_side, own
            )
        value = row[k] if last else row[k] - row[k + 1]
        _put_around(bounds[:, k], value, own, share, ONE if last else TWO)
        w = windows[place]
        window = sums[k + 1] - sums[k + 1 - w]
        if both:
            window -= sums[k + 1 + w] - sums[k + 1]
        for conf in range(own.shape[0]):
            far = both_sides if both else left_side
            bounds[2 * conf + 1, k] = (window + far[conf, share, place]) // w


@njit(cache=True)
def _remainder(
    total: int, row: Int, after: int, mean: float, alone: bool, own: Int, bounds: Int
) -> None:
    """Write the interval of the first published size: what a known total leaves over."""
    if after == row.shape[0]:
        bounds[:] = total
        return
    share = 0 if alone else _shorter_share(max(0.0, mean), own, ONE)
    _put_around(bounds, total - row[after], own, share, ONE)


@njit(cache=True, parallel=True)
def cumulative_intervals(
    measured: Int,
    level: Int,
    totals: Int,
    shares: Real,
    share_is_measured: Flags,
    expected: Real,
    alone: bool,
    windows: Int,
    both_sides: Int,
    left_side: Int,
    own: Int,
    bounds: Int,
) -> None:
    """Write the intervals of counts that cumulative measurements give; see intervals.py."""
    regions, columns = measured.shape
    offset = bounds.shape[2] - columns
    sums = np.zeros((expected.shape[0], columns + 1))
    for at in range(expected.shape[0]):
        sums[at, 1:] = np.cumsum(expected[at])
    for r in prange(regions):
        at, row, weight = level[r], measured[r], shares[r]
        # Windows keep off the measurement that the region's share was taken from.
        first = 1 if share_is_measured[r] else 0
        far = (windows, both_sides[at], left_side[at], own[at])
        _differences(row, first, weight, sums[at], alone, *far, bounds[:, r, offset:])
        if totals[r] >= 0:
            after = 1 - offset
            mean = 0.0 if after == columns else totals[r] - weight * expected[at, after]
            _remainder(totals[r], row, after, mean, alone, own[at], bounds[:, r, 0])


@njit(cache=True, parallel=True)
def count_intervals(
    measured: Int,
    level: Int,
    shares: Real,
    expected: Real,
    alone: bool,
    own: Int,
    bounds: Int,
) -> None:
    """Write the intervals of counts that were measured themselves; see intervals.py."""
    regions, columns = measured.shape
    for r in prange(regions):
        at, row = level[r], measured[r]
        all_measured, all_expected = row.sum(), expected[at].sum()
        for k in range(columns):
            share = 0
            if not alone:
                weight, others = shares[r], all_expected - expected[at, k]
                if weight < 0:
                    # Of all other sizes: the cell's own noise has no part in the choice.
                    weight = max(0, all_measured - row[k]) / others if others > 0 else 0.0
                share = _shorter_share(weight * expected[at, k], own[at], ONE)
            _put_around(bounds[:, r, k], row[k], own[at], share, ONE)


@njit(cache=True, parallel=True)
def cut_and_stretch(bounds: Int, counts: Int, most: Int) -> None:
    """Cut intervals to [0, most], then stretch them to hold the released counts."""
    for r in prange(counts.shape[0]):
        for k in range(counts.shape[1]):
            count = counts[r, k]
            for i in range(0, bounds.shape[0], 2):
                lower, upper = bounds[i, r, k], bounds[i + 1, r, k]
                bounds[i, r, k] = min(max(lower, 0), most[r], count)
                bounds[i + 1, r, k] = max(min(upper, most[r]), count, 0)


@njit(cache=True)
def _scrambled(counter: np.uint64) -> np.uint64:
    """SplitMix64's output function (Steele, Lea and Flood 2014): 64 bits of a counter's."""
    mixed = counter
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@njit(cache=True, parallel=True)
def add_simulated_noise(values: Int, decay: Real, start: np.uint64, noisy: Int) -> None:
    """Write values plus double-geometric noise, P(X = v) ∝ exp(−|v| decay): not private.

    A cell's noise depends on the start and the cell's place alone, so threads, and versions of
    libraries, make no difference. P(|X| ≥ j) = 2a^j / (1 + a) with a = exp(−decay) is inverted at
    one uniform number; a further bit gives the sign.
    """
    regions, columns = values.shape
    for r in prange(regions):
        a = math.exp(-decay[r])
        for k in range(columns):
            place = np.uint64(r * columns + k + 1)
            bits = _scrambled(start + place * np.uint64(0x9E3779B97F4A7C15))
            uniform = (np.float64(bits >> np.uint64(11)) + 0.5) * 2.0**-53
            half = uniform * (1 + a) / 2
            size = np.int64(-math.log(half) / decay[r]) if half < a else np.int64(0)
            noisy[r, k] = values[r, k] + (size if bits & np.uint64(1) else -size)


@njit(cache=True)
def error_bin(error: int) -> int:
    """The bin of an absolute error; bins are in order of the errors they hold."""
    shift = 0
    while error >= 2 * FINE:
        error >>= 1
        shift += 1
    return shift * FINE + error


@njit(cache=True)
def count_errors(truth: Int, released: Int, level: Int, classes: Int, counted: Int) -> None:
    """Add to counted[level, class of size, bin] the cells whose error lies in the bin."""
    for r in range(truth.shape[0]):
        for k in range(truth.shape[1]):
            counted[level[r], classes[k], error_bin(abs(released[r, k] - truth[r, k]))] += 1
