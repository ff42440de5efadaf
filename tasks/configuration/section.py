"""What every part of a configuration has in common: frozen, no unknown key, exact numbers."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer


def exact_fraction(value: Any) -> Fraction:
    """Turn a decimal or p/q string, or an integer, into the fraction it denotes.

    A binary float is refused: 0.1 is not one tenth, and budgets are added up exactly.
    """
    if isinstance(value, Fraction):
        return value
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError('must be a decimal or p/q in quotes, such as "0.5" or "1/3"')
    text = str(value).strip()
    # A decimal of 12 + 12 digits must still be allowed when it is written again as p/q.
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?|[0-9]{1,24}/[0-9]{1,24}", text):
        raise ValueError('must be a positive decimal or p/q, such as "0.5" or "1/3"')
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise ValueError("the denominator must not be zero") from None


Exact = Annotated[Fraction, BeforeValidator(exact_fraction), PlainSerializer(str, when_used="json")]


class Section(BaseModel):
    """Base of every part of a configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
