"""Extra peak memory of the solvers, results included, as a multiple of their input."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.probe import probe
from benchmarks.rows import Bar, Benchmark, Effort, Row, at_most


def _extra(solver: str, shape: str, bar: Bar) -> Callable[[Effort], Iterator[Row]]:
    def run(effort: Effort) -> Iterator[Row]:
        found = probe("memory", solver, "tiny" if effort.quick else shape)
        ratio = found["extra_bytes"] / found["input_bytes"]
        name = f"{solver}, extra peak memory with the result"
        yield Row(name, found["label"], ratio, "×", "input", effort.bar(bar))

    return run


BENCHMARKS = (
    Benchmark("memory-cpwl-us", _extra("CPWL", "us", at_most(2))),
    Benchmark("memory-cpwl-taxi-blocks", _extra("CPWL", "taxi-blocks", at_most(2))),
    Benchmark("memory-isotonic-us", _extra("isotonic", "us", at_most(6))),
    Benchmark("memory-isotonic-taxi-blocks", _extra("isotonic", "taxi-blocks", at_most(6))),
    Benchmark("memory-projection-us", _extra("projection", "us", at_most(6))),
)
