"""What a torture reports: a figure, what is required, and the mutant that it catches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

# How many of a row's violations are reported in words.
MOST_TOLD = 5


@dataclass
class Trials:
    """Counts trials and keeps what went wrong in them.

    Attributes:
        tried: how many trials there were.
        violations: what was wrong, in words, with the trial.
    """

    tried: int = 0
    violations: list[str] = field(default_factory=list)

    def note(self, trial: str, wrong: Iterable[str]) -> None:
        """One more trial and what was wrong in it."""
        self.tried += 1
        self.violations += [f"{trial}: {what}" for what in wrong]

    def count(self, what: str) -> str:
        return f"{self.tried:,} {what}, {len(self.violations)} violations"


@dataclass(frozen=True)
class Row:
    """One judged figure.

    Attributes:
        name: what was done.
        figure: what came out.
        required: what must come out.
        holds: whether it did.
        mutant: the broken variant that the same torture was run on.
        mutant_caught: whether the torture found it broken.
        violations: the first few, in words.
    """

    name: str
    figure: str
    required: str
    holds: bool
    mutant: str
    mutant_caught: bool
    violations: Sequence[str] = ()

    @property
    def passed(self) -> bool:
        return self.holds and self.mutant_caught

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "violations": list(self.violations[:MOST_TOLD])}


@dataclass(frozen=True)
class Effort:
    """How much to run: everything, or just enough to show that the harness works."""

    quick: bool
    folder: Path

    def times(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True)
class Torture:
    """A named source of rows."""

    name: str
    run: Callable[[Effort], Iterator[Row]]
