"""Tables of results as text: what a cell is, and how it looks in Markdown and CSV."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass

NOTHING = "–"


@dataclass(frozen=True)
class Estimate:
    """A mean over repetitions with its standard error, None where there was one repetition."""

    mean: float
    error: float | None

    def __str__(self) -> str:
        digits = decimals(self.mean)
        text = f"{self.mean:,.{digits}f}"
        return text if self.error is None else f"{text} ± {self.error:,.{digits}f}"


Cell = str | int | float | Estimate | None


@dataclass(frozen=True)
class Table:
    """Named columns and rows of cells."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def markdown(self) -> str:
        """For a page; numbers to the right, a table without rows as a sentence."""
        if not self.rows:
            return "None in these results.\n"
        marks = ["---" if self._is_text(number) else "--:" for number in range(len(self.columns))]
        lines = [self.columns, marks, *([shown(cell) for cell in row] for row in self.rows)]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def csv(self) -> str:
        """For a machine; a mean and its standard error are two columns."""
        doubled = [
            any(isinstance(row[number], Estimate) for row in self.rows)
            for number in range(len(self.columns))
        ]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = zip(self.columns, doubled, strict=True)
        writer.writerow(
            [n for name, two in names for n in ([name, f"{name} (SE)"] if two else [name])]
        )
        for row in self.rows:
            cells = zip(row, doubled, strict=True)
            writer.writerow([c for cell, two in cells for c in (_two(cell) if two else [cell])])
        return text.getvalue()

    def _is_text(self, column: int) -> bool:
        return all(isinstance(row[column], str) for row in self.rows)


def shown(cell: Cell) -> str:
    """A cell as people read it."""
    if cell is None:
        return NOTHING
    if isinstance(cell, float):
        return f"{cell:,.{decimals(cell)}f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def decimals(value: float) -> int:
    """Decimals for about three digits; very small numbers keep one that is not zero."""
    if value == 0 or not math.isfinite(value):
        return 0
    return max(0, 2 - math.floor(math.log10(abs(value))))


def _two(cell: Cell) -> list[Cell]:
    return [cell.mean, cell.error] if isinstance(cell, Estimate) else [cell, None]
