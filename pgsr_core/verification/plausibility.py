"""How likely the measurements are under the noise that is stated for them.

Guarantee. Whatever is counted in a region is counted in exactly one of its children (a unit lies in
one leaf), for counts and for cumulative counts alike, so in D = parent − Σ children the true
numbers cancel: D = X − Σ X_c, noise alone. The children of a region all stand on the next level,
so with k children D has mean 0 and variance σ² = v_l + k v_(l+1), where noise of scale b has
v = 2a/(1−a)², a = exp(−1/b). Y = D²/σ² has mean 1, and E[Y²] = 3 + κ/σ⁴ with the fourth cumulants
κ = κ_l + k κ_(l+1), κ_l = 2a(1 + 4a + a²)/(1−a)⁴, as cumulants of independent numbers add up.

A measurement enters once as a parent and once as a child, hence residuals of neighbouring levels
depend on each other; those of one level do not, nor those of every second level: these are the
sets that are judged. For a set of n residuals and Q = Σ Y:

- too little. For every θ > 0, P(Q ≤ q) ≤ exp(θq) Π E[exp(−θY)] (Chernoff). With a standard normal
  Z, exp(−x²/2) = E[cos(xZ)], so E[exp(−θY)] = E[φ(Z √(2θ)/σ)] with D's characteristic function
  φ = φ_l φ_(l+1)^k, φ_l(t) = (1−a)²/(1 − 2a cos t + a²): one integral, whatever the scale. The
  trapezoidal rule errs upwards (its error is a sum of E[exp(−(tD + 2πm/h)²/2)] over m ≠ 0), so the
  bound is one.
- too much. P(|D| ≥ xσ) ≤ 2 exp(K(s) − sxσ) with D's cumulant generating function K (Chernoff); x is
  so large that it happens to no residual but with probability α/2. The others are at most x², have
  mean at most 1 and mean square at most E[Y²], so P(Q ≥ n + t) ≤ exp(−V/x⁴ h(x²t/V)) with
  V = Σ E[Y²] and h(u) = (1+u) ln(1+u) − u (Bennett 1962), which is put at α/2.

α is FALSE_ALARM divided by the number of sets and sides: of all honest releases at most that part
is refused. Nothing is assumed but what is stated; both bounds hold for a single residual.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree

Int = NDArray[np.int64]
Float = NDArray[np.float64]
FALSE_ALARM = 1e-9
"""The most that the probability of refusing an honest release may be."""

# Noise of a smaller scale is practically always 0, and to take it for larger refuses less; noise of
# a larger one does not fit into 64 bits.
_LEAST_SCALE, _LARGEST_SCALE = 0.02, 1e18
_LARGEST = 2**63 - 1
_CELLS_AT_ONCE = 4_000_000
_THETAS = np.logspace(-5, 4, 181)
_STEP = 0.005
_HALF_NORMAL = np.arange(0, 10 + _STEP, _STEP)


@dataclass(frozen=True)
class Residuals:
    """Residuals of one level's regions that have equally many children.

    Attributes:
        level: of the parents, from 0.
        children: k, of each of them.
        number: how many residuals, one for each region and size.
        squares: the sum of D²/σ².
        law: of each of them.
    """

    level: int
    children: int
    number: int
    squares: float
    law: ResidualLaw


@dataclass(frozen=True)
class ResidualLaw:
    """The law of D = X − Σ X_c: noise of one scale, and of another k times."""

    parent: float
    child: float
    children: int

    @property
    def variance(self) -> float:
        """σ²."""
        return _variance(self.parent) + self.children * _variance(self.child)

    @property
    def mean_square(self) -> float:
        """E[Y²] for Y = D²/σ²."""
        fourth = _fourth_cumulant(self.parent) + self.children * _fourth_cumulant(self.child)
        return 3 + fourth / self.variance**2

    def log_laplace(self, thetas: Float) -> Float:
        """ln E[exp(−θY)], or slightly more."""
        weights = np.exp(-(_HALF_NORMAL**2) / 2) * _STEP * math.sqrt(2 / math.pi)
        weights[0] /= 2
        t = np.sqrt(2 * thetas / self.variance)[:, None] * _HALF_NORMAL
        logs = _log_characteristic(self.parent, t)
        logs += self.children * _log_characteristic(self.child, t)
        # Beyond the last point the integrand is taken for its largest value, 1.
        expected = np.exp(logs) @ weights + math.erfc(_HALF_NORMAL[-1] / math.sqrt(2))
        bounded: Float = np.minimum(np.log(expected), 0.0)
        return bounded

    def furthest(self, log_probability: float) -> float:
        """x such that P(|D| ≥ xσ) is at most exp(log_probability)."""
        s = np.linspace(0.02, 0.98, 97) / max(self.parent, self.child)
        cumulants = _cumulants(self.parent, s) + self.children * _cumulants(self.child, s)
        distance = np.min((cumulants + math.log(2) - log_probability) / s)
        return float(distance) / math.sqrt(self.variance)


@dataclass(frozen=True)
class Judged:
    """A set of independent residuals, held against the noise that is stated.

    Attributes:
        levels: of the parents, from 1.
        number: how many residuals.
        mean: the mean squared standardised residual.
        lowest: honest noise gives no less; 0 where there are too few residuals to say so.
        highest: honest noise gives no more.
    """

    levels: tuple[int, ...]
    number: int
    mean: float
    lowest: float
    highest: float

    @property
    def plausible(self) -> bool:
        """Whether honest noise can have given it."""
        return self.lowest <= self.mean <= self.highest


def residuals(tree: RegionTree, measured: Int, scales: Sequence[Fraction]) -> list[Residuals]:
    """Standardise parent − Σ children for every region with children and every size.

    Args:
        tree: of regions.
        measured: regions × sizes.
        scales: of each level's noise, root first.

    Raises:
        OverflowError: a residual may not fit into 64 bits.
    """
    most = int(np.diff(tree.first_child).max()) + 1
    if max(-int(measured.min()), int(measured.max())) > _LARGEST // most:
        raise OverflowError("the measurements are too large to be added up")
    parents = np.flatnonzero(~tree.is_leaf)
    squares = np.zeros(parents.size)
    step = max(1, _CELLS_AT_ONCE // tree.regions)
    for start in range(0, measured.shape[1], step):
        part = measured[:, start : start + step]
        gaps = (part - tree.children_sums(part))[parents].astype(np.float64)
        squares += np.einsum("ij,ij->i", gaps, gaps)
    children, level = np.diff(tree.first_child)[parents], tree.level[parents]
    used = [min(max(float(scale), _LEAST_SCALE), _LARGEST_SCALE) for scale in scales]
    found = []
    for at, k in np.unique(np.stack([level, children]), axis=1).T.tolist():
        rows = (level == at) & (children == k)
        law = ResidualLaw(used[at], used[at + 1], k)
        number = int(rows.sum()) * measured.shape[1]
        found.append(Residuals(at, k, number, float(squares[rows].sum()) / law.variance, law))
    return found


def judge(found: Sequence[Residuals], *, false_alarm: float = FALSE_ALARM) -> list[Judged]:
    """Judge each level's residuals, and every second level's together."""
    levels = sorted({part.level for part in found})
    every_second = [tuple(level for level in levels if level % 2 == odd) for odd in (0, 1)]
    sets = dict.fromkeys([*((level,) for level in levels), *filter(None, every_second)])
    judged = []
    for chosen in sets:
        parts = [part for part in found if part.level in chosen]
        number = sum(part.number for part in parts)
        laws = tuple((part.law, part.number) for part in parts)
        lowest, highest = limits(laws, alpha=false_alarm / (2 * len(sets)))
        mean = sum(part.squares for part in parts) / number
        levels_from_1 = tuple(level + 1 for level in chosen)
        judged.append(Judged(levels_from_1, number, mean, lowest, highest))
    return judged


@lru_cache(maxsize=256)
def limits(laws: tuple[tuple[ResidualLaw, int], ...], *, alpha: float) -> tuple[float, float]:
    """Below and above which the mean of Y lies with a probability of at most α each.

    Args:
        laws: of independent residuals, and how many follow each.
        alpha: of either side.
    """
    number = sum(count for _, count in laws)
    logs = sum((count * law.log_laplace(_THETAS) for law, count in laws), np.zeros(_THETAS.size))
    lowest = float(np.max((math.log(alpha) - logs) / _THETAS)) / number
    furthest = max(law.furthest(math.log(alpha / (2 * number))) for law, _ in laws)
    bound = furthest**2
    spread = sum(count * law.mean_square for law, count in laws)
    u = _inverse_of_bennett(math.log(2 / alpha) * bound / spread * bound)
    return max(0.0, lowest), 1 + u * spread / bound / number


def _inverse_of_bennett(value: float) -> float:
    """Return u with (1+u) ln(1+u) − u = value, or slightly more."""
    low, high = 0.0, 1.0
    while (1 + high) * math.log1p(high) - high < value:
        high *= 2
    # Invariant: h(low) ≤ value ≤ h(high), as h grows.
    for _ in range(100):
        middle = (low + high) / 2
        if (1 + middle) * math.log1p(middle) - middle < value:
            low = middle
        else:
            high = middle
    return high


def _variance(scale: float) -> float:
    a, rest = math.exp(-1 / scale), -math.expm1(-1 / scale)
    return 2 * a / rest**2


def _fourth_cumulant(scale: float) -> float:
    a, rest = math.exp(-1 / scale), -math.expm1(-1 / scale)
    return 2 * a * (1 + 4 * a + a * a) / rest**4


def _log_characteristic(scale: float, t: Float) -> Float:
    """ln φ(t): 1 − 2a cos t + a² is (1−a)² + 4a sin²(t/2), which loses no digits near 0."""
    a, rest = math.exp(-1 / scale), -math.expm1(-1 / scale)
    logs: Float = -np.log1p(4 * a / rest**2 * np.sin(t / 2) ** 2)
    return logs


def _cumulants(scale: float, s: Float) -> Float:
    """ln E[exp(sX)] for s below 1/scale."""
    rest = -math.expm1(-1 / scale)
    logs: Float = (
        2 * math.log(rest) - np.log(-np.expm1(s - 1 / scale)) - np.log(-np.expm1(-s - 1 / scale))
    )
    return logs
