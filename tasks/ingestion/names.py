"""Which region names are fit to be published in tables that people open in spreadsheets."""

from __future__ import annotations

import unicodedata

LONGEST_NAME = 200
# A spreadsheet takes a cell that starts so for a formula; the wide forms count in some locales.
_FORMULA_STARTS = frozenset("=+-@＝＋－＠")
# Joiners are controls to Unicode, yet ordinary spelling in Persian or Hindi.
_SPELLING_CONTROLS = frozenset("\u200c\u200d")


def is_safe_name(name: str) -> bool:
    """Say whether a name could be neither a formula nor a path, and prints as it is."""
    return (
        0 < len(name) <= LONGEST_NAME
        and name[0] not in _FORMULA_STARTS
        and name == name.strip()
        and name != "."
        and not any(part in name for part in ("/", "\\", ".."))
        and not any(_is_control(character) for character in name)
    )


def _is_control(character: str) -> bool:
    category = unicodedata.category(character)
    return (
        category.startswith("C") or category in {"Zl", "Zp"}
    ) and character not in _SPELLING_CONTROLS
