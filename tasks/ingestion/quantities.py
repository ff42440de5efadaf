"""What a row adds to its unit: how a cell is read as a number, and the rules it must keep."""

from __future__ import annotations

from tasks.ingestion.errors import (
    FractionalQuantity,
    InfiniteQuantity,
    NegativeQuantity,
    NotANumber,
    QuantityAboveLimit,
    WrongType,
)
from tasks.ingestion.rules import RowRule, missing
from tasks.ingestion.tables import FLOATS, INTEGERS


def cell(type_name: str) -> str:
    """Write the quantity's cell, with empty text as null."""
    return "quantity" if _is_number(type_name) else "NULLIF(CAST(quantity AS VARCHAR), '')"


def number(type_name: str) -> str:
    """Write the cell's number, null where it is none.

    DuckDB answers a comparison from a Parquet file's statistics where they seem to settle it.
    They leave NaN out, and a faulty writer may have put anything there, so the rules must see
    a value that statistics say nothing about: an integer through a bit operation, any other
    number through its text. Text becomes DOUBLE, exact for all whole numbers that can pass.
    """
    if type_name in INTEGERS:
        return "quantity | 0"
    return (
        f"TRY_CAST(CAST(quantity AS VARCHAR) AS {type_name if _is_number(type_name) else 'DOUBLE'})"
    )


def quantity_rules(type_name: str | None, largest: int) -> tuple[RowRule, ...]:
    """Give the rules for a quantity column's type; none where there is no such column.

    They are written in terms of ``cell`` and of ``quantity``, its number.
    """
    if type_name is None:
        return ()
    finite = "" if type_name in INTEGERS or _is_decimal(type_name) else " AND isfinite(quantity)"
    rules = [missing("quantity", "cell")]
    if finite:
        rules += [
            RowRule(WrongType, "quantity", "cell IS NOT NULL AND quantity IS NULL"),
            RowRule(NotANumber, "quantity", "isnan(quantity)"),
            RowRule(InfiniteQuantity, "quantity", "isinf(quantity)"),
        ]
    if type_name not in INTEGERS:
        fractional = f"quantity <> trunc(quantity){finite}"
        rules.append(RowRule(FractionalQuantity, "quantity", fractional))
    rules.append(RowRule(NegativeQuantity, "quantity", f"quantity < 0{finite}"))
    rules.append(RowRule(QuantityAboveLimit, "quantity", f"quantity > {int(largest)}{finite}"))
    return tuple(rules)


def _is_number(type_name: str) -> bool:
    return type_name in INTEGERS | FLOATS or _is_decimal(type_name)


def _is_decimal(type_name: str) -> bool:
    return type_name.startswith("DECIMAL")
