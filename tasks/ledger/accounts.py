"""Budgets of populations, and what was charged to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sqlalchemy import Connection, insert, select, update

from pgsr_core.budget import Account, show, total
from pgsr_core.errors import PgsrError, Refused
from tasks.ledger.bookkeeping import POPULATION, RAISED
from tasks.ledger.events import Writer
from tasks.ledger.leases import lease_holds
from tasks.ledger.schema import charges, measurements, populations

LONGEST_REASON = 1000


class NotARaise(Refused):
    """A budget was to be set to what it is or less; nothing was changed."""


class NoReason(PgsrError):
    """A budget was to be raised without a reason that can be read; nothing was changed."""


@dataclass(frozen=True)
class Charge:
    """What a release spent, and the description of what it measured."""

    product: str
    release: str
    epsilon: Fraction
    sampler: str
    descriptor: Mapping[str, Any]


def introduce(
    writer: Writer, population: str, budget: Fraction, product: str, release: str
) -> None:
    """Enter a new population with the configured budget; a known one keeps its own."""
    if budget_of(writer.connection, population) is not None:
        return
    writer.connection.execute(insert(populations).values(name=population, budget=budget))
    writer.append(POPULATION, product, release, population=population, budget=str(budget))


def raise_budget(writer: Writer, population: str, budget: Fraction, *, reason: str) -> Fraction:
    """Raise a population's budget, with the reason on record; returns what it was before.

    Raises:
        NotARaise: it is not more than before.
        NoReason: the reason is empty, too long, or holds what is not text.
    """
    _require_reason(reason)
    account = account_of(writer.connection, population, now=writer.now)
    if budget <= account.budget:
        raise NotARaise(
            f"the budget of population {population} is {show(account.budget)}, of which "
            f"{show(account.spent)} is spent and {show(account.reserved)} reserved. A budget is "
            f"never lowered, and {show(budget)} is not more. Remedy: name a larger budget."
        )
    writer.connection.execute(
        update(populations).where(populations.c.name == population).values(budget=budget)
    )
    writer.append(
        RAISED,
        None,
        None,
        population=population,
        before=str(account.budget),
        budget=str(budget),
        reason=reason,
    )
    return account.budget


def account_of(
    connection: Connection, population: str, *, now: float, besides: str | None = None
) -> Account:
    """Budget, charges and open reservations, but for the one of a key that is left out.

    Raises:
        PgsrError: the population is not in the ledger.
    """
    budget = budget_of(connection, population)
    if budget is None:
        raise PgsrError(
            f"the ledger has no population {population}. Remedy: see pgsr budget for names."
        )
    spent = connection.scalars(select(charges.c.epsilon).where(charges.c.population == population))
    reservations = connection.execute(
        select(measurements.c.epsilon, measurements.c.owner, measurements.c.lease_expires).where(
            measurements.c.population == population,
            measurements.c.digest.is_(None),
            measurements.c.key != (besides or ""),
        )
    )
    # One whose lease ended no longer holds budget; its commit checks again.
    reserved = [
        row.epsilon for row in reservations if lease_holds(row.owner, row.lease_expires, now=now)
    ]
    return Account(population, budget, total(spent), total(reserved))


def accounts(connection: Connection, *, now: float) -> tuple[Account, ...]:
    """All accounts, by name."""
    names = connection.scalars(select(populations.c.name)).all()
    return tuple(account_of(connection, name, now=now) for name in sorted(names))


def is_held(connection: Connection, population: str) -> bool:
    """Whether something was charged to a population, or is reserved; simulations cost nothing."""
    paid = select(measurements.c.key).where(
        measurements.c.population == population, measurements.c.epsilon != Fraction(0)
    )
    return connection.scalar(paid.limit(1)) is not None


def charges_to(connection: Connection, population: str) -> tuple[Charge, ...]:
    """Every charge to a population, by product and release."""
    described = measurements.c
    rows = connection.execute(
        select(
            described.product,
            described.release,
            charges.c.epsilon,
            described.sampler,
            described.descriptor,
        )
        .join(charges, charges.c.key == described.key)
        .where(charges.c.population == population)
        .order_by(described.product, described.release)
    ).all()
    return tuple(Charge(*row) for row in rows)


def _require_reason(reason: str) -> None:
    if not reason.strip() or len(reason) > LONGEST_REASON or not reason.isprintable():
        raise NoReason(
            "raising a budget needs a reason for the record: one line of text, at most "
            f"{LONGEST_REASON} characters. Remedy: say who decided it and why."
        )


def budget_of(connection: Connection, population: str) -> Fraction | None:
    """A population's budget; None if the ledger does not know it."""
    return connection.scalar(select(populations.c.budget).where(populations.c.name == population))
