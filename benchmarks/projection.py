"""The global projection of cumulative tables and its rounding: against the tree solver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from benchmarks import cpwl, workloads
from benchmarks.isotonic import CUMULATIVE_SCALE
from benchmarks.rows import Bar, Benchmark, Effort, Row, at_most
from benchmarks.timing import TWO_THREADS, best_seconds, threads
from benchmarks.workloads import Workload
from pgsr_core.mechanisms import GLOBAL
from pgsr_core.postprocessing.protocol import PublicFacts
from pgsr_core.solvers.projection import Projection, project, round_consistently

TOLERANCE = 1e-2


def solver(load: Workload, weights: Sequence[int] | None = None) -> Callable[[], Projection]:
    return lambda: project(
        load.tree,
        load.noisy,
        groups=load.groups,
        groups_by_region=load.groups_by_region,
        level_weights=weights,
        tolerance=TOLERANCE,
    )


def _rounding(load: Workload, values: NDArray[np.float64]) -> Callable[[], object]:
    public = {"groups": load.groups, "groups_by_region": load.groups_by_region}
    return lambda: round_consistently(load.tree, values, **public)


def _us(
    weighting: str, weights: Sequence[int] | None, bar: Bar
) -> Callable[[Effort], Iterator[Row]]:
    def run(effort: Effort) -> Iterator[Row]:
        shape = workloads.tiny(workloads.US) if effort.quick else workloads.US
        load = workloads.cumulative(shape, scale=CUMULATIVE_SCALE)
        call = solver(load, weights)
        with threads(TWO_THREADS):
            result = call()
            seconds = best_seconds(
                {
                    "cpwl": cpwl.solver(workloads.counts(shape, scale=CUMULATIVE_SCALE)),
                    "project": call,
                    "round": _rounding(load, result.values),
                },
                repetitions=min(3, effort.repetitions),
            )
        against = "CPWL, two threads"
        projection, rounding = (seconds[name] / seconds["cpwl"] for name in ("project", "round"))
        name = f"projection, two threads, {weighting}"
        yield Row(name, load.label, projection, "×", against, effort.bar(bar))
        yield Row(name, load.label, seconds["project"], "s")
        yield Row(name, load.label, result.residual, "residual", "", at_most(TOLERANCE))
        name = f"rounding, two threads, {weighting}"
        yield Row(name, load.label, rounding, "×", against)

    return run


def _global(effort: Effort) -> Iterator[Row]:
    """The whole of mechanism `global`: estimates, projection, rounding."""
    shape = workloads.tiny(workloads.US) if effort.quick else workloads.US
    load = workloads.cumulative(shape, scale=CUMULATIVE_SCALE)
    facts = PublicFacts(
        load.tree,
        0,
        load.noisy.shape[1],
        load.groups,
        load.groups_by_region,
        (Fraction(CUMULATIVE_SCALE),) * load.tree.levels,
    )
    with threads(TWO_THREADS):
        seconds = best_seconds(
            {
                "cpwl": cpwl.solver(workloads.counts(shape, scale=CUMULATIVE_SCALE)),
                "global": lambda: GLOBAL.steps[0](load.noisy, facts),
            },
            repetitions=min(3, effort.repetitions),
        )
    ratio, against = seconds["global"] / seconds["cpwl"], "CPWL, two threads"
    name = "mechanism global, two threads"
    yield Row(name, load.label, ratio, "×", against, effort.bar(at_most(80)))
    yield Row(name, load.label, seconds["global"], "s")


BENCHMARKS = (
    Benchmark("projection-us", _us("equal weights", None, at_most(80))),
    Benchmark("global-us", _global),
    Benchmark("projection-us-weighted", _us("weights (16, 4, 1)", (16, 4, 1), at_most(150))),
)
