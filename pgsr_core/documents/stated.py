"""The numbers and names that a release states, from which all of its words follow.

A publisher decides them and a verifier reads them; both write the same documents from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction

from pgsr_core.lineage import Lineage
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.sensitivity import Neighbours

SIMULATION_NOTICE = "NOT PRIVATE — SIMULATION"


@dataclass(frozen=True)
class StatedLevel:
    """One level of the region tree and how it was measured.

    Attributes:
        level: from 1, the root's.
        regions: how many regions the level has.
        cells: how many numbers were measured in it.
        epsilon: the level's share of the release's epsilon.
        scale: of the noise, at least sensitivity / epsilon.
        expected_absolute_noise: E|X| of one measurement's noise; follows from the scale.
    """

    level: int
    regions: int
    cells: int
    epsilon: Fraction
    scale: Fraction
    expected_absolute_noise: float


@dataclass(frozen=True, kw_only=True)
class Stated:
    """What the documents of a bundle state about its release.

    Attributes:
        product: name of the product.
        release: name of the release.
        published_on: the date of publication; a date only, as timings may reveal data.
        code_version: version of the software.
        simulation: whether the noise came from a generator that gives no privacy.
        population: whom the budget belongs to.
        unit_of_privacy: what one record stands for, in words.
        epsilon: of this release.
        levels: root first; their epsilons add up to `epsilon`.
        neighbours: which change of one record is covered.
        sensitivity: L1, of one level's measurements.
        query: what was measured.
        mechanism: its name in a configuration.
        notation: its name in the literature.
        sampler: the name of what drew the noise.
        units_from_data: whether the number of groups was taken from the data.
        groups: G, the number of groups in all.
        smallest_size: the smallest published size.
        largest_size: N, to which larger groups are top-coded.
        largest_contribution: Z, the most that one record adds to its group.
        keeps_region_totals: whether the public number of groups is kept in every region.
        spent_on_population: epsilon spent on the population so far, this release included.
        budget: epsilon that may ever be spent on it.
        lineage: the releases that it replaces, or whose measurements it rests on.
        margin_repetitions: how often the release was simulated for its margins of error; 0: it
            states none.
    """

    product: str
    release: str
    published_on: date
    code_version: str
    simulation: bool
    population: str
    unit_of_privacy: str
    epsilon: Fraction
    levels: tuple[StatedLevel, ...]
    neighbours: Neighbours
    sensitivity: int
    query: Query
    mechanism: str
    notation: str
    sampler: str
    units_from_data: bool
    groups: int
    smallest_size: int
    largest_size: int
    largest_contribution: int
    keeps_region_totals: bool
    spent_on_population: Fraction
    budget: Fraction
    lineage: Lineage = field(default_factory=Lineage)
    margin_repetitions: int = 0

    @property
    def states_margins(self) -> bool:
        """Whether margins of error are published beside the counts."""
        return self.margin_repetitions > 0

    @property
    def sizes(self) -> range:
        """The published sizes."""
        return range(self.smallest_size, self.largest_size + 1)

    @property
    def measured_sizes(self) -> range:
        """The sizes of the measurements: k = 1..N where "size at least k" was counted."""
        return self.query.measured_sizes(self.sizes)

    @property
    def regions(self) -> int:
        """Number of regions of the whole tree."""
        return sum(level.regions for level in self.levels)
