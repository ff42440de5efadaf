"""Distributions of privacy losses, composed so that every error makes the figure larger.

The privacy loss of an outcome o of a pair of distributions (P, Q) is log P(o)/Q(o). Its
distribution under P, the privacy-loss distribution, gives the smallest δ for every ε:
δ(ε) = E[(1 − exp(ε − loss))₊] (Sommer, Meiser and Mohammadi 2019). Independent pairs add their
losses, so their distributions are convolved.

The convolution is done here, by sums of products of non-negative numbers: its rounding errors are
*relative*, and one factor covers them at any δ. A Fourier transform, which dp-accounting uses, has
absolute errors, which no δ below them survives. Turning the result into ε is dp-accounting's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pgsr_core.budget import total

Float = NDArray[np.float64]

# More points than this are merged, upwards.
MOST_POINTS = 1 << 15
# Of each composition the rarest outcomes, this part of δ, are counted as certain disclosure.
TAIL = 1e-9
# A mass has a relative error of at most 2⁻⁵³ for each product and sum on its way, and for n cells
# there are at most n·(4 + 2 log₂ n) of them: less than this while n is below 10⁸.
ROUNDING = 1e-6
# Figures are multiples of this, rounded up.
STEP = Fraction(1, 10**6)


@dataclass(frozen=True)
class Losses:
    """A privacy-loss distribution, or one that is worse.

    Attributes:
        lowest: the loss of the first mass.
        gap: the distance of one loss to the next.
        masses: their probabilities.
        beyond: the probability of an infinite loss.
    """

    lowest: Fraction
    gap: Fraction
    masses: Float
    beyond: float = 0.0


def losses_of_a_cell(decay: Fraction, *, change: int) -> Losses:
    """Losses of double-geometric noise, P(X = v) ∝ exp(−decay·|v|), on a cell that changes.

    With a = exp(−decay) and change s, X has the loss decay·(|X − s| − |X|): s·decay for X ≤ 0,
    which has probability 1/(1+a); (s − 2j)·decay for X = j, 0 < j < s, which has
    a^j (1−a)/(1+a); −s·decay for X ≥ s, which has a^s/(1+a). For s = 1 this is randomised response
    with ε = decay, whose pair of distributions is worse than that of every mechanism that is
    ε-differentially private (Kairouz, Oh and Viswanath 2015, proof of Theorem 3.3).
    """
    rate = float(decay)
    masses = np.exp(-rate * np.arange(change, -1, -1.0))
    masses[1:-1] *= -math.expm1(-rate)
    return Losses(-change * decay, 2 * decay, masses / (1 + math.exp(-rate)))


def compose_cells(cells: Mapping[tuple[Fraction, int], int], *, delta: Fraction) -> Losses:
    """Losses of many cells with independent noise.

    Args:
        cells: how many cells have noise of this decay and change by this much.
        delta: the δ that the result will be asked for.
    """
    tail = float(delta) * TAIL / sum(cells.values())
    groups = [
        _power(losses_of_a_cell(decay, change=change), times, tail=tail)
        for (decay, change), times in cells.items()
    ]
    extent = total(len(group.masses) * group.gap for group in groups)
    gap = max(_common_divisor([group.gap for group in groups]), extent / MOST_POINTS)
    composed, *others = sorted(groups, key=lambda group: len(group.masses))
    composed = _on_grid(composed, gap)
    for other in others:
        composed = _compose(composed, _on_grid(other, gap), tail=tail)
    return composed


def epsilon_for(losses: Losses, *, delta: Fraction) -> Fraction:
    """The least multiple of STEP that is certainly an ε for this δ."""
    # It takes seconds to import, and only this needs it.
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    # The lowest loss need not be a multiple of half the gap: rounded up. Losses of at most 0
    # take no part in δ(ε) for any ε ≥ 0.
    half = losses.gap / 2
    first = math.ceil(losses.lowest / half)
    distribution = PrivacyLossDistribution.create_from_rounded_probability(
        {
            first + 2 * place: float(mass)
            for place, mass in enumerate(losses.masses)
            if first + 2 * place > 0
        },
        infinity_mass=losses.beyond,
        value_discretization_interval=float(half),
    )
    allowed = float(delta) / (1 + ROUNDING)
    steps = math.ceil(Fraction(distribution.get_epsilon_for_delta(allowed)) / STEP)
    # What was found by a logarithm of a difference is confirmed by a sum of positive terms.
    while distribution.get_delta_for_epsilon(float(steps * STEP)) > allowed:
        steps += 1
    return steps * STEP


def _power(losses: Losses, times: int, *, tail: float) -> Losses:
    """Compose a distribution with itself, by squaring."""
    if times == 1:
        return losses
    half = _power(losses, times // 2, tail=tail)
    square = _compose(half, half, tail=tail)
    if len(square.masses) > MOST_POINTS:
        square = _on_grid(square, 2 * square.gap)
    return _compose(square, _on_grid(losses, square.gap), tail=tail) if times % 2 else square


def _compose(one: Losses, other: Losses, *, tail: float) -> Losses:
    """Add up independent losses on one grid."""
    rare, frequent = sorted((one.masses, other.masses), key=np.count_nonzero)
    masses = np.zeros(len(rare) + len(frequent) - 1)
    for place in np.flatnonzero(rare):
        masses[place : place + len(frequent)] += rare[place] * frequent
    return _trimmed(
        Losses(one.lowest + other.lowest, one.gap, masses, one.beyond + other.beyond), tail=tail
    )


def _trimmed(losses: Losses, *, tail: float) -> Losses:
    """Cut rare losses off: high ones count as infinite, low ones as the lowest that is kept."""
    masses = losses.masses
    rising, falling = np.cumsum(masses), np.cumsum(masses[::-1])
    low = int(np.searchsorted(rising, tail, side="right"))
    high = int(np.searchsorted(falling, tail, side="right"))
    kept = masses[low : len(masses) - high].copy()
    kept[0] += rising[low - 1] if low else 0
    beyond = losses.beyond + (float(falling[high - 1]) if high else 0)
    return Losses(losses.lowest + low * losses.gap, losses.gap, kept, beyond)


def _on_grid(losses: Losses, gap: Fraction) -> Losses:
    """Move every loss up to the next point of another grid, which starts at the same loss."""
    up, down = (losses.gap / gap).as_integer_ratio()
    places = [-(-place * up // down) for place in range(len(losses.masses))]
    masses: Float = np.bincount(np.array(places), weights=losses.masses)  # type: ignore[assignment]
    return Losses(losses.lowest, gap, masses, losses.beyond)


def _common_divisor(numbers: list[Fraction]) -> Fraction:
    """The largest fraction of which all are multiples."""
    below = math.lcm(*(number.denominator for number in numbers))
    return Fraction(math.gcd(*(int(number * below) for number in numbers)), below)
