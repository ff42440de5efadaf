"""The distribution of the noise: its shape at the scale that ε calls for, and its two sides."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.privacy_audit.verdicts import Verdict, worst

Int = NDArray[np.int64]
# With so many expected draws in every cell the true tail of Pearson's statistic at 1e-9 is
# within ten times its chi-square approximation; a test convolves it.
EXPECTED_DRAWS = 100


@dataclass(frozen=True)
class NoiseRuns:
    """The noise of several runs of one product.

    Attributes:
        noise: (runs × regions × sizes): measurements less what was measured.
        truth: (regions × sizes): what was measured.
        level: of each region.
        scale: what the noise should have, recomputed by the audit.
    """

    noise: Int
    truth: Int
    level: Int
    scale: Fraction

    def groups(self) -> Iterator[tuple[str, Int]]:
        """The noise of each level, apart for true zeros and positive counts."""
        for level in np.unique(self.level):
            rows = self.level == level
            for name, cells in (("zero", self.truth == 0), ("positive", self.truth > 0)):
                chosen = cells & rows[:, None]
                yield f"level {level + 1}, {name} cells", self.noise[:, chosen].ravel()


def chi_square(runs: NoiseRuns) -> Verdict:
    """Pearson's test of all the noise together, and of each level's zero and positive cells.

    A group too small for the test is judged with the others only.
    """
    samples = {"all cells": runs.noise.ravel(), **dict(runs.groups())}
    return worst(
        {
            name: _p_value(noise, runs.scale)
            for name, noise in samples.items()
            if noise.size * _mass_at_zero(runs.scale) >= EXPECTED_DRAWS
        }
    )


def sides(runs: NoiseRuns) -> Verdict:
    """As much noise below zero as above: a sign test in each group, exact at any scale."""
    p_values = {}
    for name, noise in runs.groups():
        drawn = int(np.count_nonzero(noise))
        below = int(np.count_nonzero(noise < 0))
        p_values[name] = stats.binomtest(below, drawn).pvalue if drawn else 1.0
    return worst(p_values)


def _p_value(noise: Int, scale: Fraction) -> float:
    starts, expected = chi_square_cells(scale, noise.size)
    places = np.sign(noise) * np.searchsorted(starts, np.abs(noise), side="right")
    observed = np.bincount(places + len(starts), minlength=len(expected))
    return float(stats.chisquare(observed, expected, sum_check=False).pvalue)


def _mass_at_zero(scale: Fraction) -> float:
    return math.tanh(1 / (2 * float(scale)))


def chi_square_cells(scale: Fraction, draws: int) -> tuple[Int, NDArray[np.float64]]:
    """Cells with enough expected draws each: where they start above 0, and what is expected.

    They are the same below 0; expected are those below, 0 itself, and those above.

    P(X = v) = (1 − a)/(1 + a) · a^|v| with a = exp(−1/scale), hence P(X ≥ v) = a^v/(1 + a).
    """
    decay = math.exp(-1 / float(scale))
    least = EXPECTED_DRAWS / draws

    def beyond(value: int) -> float:
        return decay**value / (1 + decay)

    starts = [1]
    while True:
        following = starts[-1] + 1
        while beyond(starts[-1]) - beyond(following) < least <= beyond(following):
            following += 1
        if beyond(following) < least:
            break
        starts.append(following)
    ends = [*(beyond(start) for start in starts[1:]), 0.0]
    above = [beyond(start) - end for start, end in zip(starts, ends, strict=True)]
    return np.array(starts), draws * np.array([*above[::-1], _mass_at_zero(scale), *above])
