"""Populations as streams of blocks: each a part of one leaf region, small enough for memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pgsr_core.synthesis.regions import RegionTable
from pgsr_core.synthesis.sizes import SizeLaw, draw_groups

Int = NDArray[np.int64]
PEOPLE_PER_BLOCK = 1_000_000
UNITS_STREAM, IDS_STREAM, ORDER_STREAM, SHAPE_STREAM = range(4)


@dataclass(frozen=True)
class Block:
    """Some units of one leaf region.

    Attributes:
        leaf: position of the region among the leaves.
        sizes: how many people each unit holds, in no order; 0 for an empty unit.
    """

    leaf: int
    sizes: Int


class Population(Protocol):
    """A region table and a stream of units that is the same every time it is read."""

    @property
    def regions(self) -> RegionTable:
        """All regions."""

    @property
    def people(self) -> int:
        """How many people there are in all."""

    @property
    def max_size(self) -> int:
        """No unit holds more people than this."""

    @property
    def seed(self) -> int:
        """What every generator of this population is derived from."""

    def blocks(self) -> Iterator[Block]:
        """Yield all units, leaf by leaf, in blocks of about PEOPLE_PER_BLOCK people at most."""


def generator_of(seed: int, *key: int) -> np.random.Generator:
    """Return the generator of one stream; streams with different keys are independent."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


@dataclass(frozen=True)
class DrawnPopulation:
    """People handed out to leaves, and groups drawn in each leaf until they are housed.

    Attributes:
        regions: all regions.
        people_by_leaf: how many people each leaf has.
        laws: how large the groups of each leaf are.
        max_size: the largest group.
        empty_share: expected share of empty units among all units.
        seed: root of all randomness.
    """

    regions: RegionTable
    people_by_leaf: Int
    laws: tuple[SizeLaw, ...]
    max_size: int
    empty_share: float
    seed: int

    @property
    def people(self) -> int:
        """How many people there are in all."""
        return int(self.people_by_leaf.sum())

    def blocks(self) -> Iterator[Block]:
        """Yield all units, leaf by leaf."""
        for leaf, (people, law) in enumerate(zip(self.people_by_leaf, self.laws, strict=True)):
            blocks = -(-int(people) // PEOPLE_PER_BLOCK)
            for number in range(blocks):
                generator = generator_of(self.seed, UNITS_STREAM, leaf, number)
                share = int(people) * (number + 1) // blocks - int(people) * number // blocks
                sizes = draw_groups(law, share, generator=generator)
                yield Block(leaf, _with_empty_units(sizes, self.empty_share, generator=generator))


@dataclass(frozen=True)
class CountedPopulation:
    """A published histogram turned back into units: every count is met exactly.

    Attributes:
        regions: all regions.
        sizes: the sizes that are counted; 0 is allowed and means units known to be empty.
        counts: groups of each leaf (row, in the order of the leaves) and size (column).
        empty_share: expected share, among all units, of empty units that are added.
        seed: root of all randomness.
    """

    regions: RegionTable
    sizes: Int
    counts: Int
    empty_share: float
    seed: int

    @property
    def people(self) -> int:
        """How many people there are in all."""
        return int((self.counts @ self.sizes).sum())

    @property
    def max_size(self) -> int:
        """The largest size that is counted."""
        return max(1, int(self.sizes.max()))

    def blocks(self) -> Iterator[Block]:
        """Yield all units, leaf by leaf."""
        for leaf, counts in enumerate(self.counts):
            # Empty units take memory as well, so that a unit weighs as much as one person.
            weight = int(counts @ np.maximum(self.sizes, 1))
            blocks = -(-weight // PEOPLE_PER_BLOCK)
            for number in range(blocks):
                generator = generator_of(self.seed, UNITS_STREAM, leaf, number)
                share = counts * (number + 1) // blocks - counts * number // blocks
                sizes = np.repeat(self.sizes, share)
                yield Block(leaf, _with_empty_units(sizes, self.empty_share, generator=generator))


def _with_empty_units(sizes: Int, empty_share: float, *, generator: np.random.Generator) -> Int:
    """Mix empty units in: x = n · s / (1 − s) of them, rounded at random to keep the mean."""
    expected = sizes.size * empty_share / (1 - empty_share)
    empty = int(expected + generator.random())
    return generator.permutation(np.concatenate((sizes, np.zeros(empty, dtype=np.int64))))
