"""The exact tree solver: against a copy, over noise scales, and how its time grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from benchmarks import workloads
from benchmarks.rows import Bar, Benchmark, Effort, Row, at_most
from benchmarks.timing import TWO_THREADS, best_seconds, on_threads, plain_copy
from benchmarks.workloads import Shape, Workload
from pgsr_core.solvers import cpwl

NOISE_SCALES = (3.0, 30.0, 300.0)


def solver(workload: Workload) -> Callable[[], object]:
    return lambda: cpwl.solve(workload.tree, workload.noisy, groups=workload.groups)


def _against_copy(shape: Shape, bar: Bar | None) -> Callable[[Effort], Iterator[Row]]:
    def run(effort: Effort) -> Iterator[Row]:
        workload = workloads.counts(workloads.tiny(shape) if effort.quick else shape, scale=6)
        call = solver(workload)
        seconds = best_seconds(
            {
                "copy": plain_copy(workload.noisy),
                "one": on_threads(1, call),
                "two": on_threads(TWO_THREADS, call),
            },
            repetitions=effort.repetitions,
        )
        one, two = (seconds[name] / seconds["copy"] for name in ("one", "two"))
        held = effort.bar(bar) if bar else None
        yield Row("CPWL, one thread", workload.label, one, "×", "plain copy", held)
        yield Row("CPWL, two threads", workload.label, two, "×", "plain copy")
        nanoseconds = seconds["one"] / workload.noisy.size * 1e9
        yield Row("CPWL, one thread", workload.label, nanoseconds, "ns a cell")

    return run


def _noise_scales(effort: Effort) -> Iterator[Row]:
    shape = workloads.tiny(workloads.US) if effort.quick else workloads.US
    inputs = {scale: workloads.counts(shape, scale=scale) for scale in NOISE_SCALES}
    candidates = {f"{scale:g}": on_threads(1, solver(load)) for scale, load in inputs.items()}
    candidates["copy"] = plain_copy(inputs[NOISE_SCALES[0]].noisy)
    seconds = best_seconds(candidates, repetitions=effort.repetitions)
    for scale, load in inputs.items():
        ratio = seconds[f"{scale:g}"] / seconds["copy"]
        bar = effort.bar(at_most(12))
        yield Row("CPWL, one thread", load.label, ratio, "×", "plain copy", bar)
    first, last = (seconds[f"{scale:g}"] for scale in (NOISE_SCALES[0], NOISE_SCALES[-1]))
    bar = effort.bar(at_most(1.2))
    yield Row("CPWL, growth of noise", shape.label, last / first, "×", "λ = 300 / λ = 3", bar)
    slope = _exponent(NOISE_SCALES, [seconds[f"{scale:g}"] for scale in NOISE_SCALES])
    yield Row("CPWL, growth exponent", shape.label, slope, "exponent", "noise scale")


def _growth(effort: Effort) -> Iterator[Row]:
    base = workloads.tiny(workloads.US) if effort.quick else replace(workloads.US, sizes=250)
    factors = (1, 2, 4) if effort.quick else (1, 2, 4, 8)
    wider = [replace(base, sizes=base.sizes * factor) for factor in factors]
    larger = [
        replace(base, regions=(1, *(level * factor for level in base.regions[1:])))
        for factor in factors
    ]
    for against, shapes in (("sizes", wider), ("regions", larger)):
        inputs = [workloads.counts(shape, scale=6) for shape in shapes]
        candidates = {str(index): on_threads(1, solver(load)) for index, load in enumerate(inputs)}
        seconds = best_seconds(candidates, repetitions=effort.repetitions)
        slope = _exponent(factors, [seconds[name] for name in candidates])
        label = f"{shapes[0].label} to {factors[-1]} times as many"
        yield Row("CPWL, growth exponent", label, slope, "exponent", against)


def _certificate(effort: Effort) -> Iterator[Row]:
    shape = workloads.tiny(workloads.US) if effort.quick else workloads.US
    load = workloads.counts(shape, scale=6)
    found = cpwl.solve(load.tree, load.noisy, groups=load.groups).counts

    def certify() -> None:
        certificate = cpwl.certify(load.tree, load.noisy, found, groups=load.groups)
        assert certificate.optimal, "the solver's table is not optimal"

    seconds = best_seconds(
        {"solve": on_threads(1, solver(load)), "certify": on_threads(1, certify)},
        repetitions=effort.repetitions,
    )
    ratio = seconds["certify"] / seconds["solve"]
    bar = effort.bar(at_most(0.5))
    yield Row("certificate, one thread", load.label, ratio, "×", "CPWL, one thread", bar)


def _exponent(factors: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of log time over log size: 1 is linear growth."""
    return float(np.polyfit(np.log(factors), np.log(seconds), 1)[0])


BENCHMARKS = (
    Benchmark("cpwl-us", _against_copy(workloads.US, at_most(12))),
    Benchmark("cpwl-noise", _noise_scales),
    Benchmark("cpwl-growth", _growth),
    Benchmark("cpwl-taxi-zones", _against_copy(workloads.TAXI_ZONES, None)),
    Benchmark("cpwl-taxi-blocks", _against_copy(workloads.TAXI_BLOCKS, at_most(20))),
    Benchmark("cpwl-deep", _against_copy(workloads.DEEP, at_most(60))),
    Benchmark("certificate", _certificate),
)
