"""The audit site: a static site over all releases of a ledger."""
