"""Whether a release stands: published, untouched, and just what a configuration asks for again."""

from __future__ import annotations

from pgsr_core.errors import PgsrError
from tasks.configuration.model import Configuration
from tasks.configuration.plan import ReleasePlan
from tasks.corrections.withdrawal import withdrawal_event
from tasks.ledger.bookkeeping import PUBLISHED
from tasks.publication.place import confirm_published, is_published, recorded_digests
from tasks.run import NoSuchRun, RunRef

# What a configuration may say anew without asking for anything else than before.
_OF_NO_CONSEQUENCE = ("schedule", "retention", "resources", "alerts")


def is_the_same_release(ref: RunRef, plan: ReleasePlan) -> bool:
    """Whether running this plan would change nothing, because its release is out as it is.

    Whether the data are the same is not asked here: what was measured from other data under the
    name was refused when the plan was decided.
    """
    try:
        published = ref.open().plan
    except NoSuchRun:
        return False
    return (
        published.destination == plan.destination
        and _consequences(published.configuration) == _consequences(plan.configuration)
        and _stands(ref, plan)
    )


def _stands(ref: RunRef, plan: ReleasePlan) -> bool:
    """Whether the ledger knows it as published, not withdrawn, and its folder is what it was."""
    if not is_published(plan.destination):
        return False
    try:
        digests = recorded_digests(plan.destination)
        confirm_published(plan.destination)
    except PgsrError:
        return False  # the publishing stage says what is wrong with it
    ledger = ref.ledger()
    if withdrawal_event(ledger, ref.product, ref.release) is not None:
        return False  # the flow says so
    return ledger.has_event(PUBLISHED, ref.product, ref.release, digests=digests)


def _consequences(configuration: Configuration) -> dict[str, object]:
    document = configuration.model_dump(mode="json")
    return {key: value for key, value in document.items() if key not in _OF_NO_CONSEQUENCE}
