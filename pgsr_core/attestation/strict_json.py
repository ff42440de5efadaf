"""JSON from strangers: one object, no key twice, no NaN, no more bytes than expected."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from pgsr_core.canonical import canonical_json

MOST_BYTES = 16 * 1024 * 1024
"""Documents of a bundle are a few kilobytes; beyond this nobody wrote them for a reader."""


class NotStrictJson(ValueError):
    """The bytes are not one plain JSON object; the message says why and quotes nothing."""


def read_object(data: bytes, *, at_most: int = MOST_BYTES) -> dict[str, Any]:
    """Parse one JSON object.

    Two readers may take different values of a key that stands twice, so what one of them
    verified is not what the other uses. Such documents are refused.

    Raises:
        NotStrictJson: it is too large, no JSON, no object, or ambiguous.
    """
    if len(data) > at_most:
        raise NotStrictJson(f"it is larger than {at_most} bytes")
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_object_without_repetition,
            parse_constant=_refuse_constant,
        )
    except NotStrictJson:
        raise
    except RecursionError:
        raise NotStrictJson("it is nested too deeply") from None
    except ValueError:
        raise NotStrictJson("it is no JSON in UTF-8") from None
    if not isinstance(value, dict):
        raise NotStrictJson("it is no JSON object")
    return value


def read_canonical_object(data: bytes, *, at_most: int = MOST_BYTES) -> dict[str, Any]:
    """Parse one JSON object that is written in the one canonical way (RFC 8785).

    Raises:
        NotStrictJson: as read_object, or the same value has other canonical bytes.
    """
    value = read_object(data, at_most=at_most)
    try:
        canonical = canonical_json(value)
    except (ValueError, RecursionError):
        # rfc8785 raises a ValueError for numbers and characters without a canonical form.
        raise NotStrictJson("it holds a value without a canonical form") from None
    if canonical != data:
        raise NotStrictJson("it is not in canonical form")
    return value


def _object_without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NotStrictJson("a key stands in it twice")
    return found


def _refuse_constant(_: str) -> NoReturn:
    raise NotStrictJson("it holds a number that JSON does not have")
