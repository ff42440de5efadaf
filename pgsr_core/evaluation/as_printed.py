"""M_H^r and M_c^r as the paper prints them, for a solver of the kind that it used.

`relaxed-counts` and `relaxed-cumulative` solve the relaxed programs to the end. Here Figures 3 and
7 of Fioretto and Van Hentenryck 2019 go to an interior-point method as they stand (Clarabel; theirs
was Gurobi), which stops 10⁻⁸ of the objective away from the optimum. With G groups the objective is
of the order of G² for counts, and of N G² for cumulative counts from the smallest size up, which
are about G in most cells. For a hundred million groups that leaves ten thousand and more of them
in the wrong cells, whatever ε is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from pgsr_core.evaluation.protocol import (
    Answer,
    Int,
    NotApplicable,
    Setting,
    TimedOut,
    level_scales,
    measured,
    with_noise,
)
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.solvers.generic.errors import SolverMissing, SolverTimedOut

Real = NDArray[np.float64]
MOST_CELLS = 5_000_000
"""Regions × sizes; so many take about 8 GB."""


@dataclass(frozen=True)
class PrintedCounts:
    """M_H^r: relaxed, solved, and rounded half up."""

    name: str = "relaxed-counts-as-printed"
    notation: str = "M_H^r as printed"
    consistent: bool = False

    def __call__(self, setting: Setting) -> Answer:
        """See Contender."""
        noisy = measured(setting, Query.COUNTS, level_scales(setting, Query.COUNTS))
        solve = _interior_point().relaxed_counts
        counts, seconds = _solved(solve, noisy, setting, contender=self.name)
        return Answer(counts, seconds)


@dataclass(frozen=True)
class PrintedCumulative:
    """M_c^r: relaxed, solved, rounded half up, then differences.

    Cumulative counts are the paper's, from the smallest size up, and so is their noise: for a
    sensitivity of 1, which they do not have unless units are public (see docs/privacy.md). This
    shows how the paper's errors come about; it is no way to release anything.
    """

    name: str = "relaxed-cumulative-as-printed"
    notation: str = "M_c^r as printed"
    consistent: bool = False

    def __call__(self, setting: Setting) -> Answer:
        """See Contender."""
        truth = np.cumsum(setting.data.truth, axis=1)
        noisy = with_noise(setting, truth, level_scales(setting, Query.CUMULATIVE))
        solve = _interior_point().relaxed_cumulative
        cumulative, seconds = _solved(solve, noisy, setting, contender=self.name)
        return Answer(np.diff(cumulative, axis=1, prepend=0), seconds)


def _solved(
    solve: Callable[..., Real], noisy: Int, setting: Setting, *, contender: str
) -> tuple[Int, float]:
    """The rounded optimum of a relaxed program, and the seconds that it took."""
    if noisy.size > MOST_CELLS:
        reason = f"{noisy.size} measured cells are more than {MOST_CELLS}"
        raise NotApplicable(contender=contender, reason=reason)
    groups = setting.data.facts().groups
    begun = time.perf_counter()
    try:
        real = solve(setting.data.tree, noisy, groups=groups, time_limit=setting.time_limit)
    except SolverTimedOut as error:
        raise TimedOut(contender=contender, time_limit=error.time_limit) from error
    return np.floor(real + 0.5).astype(np.int64), time.perf_counter() - begun


def _interior_point() -> ModuleType:
    try:
        from pgsr_core.solvers.generic import interior_point  # noqa: PLC0415 - of the extra
    except ImportError as error:
        raise SolverMissing(package="clarabel", reason=str(error)) from error
    return interior_point
