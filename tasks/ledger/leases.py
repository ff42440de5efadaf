"""Leases: for how long a reservation is believed to be alive."""

from __future__ import annotations

from tasks.ledger.owner import Owner

LEASE_SECONDS = 900.0
# Clocks of machines that release together differ by less than this, or one of them is wrong.
CLOCKS_DIFFER_SECONDS = 300.0


def lease_holds(owner: str | None, expires: float, *, now: float) -> bool:
    """Whether a reservation still stands.

    That of a process of this machine does until the process is gone, or its lease is over. Of
    another machine's only the lease tells; one that ends later than any lease begun now would was
    written by a wrong clock, and does not block a name for years. Taking over a reservation whose
    process lives after all is safe: its commit is refused, and nobody has seen its draw.
    """
    process = Owner.parse(owner) if owner is not None else None
    if process is not None and process.is_here():
        return expires > now and not process.is_surely_gone()
    return now < expires <= now + LEASE_SECONDS + CLOCKS_DIFFER_SECONDS
