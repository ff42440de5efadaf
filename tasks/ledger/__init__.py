"""The ledger: budgets, reservations, measurements and events, exactly once."""
