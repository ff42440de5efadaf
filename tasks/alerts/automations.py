"""Alerts that a Prefect server sends by itself, also when no process of ours is left to do it.

A run whose machine died, or that nobody started, cannot tell. The server sees both: automations
on it send a notification for runs of a product's deployment that failed, crashed or are late.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, cast

from pgsr_core.errors import PgsrError, Unavailable
from tasks.configuration.alerts import Kind

if TYPE_CHECKING:
    from uuid import UUID

    from prefect.automations import AutomationCore

    from tasks.configuration.model import Configuration

# What Prefect calls a state of a run, by the occasion that it is.
STATES = {
    Kind.FAILURE: ("Failed", "Crashed", "TimedOut"),
    Kind.MISSED: ("Late",),
}
# Names and ids only: a state's message or a parameter may hold anything.
_BODY = "{{ flow_run.name }} is {{ flow_run.state.name }}. Flow run {{ flow_run.id }}."
_LINK = "{% if flow_run|ui_url %} Run: {{ flow_run|ui_url }}{% endif %}"
_MOST_SLUG = 40


class NoWebhook(PgsrError):
    """An automation posts to a webhook, and the configuration has none that can be used."""

    def __init__(self) -> None:
        super().__init__(
            "a Prefect server sends its alerts to a webhook, and alerts.webhook is missing or its "
            "variable is not set. Remedy: set it, and install again."
        )


class NoPrefectServer(Unavailable):
    """There is no server that could send alerts, or it does not answer."""

    def __init__(self) -> None:
        super().__init__(
            "no Prefect server answers, and alerts are installed on one. Remedy: start pgsr serve "
            "or name a server in PREFECT_API_URL, and install again."
        )


def install(configuration: Configuration) -> tuple[str, ...]:
    """Put a product's automations on the server, in place of earlier ones; returns their names.

    Raises:
        NoWebhook: there is no address to post to.
        NoPrefectServer: nobody is there to send.
    """
    import httpx
    from prefect.exceptions import PrefectHTTPStatusError

    settings = configuration.alerts
    address = settings.address() if settings is not None else None
    if settings is None or address is None:
        raise NoWebhook
    try:
        _require_server()
        block = _save_block(configuration.product, address)
        kinds = [kind for kind in STATES if kind in settings.on]
        for kind in kinds:
            _put(_automation(configuration.product, kind, block))
    except (httpx.HTTPError, PrefectHTTPStatusError):
        raise NoPrefectServer from None
    return tuple(_name(configuration.product, kind) for kind in kinds)


def _require_server() -> None:
    """A temporary server is gone when this command ends, and its automations with it."""
    from prefect.settings import PREFECT_API_URL

    if not PREFECT_API_URL.value():
        raise NoPrefectServer


def _save_block(product: str, address: str) -> UUID:
    """Store where to post; the address is kept as a secret, encrypted on the server."""
    from prefect.blocks.notifications import CustomWebhookNotificationBlock
    from prefect.types import SecretDict

    block = CustomWebhookNotificationBlock(
        name=product,
        url="{{address}}",
        json_data={
            "source": "prefect",
            "alert": "{{subject}}",
            "product": "{{name}}",
            "text": "{{body}}",
            "command": "pgsr status",
        },
        headers=None,
        cookies=None,
        secrets=SecretDict({"address": address}),
    )
    return cast("UUID", block.save(block_name(product), overwrite=True))


def block_name(product: str) -> str:
    """A name that Prefect takes for a block: lower case and dashes, and no two products' alike."""
    slug = re.sub(r"[^a-z0-9]+", "-", product.lower()).strip("-")[:_MOST_SLUG]
    return f"pgsr-{slug}-{hashlib.sha256(product.encode()).hexdigest()[:8]}"


def _automation(product: str, kind: Kind, block: UUID) -> AutomationCore:
    from prefect.automations import AutomationCore, EventTrigger, SendNotification

    return AutomationCore(
        name=_name(product, kind),
        description="Made by pgsr alerts install, which also replaces it.",
        enabled=True,
        trigger=EventTrigger(
            expect={f"prefect.flow-run.{state}" for state in STATES[kind]},
            match_related={
                "prefect.resource.role": "deployment",
                "prefect.resource.name": product,
            },
        ),
        actions=[
            SendNotification(block_document_id=block, subject=str(kind), body=f"{_BODY}{_LINK}")
        ],
    )


def _put(automation: AutomationCore) -> None:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        for known in client.read_automations_by_name(automation.name):
            client.delete_automation(known.id)
        client.create_automation(automation)


def _name(product: str, kind: Kind) -> str:
    states = ", ".join(STATES[kind]).lower()
    return f"pgsr {product}: {states}"
