"""Versions of the ledger's schema, for Alembic; `pgsr ledger migrate` runs them."""
