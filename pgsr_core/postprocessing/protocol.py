"""What every post-processor looks like: arrays in, arrays and a certificate out.

Right of the privacy barrier a step may read the measurements and public facts, nothing else,
and must be deterministic: the released table is a pure function of the stored measurements
(post-processing immunity, Dwork and Roth 2014, Proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree

Int = NDArray[np.int64]
Fact = bool | int | float | str


class Query(StrEnum):
    """What is measured in each region."""

    COUNTS = "counts"
    """n_k: the number of groups of size k."""

    CUMULATIVE = "cumulative"
    """c_k: the number of groups of size at least k, for k = 1..N."""

    def measured_sizes(self, sizes: range) -> range:
        """The columns of its measurements, given the published sizes."""
        return range(1, sizes.stop) if self is Query.CUMULATIVE else sizes


@dataclass(frozen=True)
class PublicFacts:
    """All that a post-processor may know besides the measurements.

    Attributes:
        tree: the region tree.
        smallest_size: 0 where a unit table is public, 1 where units come from the data.
        largest_size: N; larger groups are top-coded to it.
        groups: G, the number of groups in all.
        groups_by_region: G_r for every region where public, else None.
        scales: scale of the noise of each level, root first; empty where no noise was drawn.
    """

    tree: RegionTree
    smallest_size: int
    largest_size: int
    groups: int
    groups_by_region: Int | None
    scales: tuple[Fraction, ...] = ()

    @property
    def sizes(self) -> range:
        """The published sizes, one column each in a table of counts."""
        return range(self.smallest_size, self.largest_size + 1)

    def measured_sizes(self, query: Query) -> range:
        """The columns of a table of measurements."""
        return query.measured_sizes(self.sizes)


@dataclass(frozen=True)
class StepResult:
    """A step's table (regions × sizes) and the evidence that goes on record with it."""

    values: Int
    certificate: Mapping[str, Fact] = field(default_factory=dict)


class Step(Protocol):
    """One post-processing step; its name is the name of its stage and of its table."""

    @property
    def name(self) -> str: ...

    def __call__(self, values: Int, facts: PublicFacts) -> StepResult:
        """Return the next table; must not change its argument."""
        ...
