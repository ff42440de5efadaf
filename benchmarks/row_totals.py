"""The exact tree solver with row totals: against the solver without them, in one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from benchmarks import workloads
from benchmarks.cpwl import solver as without_totals
from benchmarks.rows import Bar, Benchmark, Effort, Row, at_most
from benchmarks.timing import TWO_THREADS, best_seconds, on_threads
from benchmarks.workloads import Shape, Workload
from pgsr_core.solvers import row_totals

FEW_SIZES = Shape("few sizes", (1, 52, 3_143, 40_000), 8, groups_a_leaf=400, typical_size=2.5)


def solver(workload: Workload) -> Callable[[], None]:
    def call() -> None:
        solution = row_totals.solve(
            workload.tree, workload.noisy, groups_by_region=workload.groups_by_region
        )
        assert solution.certificate.optimal, "the solver's table is not optimal"

    return call


def _against_cpwl(shape: Shape, scale: float, bar: Bar | None) -> Callable[[Effort], Iterator[Row]]:
    def run(effort: Effort) -> Iterator[Row]:
        small = replace(workloads.tiny(shape), regions=(1, 4, 40))
        workload = workloads.counts(small if effort.quick else shape, scale=scale)
        with_totals, without = solver(workload), without_totals(workload)
        seconds = best_seconds(
            {
                "without, one": on_threads(1, without),
                "with, one": on_threads(1, with_totals),
                "without, two": on_threads(TWO_THREADS, without),
                "with, two": on_threads(TWO_THREADS, with_totals),
            },
            repetitions=effort.repetitions,
        )
        for threads in ("one", "two"):
            ratio = seconds[f"with, {threads}"] / seconds[f"without, {threads}"]
            held = effort.bar(bar) if bar else None
            name = f"CPWL with row totals, {threads} thread{'s' * (threads == 'two')}"
            yield Row(name, workload.label, ratio, "×", "CPWL, as many threads", held)

    return run


BENCHMARKS = (
    Benchmark("row-totals-us", _against_cpwl(workloads.US, 6, at_most(15))),
    Benchmark("row-totals-us-noisy", _against_cpwl(workloads.US, 60, None)),
    Benchmark("row-totals-few-sizes", _against_cpwl(FEW_SIZES, 6, None)),
)

if __name__ == "__main__":
    for benchmark in BENCHMARKS:
        for row in benchmark.run(Effort(quick=False, repetitions=3)):
            print(f"{row.name}, {row.shape}: {row.value:.1f} {row.unit} {row.against}")
