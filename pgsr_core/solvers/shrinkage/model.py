"""What is expected of a row, and how far rows are from it: moments over a level of the tree.

Of a region's groups a share is expected to be of each size that is its parent's: m = share ·
(parent's number of groups of that size). Around that, numbers vary with variance m + φ m²: as
counts do, plus what regions differ by. φ is estimated for each band of sizes, pooled over the
regions of a level, and counts only as far as noise cannot explain it. Steps of a row's deviation,
going down from the largest size, have that variance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Int = NDArray[np.int64]
Real = NDArray[np.float64]


class Level(NamedTuple):
    """One level of the tree below the root: its regions are ``start : stop``.

    Attributes:
        above: the first region of the level above, which ends before `start`.
        start: its first region.
        stop: the first region of the next level.
        parent: the parent of every region of the tree.
        shapes: the rows of the level above, made monotone: what to expect of the level's own.
        first_child: the children of r are ``first_child[r] : first_child[r + 1]``.
        noise: variance of the noise in the cells of every region.
        band: the band of each size.
    """

    above: int
    start: int
    stop: int
    parent: Int
    shapes: Real
    first_child: Int
    noise: Real
    band: Int


class Shares(NamedTuple):
    """What each region of the tree is expected to have of its parent's groups.

    Attributes:
        share: the part, of every size.
        doubt: variance of that part, where it is estimated.
        leeway: siblings i that vary by φ m_i² around their shares s_i of a known sum vary by
            φ m_i² (1 − 2 s_i + Σ_j s_j²); this is the factor in brackets.
    """

    share: Real
    doubt: Real
    leeway: Real


# Sizes of a band differ by a tenth.
BAND_SHARE = 10
# How many standard errors of the noise a moment must exceed.
SIGNIFICANT = 2.0
# Laplace noise X of variance s has E X⁴ = 6 s², so X² has variance 5 s²; for the difference of two
# it is (2 · 6 + 6) s² − (2 s)² = 14 s².
SQUARE_OF_CELL, SQUARE_OF_DIFFERENCE = 5.0, 14.0
# The square of a normal variable of variance s has variance 2 s².
SQUARE_OF_NORMAL = 2.0
ROUNDS = 3
# No region is expected to be smaller than this part of an average sibling.
LEAST_SHARE = 0.02


def band_width(start: int) -> int:
    """How many sizes a band has that begins with the given one, counted from 0."""
    return max(1, (start + 1) // BAND_SHARE)


def bands(columns: int) -> Int:
    """The band of each size 1..N: single sizes first, then as wide as a tenth of their start."""
    band = np.empty(columns, dtype=np.int64)
    start = number = 0
    while start < columns:
        stop = start + band_width(start)
        band[start:stop] = number
        start, number = stop, number + 1
    return band


@njit(cache=True)
def fit_shares(level: Level, values: Real, shares: Shares) -> None:
    """Regress each region's row on its parent's: its share of it, and that share's variance."""
    for region in range(level.start, level.stop):
        own, shape = values[region], level.shapes[level.parent[region] - level.above]
        product, square = 0.0, 0.0
        for k in range(len(own)):
            product += own[k] * shape[k]
            square += shape[k] * shape[k]
        shares.share[region] = product / square if square > 0.0 else 0.0
        shares.doubt[region] = level.noise[region] / square if square > 0.0 else 0.0


@njit(cache=True)
def shrink_shares(level: Level, shares: Shares) -> None:
    """Draw the shares of siblings together as far as doubt explains their spread.

    They sum to one afterwards, and `doubt` is what is left of their variance.
    """
    share, doubt = shares.share, shares.doubt
    spread, freedom = 0.0, 0.0
    for region in range(level.start, level.stop):
        above = level.parent[region]
        siblings = level.first_child[above + 1] - level.first_child[above]
        if siblings > 1:
            unlike = siblings * share[region] - 1.0
            spread += unlike * unlike - doubt[region] * siblings * siblings
            freedom += 1.0 - 1.0 / siblings
    spread = max(spread / freedom, 0.0) if freedom > 0.0 else 0.0
    region = level.start
    while region < level.stop:
        last = level.first_child[level.parent[region] + 1]
        siblings = last - region
        total = 0.0
        for sibling in range(region, last):
            both = spread + doubt[sibling] * siblings * siblings
            kept = spread / both if both > 0.0 else 1.0
            share[sibling] = max(1.0 + kept * (siblings * share[sibling] - 1.0), LEAST_SHARE)
            doubt[sibling] *= kept
            total += share[sibling]
        for sibling in range(region, last):
            share[sibling] /= total
        region = last


@njit(cache=True)
def settle_leeway(level: Level, shares: Shares) -> None:
    """Work out the leeway of the level from its shares."""
    share = shares.share
    for region in range(level.above, level.start):
        first, last = level.first_child[region], level.first_child[region + 1]
        squares = 0.0
        for child in range(first, last):
            squares += share[child] * share[child]
        for child in range(first, last):
            shares.leeway[child] = max(1.0 - 2.0 * share[child] + squares, 0.0)


@njit(cache=True)
def overdispersion(level: Level, values: Real, shares: Shares) -> Real:
    """φ of each band of sizes, by weighted moments over the regions of the level.

    Every cell's squared step says what φ is, with a variance that depends on φ: so weights are
    refined ROUNDS times, from those for φ = 0.
    """
    found = np.zeros(level.band[-1] + 1)
    for _ in range(ROUNDS):
        excess, square, error = _moments(level, values, shares, found)
        for b in range(len(found)):
            beyond = excess[b] - SIGNIFICANT * np.sqrt(error[b])
            found[b] = beyond / square[b] if beyond > 0.0 and square[b] > 0.0 else 0.0
    return found


@njit(cache=True)
def _moments(level: Level, values: Real, shares: Shares, found: Real) -> tuple[Real, Real, Real]:
    """Weighted sums, by band: of squared steps beyond noise, of their part of φ, of variances."""
    band = level.band
    excess, square, error = np.zeros((3, len(found)))
    for region in range(level.start, level.stop):
        own, shape = values[region], level.shapes[level.parent[region] - level.above]
        share, noise = shares.share[region], level.noise[region]
        previous, further = 0.0, 0.0
        for k in range(len(own) - 1, -1, -1):
            expected = share * (shape[k] - further)
            further = shape[k]
            deviation = own[k] - share * further
            step = deviation - previous
            previous = deviation
            shared = 2.0 * noise if k < len(own) - 1 else noise
            counted = (1.0 - share) * expected
            part = shares.leeway[region] * expected * expected
            spread = counted + found[band[k]] * part
            blur = SQUARE_OF_DIFFERENCE * noise * noise
            weight = part / (blur + SQUARE_OF_NORMAL * spread * spread) if part > 0.0 else 0.0
            excess[band[k]] += weight * (step * step - shared - counted)
            square[band[k]] += weight * part
            error[band[k]] += weight * weight * blur
    return excess, square, error
