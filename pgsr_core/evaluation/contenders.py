"""Whatever is compared, by name: the papers' seven mechanisms, the product's own, and peers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pgsr_core.evaluation.as_printed import PrintedCounts, PrintedCumulative
from pgsr_core.evaluation.kuo import KuoHc, KuoHg
from pgsr_core.evaluation.peers import Plain, TopDown
from pgsr_core.evaluation.protocol import (
    Answer,
    Contender,
    Int,
    NotApplicable,
    Setting,
    TimedOut,
    level_scales,
    measured,
)
from pgsr_core.mechanisms import MECHANISMS, RELAXED, Mechanism
from pgsr_core.postprocessing.exact_programs import TimeLimited
from pgsr_core.postprocessing.protocol import PublicFacts, Query
from pgsr_core.postprocessing.steps import cumulative_from_counts
from pgsr_core.solvers.generic.errors import SolverTimedOut, TooLargeForSolver

__all__ = [
    "CONTENDERS",
    "Answer",
    "Contender",
    "MechanismContender",
    "NotApplicable",
    "Setting",
    "TimedOut",
]


@dataclass(frozen=True)
class MechanismContender:
    """A mechanism of the product; ε is split over the levels as it is in a release."""

    mechanism: Mechanism
    consistent: bool = True

    @property
    def name(self) -> str:
        """As in a configuration."""
        return self.mechanism.name

    @property
    def notation(self) -> str:
        """See Contender."""
        return self.mechanism.notation

    def __call__(self, setting: Setting) -> Answer:
        """See Contender."""
        query = self.mechanism.query
        scales = level_scales(setting, query, split=self.mechanism.split)
        noisy = measured(setting, query, scales)
        facts = setting.data.facts(scales)
        begun = time.perf_counter()
        try:
            values = self._post_processed(noisy, facts, setting.time_limit)
        except SolverTimedOut as error:
            raise TimedOut(contender=self.name, time_limit=error.time_limit) from error
        except TooLargeForSolver as error:
            reason = f"{error.number} {error.of} are more than {error.most}"
            raise NotApplicable(contender=self.name, reason=reason) from error
        seconds = time.perf_counter() - begun
        answered = values
        if query is Query.CUMULATIVE:
            answered = cumulative_from_counts(values, largest_size=setting.data.largest_size)
        return Answer(values, seconds, distance=int(((answered - noisy) ** 2).sum()))

    def _post_processed(self, values: Int, facts: PublicFacts, time_limit: float) -> Int:
        for step in self.mechanism.steps:
            limited = step.within(time_limit) if isinstance(step, TimeLimited) else step
            values = limited(values, facts).values
        return values


_ALL: tuple[Contender, ...] = (
    *(MechanismContender(mechanism) for mechanism in MECHANISMS.values()),
    *(MechanismContender(mechanism, consistent=False) for mechanism in RELAXED.values()),
    PrintedCounts(),
    PrintedCumulative(),
    KuoHc(),
    KuoHg(),
    TopDown(),
    Plain(),
)
CONTENDERS: Mapping[str, Contender] = MappingProxyType({each.name: each for each in _ALL})
