"""Date templates in release names and source paths: ``{date:%Y-%m}`` and ``{quarter}``."""

from __future__ import annotations

import re
from datetime import date

DateTemplate = re.compile(r"\{(?:date:(?P<format>[^{}]*)|(?P<quarter>quarter))\}")
_DIRECTIVES = re.compile(r"(?:%[YmdjVGuy]|[A-Za-z0-9_.-])+")


def check_template(text: str) -> None:
    """Refuse placeholders that are not date templates.

    Raises:
        ValueError: with what is allowed.
    """
    rest = DateTemplate.sub("", text)
    formats = [match["format"] for match in DateTemplate.finditer(text) if not match["quarter"]]
    if "{" in rest or "}" in rest or not all(_DIRECTIVES.fullmatch(f or "") for f in formats):
        raise ValueError(
            "the only placeholders are {quarter} and {date:…} with %Y %m %d %j %V %G %u %y"
        )


def render(text: str, slot: date) -> str:
    """Fill in a template for a slot's date; text without a template comes back as it is."""

    def fill(match: re.Match[str]) -> str:
        if match["quarter"]:
            return str((slot.month + 2) // 3)
        return slot.strftime(match["format"])

    return DateTemplate.sub(fill, text)
