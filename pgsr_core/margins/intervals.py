"""Confidence intervals for true counts, from the measurements and the law of their noise.

Guarantee. For every cell, whatever its true count t and whatever the counts around it,
P(lower ≤ t ≤ upper) ≥ 1 − α over the noise of the release; of one cell at a time, not of all cells
at once. It holds because no end depends on post-processed numbers:

- *Lower end.* A measured count, or the difference m_k − m_(k+1) of two cumulative ones, is t plus
  noise of a known law; t ≥ m_k − m_(k+1) − q fails with probability P(S > q).
- *Upper end.* The true cumulative counts do not increase with k, so for every w
  t = c_k − c_(k+1) ≤ mean(c_(k−w+1), …, c_k) − mean(c_(k+1), …, c_(k+w)), and, as no count is
  negative, also t ≤ mean(c_(k−w+1), …, c_k). The means of the measurements exceed the right-hand
  sides by noise of a known law whose spread falls with √w. Where few groups lie nearby, a wide
  window says much more than the cell alone: that is the honest bound for a released 0.
- *Which window, and how α is shared by the two ends*, is chosen where the interval is expected to
  be shortest. The expectation comes from another level of the tree (the root, and for the root the
  level below it), whose noise is independent of the cell's, so the choice does not favour lucky
  draws and the coverage holds given the choice. A region's share of its level is its public number
  of groups or, without a unit table, measured apart from the numbers that the interval is made of.

The interval is then cut to what is possible, [0, number of groups], and stretched to hold the
released count, which can only add to its coverage. All of it is post-processing of private
measurements, so it costs nothing (Dwork and Roth 2014, Proposition 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pgsr_core.margins.noise_sums import tail_bound
from pgsr_core.margins.tables import BOUNDS, CONFIDENCES, Int
from pgsr_core.postprocessing.protocol import PublicFacts, Query

Real = NDArray[np.float64]

UPPER_SHARES = (Fraction(1, 2), Fraction(9, 10))
"""Which part of α the upper end gets: an even share, or most of it where little is expected."""


def confidence_intervals(query: Query, facts: PublicFacts, measurements: Int, counts: Int) -> Int:
    """The intervals of every cell: one (regions × sizes) table for each of BOUNDS.

    Args:
        query: what was measured.
        facts: the public facts, with the scales of the noise.
        measurements: regions × measured sizes.
        counts: the released table, which the intervals are made to hold.
    """
    from pgsr_core.margins import kernels

    bounds = np.empty((len(BOUNDS), *counts.shape), dtype=np.int64)
    reaches = Reaches.of(facts, columns=measurements.shape[1] if query is Query.CUMULATIVE else 1)
    tables = (reaches.windows, reaches.both_sides, reaches.left_side, reaches.own)
    expected, alone = _expected(query, facts, measurements)
    level = facts.tree.level
    if query is Query.CUMULATIVE:
        totals = _known_totals(facts)
        shares, apart = _shares(facts, measurements)
        kernels.cumulative_intervals(
            measurements, level, totals, shares, apart, expected, alone, *tables, bounds
        )
    else:
        kernels.count_intervals(
            measurements, level, _public_shares(facts), expected, alone, reaches.own, bounds
        )
    most = facts.groups_by_region
    if most is None:
        most = np.full(facts.tree.regions, facts.groups, dtype=np.int64)
    kernels.cut_and_stretch(bounds, counts, most)
    return bounds


@dataclass(frozen=True)
class Reaches:
    """How far noise reaches, for each level, confidence and way to share α (UPPER_SHARES).

    Attributes:
        windows: numbers of sizes that are averaged.
        both_sides: (levels × confidences × shares × windows): for the upper end, of w sizes on
            either side, times w.
        left_side: the same for the w sizes on the left alone.
        own: (levels × confidences × shares × 2 × 2): of the cell's own measurement (first) or of
            a difference of two (second), for the lower end (first) and the upper one (second).
    """

    windows: Int
    both_sides: Int
    left_side: Int
    own: Int

    @classmethod
    def of(cls, facts: PublicFacts, *, columns: int) -> Reaches:
        """Look all of them up; a scale that several levels share is looked up once."""
        windows = _windows(columns)
        shape = (len(facts.scales), len(CONFIDENCES), len(UPPER_SHARES))
        both_sides = np.zeros((*shape, len(windows)), dtype=np.int64)
        left_side, own = both_sides.copy(), np.zeros((*shape, 2, 2), dtype=np.int64)
        for level, conf, share in np.ndindex(shape):
            scale, alpha = facts.scales[level], 1 - CONFIDENCES[conf]
            upper = alpha * UPPER_SHARES[share]
            for place, window in enumerate(windows.tolist()):
                both_sides[level, conf, share, place] = tail_bound(scale, 2 * window, upper)
                left_side[level, conf, share, place] = tail_bound(scale, window, upper)
            for terms in (1, 2):
                for end, probability in enumerate((alpha - upper, upper)):
                    own[level, conf, share, terms - 1, end] = tail_bound(scale, terms, probability)
        return cls(windows, both_sides, left_side, own)


def _windows(columns: int) -> Int:
    """1, 2, 3, 4, 6, 8, 12, 16, …: steps that lose little, few enough to try them all."""
    powers = (1 << k for k in range(columns.bit_length()))
    steps = sorted({step for power in powers for step in (power, power + power // 2)})
    return np.array([step for step in steps if step <= columns], dtype=np.int64)


def _expected(query: Query, facts: PublicFacts, measurements: Int) -> tuple[Real, bool]:
    """What to expect of a whole level, for each level: never from the level's own noise.

    Returns:
        levels × measured sizes, and whether there is no other level to ask.
    """
    tree = facts.tree
    if tree.levels == 1:
        return np.zeros((1, measurements.shape[1])), True
    below = slice(tree.level_start[1], tree.level_start[2])
    others = np.stack([measurements[below].sum(axis=0), measurements[0]]).astype(np.float64)
    if query is Query.CUMULATIVE:
        from pgsr_core.solvers.isotonic import isotonic_real

        others = isotonic_real(others, upper=float(facts.groups))
    else:
        others = np.maximum(others, 0.0)
    return others[np.minimum(np.arange(tree.levels), 1)], False


def _known_totals(facts: PublicFacts) -> Int:
    """The number of groups of each region where it is known, else −1."""
    if facts.groups_by_region is not None:
        return facts.groups_by_region
    totals = np.full(facts.tree.regions, -1, dtype=np.int64)
    totals[0] = facts.groups  # declared as an invariant
    return totals


def _public_shares(facts: PublicFacts) -> Real:
    """Each region's share of all groups where it is public, else −1."""
    if facts.groups_by_region is not None:
        return facts.groups_by_region / max(1, facts.groups)
    shares = np.full(facts.tree.regions, -1.0)
    shares[0] = 1.0
    return shares


def _shares(facts: PublicFacts, measurements: Int) -> tuple[Real, NDArray[np.bool_]]:
    """Each region's share of all groups, and whether the first measured size was used for it."""
    shares = _public_shares(facts)
    measured = shares < 0
    if measured.any():
        estimates = np.maximum(measurements[:, 0], 0) / max(1, facts.groups)
        shares = np.where(measured, estimates, shares)
    return shares, measured
