"""The ledger's tables, as the newest migration leaves them.

Fractions are kept as p/q text, never as floating point; JSON is kept as canonical text, so that
every database gives back the bytes that were hashed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from sqlalchemy import (
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
    Text,
    TypeDecorator,
    UniqueConstraint,
)

from pgsr_core.canonical import canonical_json

SCHEMA_VERSION = "0002"
HEAD_ROW = 1


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


class CanonicalJson(TypeDecorator[Mapping[str, Any]]):
    """A JSON object stored as its canonical text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, Any] | None, dialect: Any) -> str | None:  # noqa: ARG002
        """Write RFC 8785."""
        return None if value is None else canonical_json(value).decode()

    def process_result_value(self, value: str | None, dialect: Any) -> Mapping[str, Any] | None:  # noqa: ARG002
        """Read JSON."""
        return None if value is None else json.loads(value)


metadata = MetaData()

# Alembic's own table: which migration the database stands at.
schema_version = Table(
    "alembic_version", metadata, Column("version_num", String(32), primary_key=True)
)

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
    Column("descriptor", CanonicalJson, nullable=False),
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
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("at", String(32), nullable=False),
    Column("actor", String(200), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("product", String(64)),
    Column("release", String(64)),
    Column("facts", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
)

# One row: the last event. Whoever writes locks it first, so that numbers have no gap.
head = Table(
    "head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("sequence", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
)
