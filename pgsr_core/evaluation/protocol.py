"""What every contender is asked and answers, and how the truth is measured for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pgsr_core.budget import OwnSplit, balanced_shares, split_over_levels
from pgsr_core.errors import PgsrError
from pgsr_core.evaluation.datasets import EvaluationData
from pgsr_core.noise.seeded import SeededSampler
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.postprocessing.steps import cumulative_from_counts
from pgsr_core.sensitivity import Neighbours, l1_sensitivity

Int = NDArray[np.int64]


class TimedOut(PgsrError):
    """A contender had no answer within its time limit."""

    def __init__(self, *, contender: str, time_limit: float) -> None:
        self.contender = contender
        self.time_limit = time_limit
        super().__init__(
            f"{contender} found no answer within {time_limit:g} s. "
            "Remedy: allow more time, or take smaller data."
        )

    def __reduce__(self) -> tuple[Callable[[], TimedOut], tuple[()]]:
        """Contenders may run in processes of their own."""
        return partial(TimedOut, contender=self.contender, time_limit=self.time_limit), ()


class NotApplicable(PgsrError):
    """A contender cannot be run on such data at all."""

    def __init__(self, *, contender: str, reason: str) -> None:
        self.contender = contender
        self.reason = reason
        super().__init__(f"{contender} cannot be run: {reason}. Remedy: take smaller data.")

    def __reduce__(self) -> tuple[Callable[[], NotApplicable], tuple[()]]:
        """Contenders may run in processes of their own."""
        return partial(NotApplicable, contender=self.contender, reason=self.reason), ()


@dataclass(frozen=True)
class Setting:
    """What is asked of a contender.

    Attributes:
        data: the truth to measure.
        epsilon: the budget of all levels together.
        seed: decides on everything random.
        time_limit: seconds for the post-processing.
    """

    data: EvaluationData
    epsilon: Fraction
    seed: int
    time_limit: float


@dataclass(frozen=True)
class Answer:
    """What a contender would publish.

    Attributes:
        values: regions × published sizes, integers.
        seconds: how long the post-processing took (noise and truth excluded).
        distance: squared, from what was measured: what the papers' programs minimise. None where a
            contender minimises something else.
    """

    values: Int
    seconds: float
    distance: int | None = None


class Contender(Protocol):
    """Something that measures a truth with noise and turns that into counts."""

    @property
    def name(self) -> str: ...

    @property
    def notation(self) -> str:
        """As in the literature."""
        ...

    @property
    def consistent(self) -> bool:
        """Whether it claims that no constraint is violated."""
        ...

    def __call__(self, setting: Setting) -> Answer:
        """Measure and post-process.

        Raises:
            TimedOut: no answer within the time limit.
            NotApplicable: the data are too large to begin.
        """
        ...


def level_scales(
    setting: Setting, query: Query, *, split: OwnSplit = "uniform"
) -> tuple[Fraction, ...]:
    """The scale of each level's noise, root first.

    One record adds 1 to its unit (Z = 1), and neighbours differ by one record added or removed:
    as in the papers.
    """
    data, epsilon = setting.data, setting.epsilon
    sensitivity = l1_sensitivity(
        query,
        neighbours=Neighbours.ADD_REMOVE,
        largest_contribution=1,
        largest_size=data.largest_size,
        units_from_data=data.empty_units is None,
    )
    levels, shares = data.tree.levels, None
    if split == "balanced":
        shares = balanced_shares(levels, epsilon=epsilon, sensitivity=sensitivity)
    parts = split_over_levels(epsilon, levels=levels, shares=shares)
    return tuple(sensitivity / part for part in parts)


def measured(setting: Setting, query: Query, scales: Sequence[Fraction]) -> Int:
    """The noisy answers to a query: the same for one seed."""
    truth = setting.data.truth
    if query is Query.CUMULATIVE:
        truth = cumulative_from_counts(truth, largest_size=setting.data.largest_size)
    return with_noise(setting, truth, scales)


def with_noise(setting: Setting, truth: Int, scales: Sequence[Fraction]) -> Int:
    """A true table, a row a region, with the noise of its levels, drawn from the root on."""
    start = setting.data.tree.level_start
    sampler = SeededSampler(np.random.default_rng(setting.seed))
    noisy = np.empty_like(truth)
    for level, scale in enumerate(scales):
        rows = slice(start[level], start[level + 1])
        noisy[rows] = sampler.add_noise(truth[rows], scale=scale)
    return noisy
