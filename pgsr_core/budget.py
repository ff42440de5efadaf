"""Exact arithmetic of budgets: what a release costs, how it is split, what remains."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from pgsr_core.errors import PgsrError, Refused
from pgsr_core.scales import worth_pooling

SHARE_DIGITS = 4
MOST_OPTIMISED_LEVELS = 1000
# The splits of ε over the levels that a mechanism may have as its own.
OwnSplit = Literal["uniform", "balanced"]
GIVEN = Fraction(1, 30)
MOST_GIVEN = Fraction(1, 2)


class SplitDoesNotFit(PgsrError):
    """A split has more or fewer shares or weights than the tree has levels, or is no split."""


class BudgetExceeded(Refused):
    """A charge would pass the population's budget; nothing was charged."""

    def __init__(self, *, population: str, remaining: Fraction, requested: Fraction) -> None:
        self.population = population
        self.remaining = remaining
        self.requested = requested
        super().__init__(
            f"the budget of population {population} does not allow this release: requested "
            f"epsilon {show(requested)}, remaining {show(remaining)}. Nothing was charged. "
            "Remedy: lower privacy.epsilon, or decide to raise the budget: pgsr budget raise."
        )


@dataclass(frozen=True)
class Account:
    """A population's budget and what was charged to it.

    Guarantee. Releases of one population compose sequentially: the sum of their ε bounds the
    whole (Dwork and Roth 2014, Theorem 3.14), so it must never pass the budget. Reservations
    count as spent until they are released, or two concurrent releases could both fit.
    """

    population: str
    budget: Fraction
    spent: Fraction = Fraction(0)
    reserved: Fraction = Fraction(0)

    @property
    def remaining(self) -> Fraction:
        """What a new release may still ask for."""
        return self.budget - self.spent - self.reserved

    def require(self, requested: Fraction) -> None:
        """Refuse a charge that does not fit.

        Raises:
            BudgetExceeded: with remaining and requested.
        """
        if requested < 0 or requested > self.remaining:
            raise BudgetExceeded(
                population=self.population, remaining=self.remaining, requested=requested
            )


def overruled(account: Account, configured: Fraction) -> str | None:
    """Say that a configuration's budget does not count, where it is not the ledger's."""
    if configured == account.budget:
        return None
    name = account.population
    change = (
        f"To raise it: pgsr budget raise {name} --to {configured} --reason TEXT."
        if configured > account.budget
        else "A budget is never lowered."
    )
    return (
        f"the configuration gives population {name} a budget of {show(configured)}, the ledger "
        f"{show(account.budget)}: the ledger's counts. {change}"
    )


def split_over_levels(
    epsilon: Fraction, *, levels: int, shares: Sequence[Fraction] | None
) -> tuple[Fraction, ...]:
    """Split ε over the levels, root first: equally, or by shares that add up to one.

    Every level is measured on the same people, so the levels compose sequentially and their
    ε must add up to the total exactly.

    Raises:
        SplitDoesNotFit: the number of shares is not the number of levels.
    """
    if shares is None:
        return (epsilon / levels,) * levels
    if len(shares) != levels:
        raise SplitDoesNotFit(
            f"the split lists {len(shares)} shares but the region tree has {levels} levels. "
            f"Remedy: list {levels} shares, root first, or write uniform."
        )
    parts = tuple(epsilon * share for share in shares)
    if any(part <= 0 for part in parts) or sum(parts) != epsilon:
        raise SplitDoesNotFit(
            "the shares of the split must be positive and add up to exactly 1. "
            "Remedy: use exact decimals or fractions such as 1/3."
        )
    return parts


def optimised_shares(
    cells: Sequence[int], *, weights: Sequence[Fraction] | None = None
) -> tuple[Fraction, ...]:
    """The split that minimises Σ weight_l · cells_l · scale_l, from public facts only.

    The scale of a level is Δ/ε_l, and stands for the expected absolute noise of its cells, which
    is 1/sinh(1/scale): below the scale, and by less than 1/(6 scale²) of it. With
    m_l = weight_l · cells_l, (Σ m_l/ε_l)(Σ ε_l) ≥ (Σ √m_l)² by Cauchy and Schwarz, with equality
    just where ε_l ∝ √m_l. (Where ε_l passes Δ by much, most noise is 0, the scale no longer
    stands for it, and another split may do better; `pgsr check` shows the uniform one beside.)

    Shares are rounded to SHARE_DIGITS significant digits, and the largest takes what remains, so
    they add up to exactly 1. A share r is off by at most r/2000, the largest by 1/2000 in all;
    since the objective is flat around its minimum, both together cost at most
    (1 + levels)/2000² of it, below 0.03 %. Integers only, hence the same on every machine.

    Args:
        cells: how many numbers are measured at each level, root first.
        weights: what an error at each level counts; the same everywhere by default.

    Raises:
        SplitDoesNotFit: not one positive weight for each level, or more than
            MOST_OPTIMISED_LEVELS levels.
    """
    weights = [Fraction(1)] * len(cells) if weights is None else weights
    if len(weights) != len(cells) or any(weight <= 0 for weight in weights):
        raise SplitDoesNotFit(
            f"the split lists {len(weights)} weights but the region tree has {len(cells)} levels. "
            f"Remedy: list {len(cells)} positive weights, root first."
        )
    if len(cells) > MOST_OPTIMISED_LEVELS:
        raise SplitDoesNotFit(
            f"a split is optimised for at most {MOST_OPTIMISED_LEVELS} levels, and the region tree "
            f"has {len(cells)}. Remedy: list the shares, or write uniform."
        )
    roots = [
        math.isqrt(math.floor(weight * count * 10**60))
        for weight, count in zip(weights, cells, strict=True)
    ]
    shares = [_rounded(Fraction(root, sum(roots))) for root in roots]
    largest = shares.index(max(shares))
    shares[largest] += 1 - sum(shares)
    return tuple(shares)


def balanced_shares(levels: int, *, epsilon: Fraction, sensitivity: int) -> tuple[Fraction, ...]:
    """The split for estimates that pool regions: what the leaves can spare goes to those above.

    A leaf is drawn towards the rest of its level, so that its own measurement counts for less;
    the regions above are large, and little but their own measurement tells of them. For each
    level above it the leaves' level gives GIVEN of an equal share away, at most half of it, to
    all others alike. GIVEN was chosen by trying: docs/solvers.md says on what.

    Where there is so little noise that nothing is pooled, leaves have nothing to spare: shares are
    equal then.
    """
    if not worth_pooling([levels * sensitivity / epsilon]):
        return (Fraction(1, levels),) * levels
    given = min(Fraction(levels - 1) * GIVEN, MOST_GIVEN)
    whole = levels - given
    return (1 / whole,) * (levels - 1) + ((1 - given) / whole,)


def _rounded(share: Fraction) -> Fraction:
    """Round to SHARE_DIGITS significant digits."""
    power = SHARE_DIGITS
    while share * 10**power < 10 ** (SHARE_DIGITS - 1):
        power += 1
    return Fraction(round(share * 10**power), 10**power)


def total(charges: Iterable[Fraction]) -> Fraction:
    """Add up exactly."""
    return sum(charges, start=Fraction(0))


def show(value: Fraction) -> str:
    """Write a fraction for people: exact if it is a short decimal, else p/q with a decimal."""
    decimal = f"{float(value):.6g}"
    return decimal if Fraction(decimal) == value else f"{value} (about {decimal})"
