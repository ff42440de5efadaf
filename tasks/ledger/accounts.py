"""Budgets of populations, and what was charged to them."""

from __future__ import annotations

from fractions import Fraction

from sqlalchemy import Connection, insert, select, update

from pgsr_core.budget import Account, show, total
from pgsr_core.errors import PgsrError, Refused
from tasks.ledger.bookkeeping import POPULATION, RAISED
from tasks.ledger.events import Writer
from tasks.ledger.schema import charges, measurements, populations


class NotARaise(Refused):
    """A budget was to be set to what it is or less; nothing was changed."""


def introduce(
    writer: Writer, population: str, budget: Fraction, product: str, release: str
) -> None:
    """Enter a new population with the configured budget; a known one keeps its own."""
    if budget_of(writer.connection, population) is not None:
        return
    writer.connection.execute(insert(populations).values(name=population, budget=budget))
    writer.append(POPULATION, product, release, population=population, budget=str(budget))


def raise_budget(writer: Writer, population: str, budget: Fraction, *, reason: str) -> None:
    """Raise a population's budget, with the reason on record.

    Raises:
        NotARaise: it is not more than before.
    """
    before = account_of(writer.connection, population, now=writer.now).budget
    if budget <= before:
        raise NotARaise(
            f"the budget of population {population} is {show(before)}, and {show(budget)} would "
            "not raise it. Remedy: name a larger budget."
        )
    writer.connection.execute(
        update(populations).where(populations.c.name == population).values(budget=budget)
    )
    writer.append(
        RAISED,
        None,
        None,
        population=population,
        before=str(before),
        budget=str(budget),
        reason=reason,
    )


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
    # A reservation whose lease ended no longer holds budget; its commit checks again.
    open_reservations = select(measurements.c.epsilon).where(
        measurements.c.population == population,
        measurements.c.digest.is_(None),
        measurements.c.lease_expires > now,
        measurements.c.key != (besides or ""),
    )
    reserved = connection.scalars(open_reservations)
    return Account(population, budget, total(spent), total(reserved))


def accounts(connection: Connection, *, now: float) -> tuple[Account, ...]:
    """All accounts, by name."""
    names = connection.scalars(select(populations.c.name)).all()
    return tuple(account_of(connection, name, now=now) for name in sorted(names))


def charges_to(connection: Connection, population: str) -> tuple[tuple[str, str, Fraction], ...]:
    """Product, release and ε of every charge to a population."""
    rows = connection.execute(
        select(measurements.c.product, measurements.c.release, charges.c.epsilon)
        .join(charges, charges.c.key == measurements.c.key)
        .where(charges.c.population == population)
        .order_by(measurements.c.product, measurements.c.release)
    ).all()
    return tuple((row.product, row.release, row.epsilon) for row in rows)


def budget_of(connection: Connection, population: str) -> Fraction | None:
    """A population's budget; None if the ledger does not know it."""
    return connection.scalar(select(populations.c.budget).where(populations.c.name == population))
