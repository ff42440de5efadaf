"""What a bundle says about itself: plain frozen facts, checked to agree with one another.

Everything here is printed. Nothing that depends on the true data, on the machine or on the
clock (beyond the date of publication) may become a field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction

from pgsr_core.lineage import Lineage
from pgsr_core.postprocessing.protocol import Fact, Query
from pgsr_core.sensitivity import Neighbours
from tasks.publication.errors import InconsistentFacts

SIMULATION_NOTICE = "NOT PRIVATE — SIMULATION"


@dataclass(frozen=True)
class LevelFacts:
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


@dataclass(frozen=True)
class CheckFacts:
    """One gate: what it asserts, and whether that held.

    Attributes:
        name: of the check.
        suite: the suite it belongs to.
        statement: what holds when it passed, as a sentence.
        passed: whether it did.
        expectations: how many expectations ran; none is a failure.
    """

    name: str
    suite: str
    statement: str
    passed: bool
    expectations: int


@dataclass(frozen=True)
class BundleFacts:
    """Everything that the documents of a bundle say besides the tables themselves.

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
        checks: every gate.
        certificates: for each post-processing step the evidence that it did its work.
        digests: canonical digest of each public-safe table.
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
    levels: tuple[LevelFacts, ...]
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
    checks: tuple[CheckFacts, ...]
    certificates: Mapping[str, Mapping[str, Fact]]
    digests: Mapping[str, str]
    lineage: Lineage = field(default_factory=Lineage)
    margin_repetitions: int = 0

    def __post_init__(self) -> None:
        """Refuse claims that do not follow from one another.

        Guarantee. Noise of scale b gives one level Δ/b-differential privacy (Dwork and Roth
        2014, section 3.3, for the geometric mechanism Ghosh, Roughgarden and Sundararajan
        2012), and levels compose by adding up (Theorem 3.16), so the claim `epsilon` needs
        Δ ≤ b_l ε_l at every level and Σ ε_l = ε.
        """
        if [facts.level for facts in self.levels] != list(range(1, len(self.levels) + 1)):
            raise InconsistentFacts("the levels are not numbered from 1")
        if sum(facts.epsilon for facts in self.levels) != self.epsilon:
            raise InconsistentFacts("the levels' epsilons do not add up to the release's")
        if any(facts.scale * facts.epsilon < self.sensitivity for facts in self.levels):
            raise InconsistentFacts("a level's noise is too small for its epsilon")
        # A simulation is not charged: no ε describes it.
        if not self.simulation and self.spent_on_population < self.epsilon:
            raise InconsistentFacts("less was spent on the population than on this release")
        if self.release in self.lineage.named:
            raise InconsistentFacts("the release would go back to itself")
        for facts in self.levels:
            if facts.cells != facts.regions * len(self.measured_sizes):
                raise InconsistentFacts("a level has another number of cells than regions × sizes")

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
        return sum(facts.regions for facts in self.levels)
