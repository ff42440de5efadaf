"""What a torture of operations reports: a figure, what is required, and whether it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

# How many of a row's violations are reported in words.
MOST_TOLD = 10


@dataclass(frozen=True)
class Row:
    """One judged figure.

    Attributes:
        name: what was done.
        figure: what came out.
        required: what must come out.
        violations: what was wrong, in words; nothing if it holds.
    """

    name: str
    figure: str
    required: str
    violations: Sequence[str] = ()

    @property
    def holds(self) -> bool:
        return not self.violations

    def as_json(self) -> dict[str, object]:
        told = {**asdict(self), "violations": list(self.violations[:MOST_TOLD])}
        return {**told, "holds": self.holds}


@dataclass(frozen=True)
class Effort:
    """How much to run, where, and how long to wait.

    Attributes:
        quick: just enough to show that the harness works.
        patience: how many times longer than usual something may take: a busy machine needs more.
    """

    quick: bool
    folder: Path
    patience: float = 1.0


@dataclass(frozen=True)
class Torture:
    """A named source of rows."""

    name: str
    run: Callable[[Effort], Iterator[Row]]
