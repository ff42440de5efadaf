"""Releases that rest on another release's measurements: an event, no charge, no draw.

The event is all there is: it stands in the chain, names the measurement by its key and digest,
and is looked up wherever a release's measurement is. A name is either measured or reposted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from pgsr_core.errors import Refused
from tasks.ledger.events import Writer
from tasks.ledger.schema import events, measurements, runs

REPOSTED = "reposted"


class NameTaken(Refused):
    """A release of the new name exists already; nothing was recorded."""

    def __init__(self, *, product: str, release: str) -> None:
        super().__init__(
            f"there is a release {product}/{release} already, and it is something else. "
            "Remedy: choose another name; pgsr status shows those that are taken."
        )


@dataclass(frozen=True)
class Repost:
    """A new release of known measurements.

    Attributes:
        product: of both.
        source: the release that it is made from.
        release: the new one.
        mechanism: how it is computed.
        key: of the measurement.
        digest: of the measured table.
    """

    product: str
    source: str
    release: str
    mechanism: str
    key: str
    digest: str

    @property
    def facts(self) -> dict[str, str]:
        """What the event says."""
        return {
            "from": self.source,
            "mechanism": self.mechanism,
            "key": self.key,
            "digest": self.digest,
            "additional_epsilon": "0",
        }


def record(writer: Writer, repost: Repost) -> None:
    """Give a new name to known measurements; the same again changes nothing.

    Raises:
        NameTaken: the name stands for something else.
    """
    known = _facts_of(writer.connection, repost.product, repost.release)
    if known == repost.facts:
        return
    if known is not None or _is_used(writer.connection, repost.product, repost.release):
        raise NameTaken(product=repost.product, release=repost.release)
    writer.append(REPOSTED, repost.product, repost.release, **repost.facts)


def reposted_key(connection: Connection, product: str, release: str) -> str | None:
    """The key of the measurement that a release was reposted from; None if it was not."""
    facts = _facts_of(connection, product, release)
    return None if facts is None else str(facts["key"])


def _facts_of(connection: Connection, product: str, release: str) -> Mapping[str, Any] | None:
    said = connection.scalar(
        select(events.c.facts).where(
            events.c.kind == REPOSTED, events.c.product == product, events.c.release == release
        )
    )
    return None if said is None else dict(json.loads(said))


def _is_used(connection: Connection, product: str, release: str) -> bool:
    """Whether a release of this name was started, reserved or measured."""
    return any(
        connection.execute(
            select(table.c.product).where(table.c.product == product, table.c.release == release)
        ).first()
        for table in (measurements, runs)
    )
