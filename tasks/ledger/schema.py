"""The ledger's tables. Fractions are kept as p/q text, never as floating point."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    TypeDecorator,
    UniqueConstraint,
)


class ExactFraction(TypeDecorator[Fraction]):
    """A fraction stored as text."""

    impl = String(64)
    cache_ok = True

    def process_bind_param(self, value: Fraction | None, dialect: Any) -> str | None:  # noqa: ARG002
        """Write p/q."""
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Any) -> Fraction | None:  # noqa: ARG002
        """Read p/q."""
        return None if value is None else Fraction(value)


metadata = MetaData()

populations = Table(
    "populations",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("budget", ExactFraction, nullable=False),
)

measurements = Table(
    "measurements",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("population", ForeignKey("populations.name"), nullable=False),
    Column("product", String(64), nullable=False),
    Column("release", String(64), nullable=False),
    Column("epsilon", ExactFraction, nullable=False),
    Column("descriptor", JSON, nullable=False),
    # A reservation has an owner and a lease; a committed measurement has a digest instead.
    Column("owner", String(200)),
    Column("lease_expires", Float),
    Column("digest", String(64)),
    Column("regions", Integer),
    Column("first_size", Integer),
    Column("last_size", Integer),
    Column("groups", BigInteger),
    Column("sampler", String(64)),
    Column("simulation", Boolean),
    UniqueConstraint("product", "release", name="one_measurement_per_release"),
)

measurement_chunks = Table(
    "measurement_chunks",
    metadata,
    Column("key", ForeignKey("measurements.key"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

charges = Table(
    "charges",
    metadata,
    Column("key", ForeignKey("measurements.key"), primary_key=True),
    Column("population", ForeignKey("populations.name"), nullable=False),
    Column("epsilon", ExactFraction, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("product", String(64), primary_key=True),
    Column("release", String(64), primary_key=True),
    Column("state", String(16), nullable=False),
    Column("stage", String(32), nullable=False),
    Column("owner", String(200), nullable=False),
    Column("updated", Float, nullable=False),
    Column("error", String(64)),
)

events = Table(
    "events",
    metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=True),
    Column("at", String(32), nullable=False),
    Column("actor", String(200), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("product", String(64)),
    Column("release", String(64)),
    Column("facts", JSON, nullable=False),
)
