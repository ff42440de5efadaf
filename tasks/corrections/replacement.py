"""Replacing a release: a corrected one names the one that it corrects, which must be there."""

from __future__ import annotations

from pgsr_core.errors import PgsrError
from tasks.configuration.plan import ReleasePlan
from tasks.ledger.bookkeeping import PUBLISHED
from tasks.ledger.ledger import Ledger


class NothingToReplace(PgsrError):
    """The release that is to be replaced was never published."""

    def __init__(self, *, product: str, replaces: str) -> None:
        super().__init__(
            f"replaces: {product}/{replaces} was never published here, so nothing can replace it. "
            "Remedy: name a release that pgsr status shows as published or withdrawn, or leave "
            "replaces out."
        )


def refuse_unknown_replaced(plan: ReleasePlan, ledger: Ledger | None) -> None:
    """Refuse a correction of what the ledger does not know as published.

    Raises:
        NothingToReplace: there is no such release of the product.
    """
    replaces = plan.configuration.replaces
    if replaces is not None and not was_published(ledger, plan.product, replaces):
        raise NothingToReplace(product=plan.product, replaces=replaces)


def was_published(ledger: Ledger | None, product: str, release: str) -> bool:
    """Whether a release was ever published; a withdrawn one was, too."""
    return ledger is not None and ledger.has_event(PUBLISHED, product, release)
