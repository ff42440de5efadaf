"""The schema of version 0.1: budgets, measurements, charges, run states and unchained events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables as 0.1 made them."""
    op.create_table(
        "populations",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("budget", sa.String(64), nullable=False),
    )
    op.create_table(
        "measurements",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("population", sa.String(64), sa.ForeignKey("populations.name"), nullable=False),
        sa.Column("product", sa.String(64), nullable=False),
        sa.Column("release", sa.String(64), nullable=False),
        sa.Column("epsilon", sa.String(64), nullable=False),
        sa.Column("descriptor", sa.JSON, nullable=False),
        sa.Column("owner", sa.String(200)),
        sa.Column("lease_expires", sa.Float),
        sa.Column("digest", sa.String(64)),
        sa.Column("regions", sa.Integer),
        sa.Column("first_size", sa.Integer),
        sa.Column("last_size", sa.Integer),
        sa.Column("groups", sa.BigInteger),
        sa.Column("sampler", sa.String(64)),
        sa.Column("simulation", sa.Boolean),
        sa.UniqueConstraint("product", "release", name="one_measurement_per_release"),
    )
    op.create_table(
        "measurement_chunks",
        sa.Column("key", sa.String(64), sa.ForeignKey("measurements.key"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "charges",
        sa.Column("key", sa.String(64), sa.ForeignKey("measurements.key"), primary_key=True),
        sa.Column("population", sa.String(64), sa.ForeignKey("populations.name"), nullable=False),
        sa.Column("epsilon", sa.String(64), nullable=False),
    )
    op.create_table(
        "runs",
        sa.Column("product", sa.String(64), primary_key=True),
        sa.Column("release", sa.String(64), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("stage", sa.String(32), nullable=False),
        sa.Column("owner", sa.String(200), nullable=False),
        sa.Column("updated", sa.Float, nullable=False),
        sa.Column("error", sa.String(64)),
    )
    op.create_table(
        "events",
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("product", sa.String(64)),
        sa.Column("release", sa.String(64)),
        sa.Column("facts", sa.JSON, nullable=False),
    )
