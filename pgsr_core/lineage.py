"""Which earlier releases of its product a release goes back to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class Lineage:
    """What a corrected release says of those before it.

    Attributes:
        replaces: the release that this one corrects.
        reposted_from: the release whose measurements, and whose charge, this one rests on. It is
            post-processing of what was published already, so it adds nothing to what was spent.
    """

    replaces: str | None = None
    reposted_from: str | None = None

    def __post_init__(self) -> None:
        if not all(_NAME.fullmatch(name) for name in self.named):
            raise ValueError("a release that is referred to has no plain name")

    @property
    def named(self) -> tuple[str, ...]:
        """The releases that are referred to."""
        return tuple(name for name in (self.replaces, self.reposted_from) if name is not None)

    def to_json(self) -> dict[str, str | None]:
        """Return the fields as JSON has them."""
        return {"replaces": self.replaces, "reposted_from": self.reposted_from}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Lineage:
        """Read what to_json wrote.

        Raises:
            ValueError: a field is missing, unknown or no name.
        """
        match fields:
            case {
                "replaces": str() | None as replaces,
                "reposted_from": str() | None as reposted_from,
                **others,
            } if not others:
                return cls(replaces, reposted_from)
            case _:
                raise ValueError("the lineage has a missing, unknown or mistyped field")
