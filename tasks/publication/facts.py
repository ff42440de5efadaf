"""What a bundle says about itself: plain frozen facts, checked to agree with one another.

Everything here is printed. Nothing that depends on the true data, on the machine or on the
clock (beyond the date of publication) may become a field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pgsr_core.documents.stated import SIMULATION_NOTICE, Stated, StatedLevel
from pgsr_core.postprocessing.protocol import Fact
from tasks.publication.errors import InconsistentFacts

__all__ = ["SIMULATION_NOTICE", "BundleFacts", "CheckFacts", "StatedLevel"]


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


@dataclass(frozen=True, kw_only=True)
class BundleFacts(Stated):
    """Everything that the documents of a bundle say besides the tables themselves.

    Attributes:
        checks: every gate.
        certificates: for each post-processing step the evidence that it did its work.
        digests: canonical digest of each public-safe table.
    """

    checks: tuple[CheckFacts, ...]
    certificates: Mapping[str, Mapping[str, Fact]]
    digests: Mapping[str, str]

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
