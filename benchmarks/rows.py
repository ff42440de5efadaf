"""What a benchmark reports: rows with a value, what it is measured against, and a bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True)
class Bar:
    """The figure that a row's value must not miss."""

    relation: Literal["≤", "≥"]
    figure: float

    def holds(self, value: float) -> bool:
        return value <= self.figure if self.relation == "≤" else value >= self.figure

    def __str__(self) -> str:
        return f"{self.relation} {self.figure:,g}"


def at_most(figure: float) -> Bar:
    return Bar("≤", figure)


def at_least(figure: float) -> Bar:
    return Bar("≥", figure)


@dataclass(frozen=True)
class Row:
    """One measured figure.

    Attributes:
        name: what was measured.
        shape: on which input.
        value: the figure.
        unit: of the figure; "×" is a ratio of two times measured in this run.
        against: what the figure is relative to, empty for an absolute one.
        bar: what the figure is held to, None for information.
    """

    name: str
    shape: str
    value: float
    unit: str
    against: str = ""
    bar: Bar | None = None

    @property
    def holds(self) -> bool | None:
        return None if self.bar is None else self.bar.holds(self.value)

    def as_json(self) -> dict[str, object]:
        fields = asdict(self)
        return fields | {"bar": None if self.bar is None else str(self.bar), "holds": self.holds}


@dataclass(frozen=True)
class Effort:
    """How much to run: everything, or tiny shapes that only show that the harness works.

    Bars belong to the full shapes; a quick run reports its figures without them.
    """

    quick: bool
    repetitions: int

    def bar(self, bar: Bar) -> Bar | None:
        return None if self.quick else bar


@dataclass(frozen=True)
class Benchmark:
    """A named source of rows."""

    name: str
    run: Callable[[Effort], Iterator[Row]]
