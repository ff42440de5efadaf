"""Isotonic regression of whole tables: against a copy, scipy and scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import scipy.optimize
import sklearn.isotonic

from benchmarks import workloads
from benchmarks.rows import Benchmark, Effort, Row, at_most
from benchmarks.timing import TWO_THREADS, best_seconds, on_threads, plain_copy
from benchmarks.workloads import Shape, Workload
from pgsr_core.solvers.isotonic import isotonic_integers

CUMULATIVE_SCALE = 3


def solver(load: Workload) -> Callable[[], object]:
    return lambda: isotonic_integers(load.noisy, upper=load.groups_by_region)


def _by_scipy(load: Workload) -> np.ndarray:
    rows = [scipy.optimize.isotonic_regression(row, increasing=False).x for row in load.noisy]
    return np.clip(rows, 0, load.groups_by_region[:, None])


def _by_sklearn(load: Workload) -> np.ndarray:
    return np.array(
        [
            sklearn.isotonic.isotonic_regression(row, increasing=False, y_min=0, y_max=most)
            for row, most in zip(load.noisy, load.groups_by_region, strict=True)
        ]
    )


def _assert_equal_up_to_rounding(load: Workload) -> None:
    """Compare some hundred rows with the peers' real-valued answers."""
    rows = slice(None, None, 1 + load.tree.regions // 100)
    some = replace(load, noisy=load.noisy[rows], groups_by_region=load.groups_by_region[rows])
    mine = isotonic_integers(some.noisy, upper=some.groups_by_region)
    for theirs in (_by_scipy(some), _by_sklearn(some)):
        assert np.abs(mine - theirs).max() <= 0.5 + 1e-6, "isotonic regressions differ"


def _rows(shape: Shape) -> Callable[[Effort], Iterator[Row]]:
    def run(effort: Effort) -> Iterator[Row]:
        chosen = workloads.tiny(shape) if effort.quick else shape
        load = workloads.cumulative(chosen, scale=CUMULATIVE_SCALE)
        _assert_equal_up_to_rounding(load)
        call = solver(load)
        seconds = best_seconds(
            {
                "copy": plain_copy(load.noisy),
                "one": on_threads(1, call),
                "two": on_threads(TWO_THREADS, call),
            },
            repetitions=effort.repetitions,
        )
        one, two = (seconds[name] / seconds["copy"] for name in ("one", "two"))
        bar = effort.bar(at_most(15))
        yield Row("isotonic, one thread", load.label, one, "×", "plain copy", bar)
        yield Row("isotonic, two threads", load.label, two, "×", "plain copy")
        peers = best_seconds(
            {
                "one": on_threads(1, call),
                "scipy": lambda: _by_scipy(load),
                "scikit-learn": lambda: _by_sklearn(load),
            },
            repetitions=min(2, effort.repetitions),
        )
        for peer in ("scipy", "scikit-learn"):
            ratio = peers[peer] / peers["one"]
            against = f"{peer}, row by row"
            yield Row("isotonic, speed, one thread", load.label, ratio, "× faster", against)

    return run


BENCHMARKS = (
    Benchmark("isotonic-us", _rows(workloads.US)),
    Benchmark("isotonic-taxi-zones", _rows(workloads.TAXI_ZONES)),
    Benchmark("isotonic-taxi-blocks", _rows(workloads.TAXI_BLOCKS)),
)
