"""Exact arithmetic of budgets: what a release costs, how it is split, what remains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pgsr_core.errors import PgsrError, Refused


class SplitDoesNotFit(PgsrError):
    """A listed split has more or fewer shares than the region tree has levels."""


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


def total(charges: Iterable[Fraction]) -> Fraction:
    """Add up exactly."""
    return sum(charges, start=Fraction(0))


def show(value: Fraction) -> str:
    """Write a fraction for people: exact if it is a short decimal, else p/q with a decimal."""
    decimal = f"{float(value):.6g}"
    return decimal if Fraction(decimal) == value else f"{value} (about {decimal})"
