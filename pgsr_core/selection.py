"""Which mechanism suits a release: the one that was best in the nearest setting measured.

Settings are told apart by public facts alone, so the choice says nothing about the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from pgsr_core.budget import show
from pgsr_core.mechanisms import CUMULATIVE

# What every ratio is relative to: the papers' mechanism, with ε split equally.
REFERENCE = CUMULATIVE.name


@dataclass(frozen=True)
class Shape:
    """The public facts that a setting is known by.

    Attributes:
        levels: of the region tree.
        leaves: regions without children.
        largest_size: N.
        public_units: whether the number of groups of every region is public.
        epsilon: of a release of sensitivity 1; with another, ε divided by it.
    """

    levels: int
    leaves: int
    largest_size: int
    public_units: bool
    epsilon: Fraction

    def distance(self, other: Shape) -> float:
        """How unlike two settings are: doublings of leaves, sizes and ε, plus levels, plus units.

        Each counts 1, since none was seen to matter more than the others.
        """
        doublings = sum(
            abs(math.log2(mine / theirs))
            for mine, theirs in (
                (self.leaves, other.leaves),
                (self.largest_size, other.largest_size),
                (self.epsilon, other.epsilon),
            )
        )
        return (
            doublings
            + abs(self.levels - other.levels)
            + (self.public_units is not other.public_units)
        )

    def __str__(self) -> str:
        units = "public units" if self.public_units else "units from the data"
        return (
            f"{self.levels} levels, {self.leaves:,} leaves, sizes to {self.largest_size:,}, "
            f"{units}, epsilon {show(self.epsilon)}"
        )


@dataclass(frozen=True)
class MeasuredSetting:
    """What was measured on one data set at one ε.

    Attributes:
        data: the data set's name.
        shape: its public facts.
        ratios: for each mechanism its error relative to REFERENCE's, the geometric mean over
            levels of both metrics (L1 and earth mover's distance).
    """

    data: str
    shape: Shape
    ratios: Mapping[str, float]

    @property
    def best(self) -> str:
        """The mechanism with the least error; of equal ones the first by name."""
        return min(sorted(self.ratios), key=self.ratios.__getitem__)


@dataclass(frozen=True)
class MeasuredResults:
    """All settings, how often each was repeated, and the command that measured them."""

    command: str
    repetitions: int
    settings: tuple[MeasuredSetting, ...]


@dataclass(frozen=True)
class Choice:
    """A mechanism and the measurement that speaks for it."""

    mechanism: str
    nearest: MeasuredSetting
    results: MeasuredResults

    def explain(self) -> tuple[str, str]:
        """Say in two lines what was chosen and on what evidence."""
        near, ratio = self.nearest, self.nearest.ratios[self.mechanism]
        others = ", ".join(
            f"{name} {other:.2f}"
            for name, other in sorted(near.ratios.items(), key=lambda item: item[1])
            if name != self.mechanism
        )
        return (
            f"{self.mechanism}: the best in the nearest setting measured, {near.data} "
            f"({near.shape})",
            f"error {ratio:.2f} of {REFERENCE}'s there (others: {others}), "
            f"{self.results.repetitions} repetitions by {self.results.command}",
        )


def choose(shape: Shape, results: MeasuredResults) -> Choice:
    """Choose the best mechanism of the nearest setting; of equally near ones, the first."""
    nearest = min(results.settings, key=lambda setting: shape.distance(setting.shape))
    return Choice(nearest.best, nearest, results)
