"""How large groups are: households with group quarters, and long-tailed counts of trips."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
Float = NDArray[np.float64]

# Shares of households of 1 to 6 people and of 7 and more, near the US Census's.
HOUSEHOLD_SHARES = (0.28, 0.35, 0.15, 0.13, 0.06, 0.023)
SEVEN_AND_MORE = 0.014
# Above 6 each size is r times as frequent as the one before. r = n_7 / n_6 (Fioretto and Van
# Hentenryck 2019, "Census Dataset" of their experiments), and the sizes from 7 on
# add up to the share of 7 and more: n_7 = (1 − r) · SEVEN_AND_MORE, hence this r.
TAIL_RATIO = SEVEN_AND_MORE / (HOUSEHOLD_SHARES[-1] + SEVEN_AND_MORE)
LARGEST_HOUSEHOLD = 40
SMALLEST_QUARTERS = 10
QUARTERS_SHARE = 5e-5
MARGIN = 1.02
SPARE_GROUPS = 16


class SizeLaw(Protocol):
    """A distribution of group sizes from 1 on."""

    @property
    def mean(self) -> float:
        """About the expected size; only used to draw about as many groups as needed."""

    def draw(self, count: int, *, generator: np.random.Generator) -> Int:
        """Draw so many sizes, each from 1 to the largest size."""


@dataclass(frozen=True)
class HouseholdSizes:
    """Households with a geometric tail, and now and then a dormitory or a prison.

    Attributes:
        max_size: the largest group.
        tilt: share of size k is multiplied by exp(tilt · k), then scaled to 1: above 0 means
            larger households than in the country.
    """

    max_size: int
    tilt: float = 0.0

    @cached_property
    def shares(self) -> Float:
        """Shares of household sizes 1, 2, …, group quarters left aside."""
        largest = min(self.max_size, LARGEST_HOUSEHOLD)
        small = len(HOUSEHOLD_SHARES)
        tail = HOUSEHOLD_SHARES[-1] * TAIL_RATIO ** np.arange(1, LARGEST_HOUSEHOLD - small + 1)
        shares = np.concatenate((HOUSEHOLD_SHARES, tail))[:largest]
        shares *= np.exp(self.tilt * np.arange(largest))
        return np.asarray(shares / shares.sum(), dtype=np.float64)

    @property
    def mean(self) -> float:
        """Mean of the households."""
        return float(self.shares @ np.arange(1, len(self.shares) + 1))

    def draw(self, count: int, *, generator: np.random.Generator) -> Int:
        """Draw sizes; a share of QUARTERS_SHARE is log-uniform from 10 to the largest size."""
        steps = np.cumsum(self.shares)[:-1]
        sizes = np.searchsorted(steps, generator.random(count), side="right") + 1
        if self.max_size > SMALLEST_QUARTERS:
            places = generator.integers(0, count, generator.binomial(count, QUARTERS_SHARE))
            bounds = math.log(SMALLEST_QUARTERS), math.log(self.max_size + 1)
            quarters = np.exp(generator.uniform(*bounds, size=places.size))
            sizes[places] = np.minimum(quarters.astype(np.int64), self.max_size)
        return sizes


@dataclass(frozen=True)
class LongTail:
    """Lognormal sizes, rounded up and cut at the largest: trips of one taxi in one zone.

    Attributes:
        max_size: the largest group.
        median: the median before rounding.
        spread: standard deviation of the logarithm.
    """

    max_size: int
    median: float
    spread: float

    @property
    def mean(self) -> float:
        """Mean of the uncut lognormal, or the largest size if that is less."""
        return max(1.0, min(self.median * math.exp(self.spread**2 / 2), self.max_size))

    def draw(self, count: int, *, generator: np.random.Generator) -> Int:
        """Draw sizes."""
        logarithms = math.log(self.median) + self.spread * generator.standard_normal(count)
        sizes = np.ceil(np.exp(np.minimum(logarithms, math.log(self.max_size))))
        return np.clip(sizes.astype(np.int64), 1, self.max_size)


def draw_groups(law: SizeLaw, people: int, *, generator: np.random.Generator) -> Int:
    """Draw groups until they hold exactly so many people; the last one is cut to fit."""
    drawn: list[Int] = [np.zeros(0, dtype=np.int64)]
    left = people
    # Invariant: the groups in `drawn` hold people − left; sizes are 1 or more, so left falls.
    while left > 0:
        batch = law.draw(int(MARGIN * left / law.mean) + SPARE_GROUPS, generator=generator)
        reached = np.cumsum(batch)
        last = int(np.searchsorted(reached, left))
        if last < batch.size:
            batch = batch[: last + 1]
            batch[last] -= reached[last] - left
            left = 0
        else:
            left -= int(reached[-1])
        drawn.append(batch)
    return np.concatenate(drawn)
