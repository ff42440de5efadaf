"""What compilation costs: the first call with a cold and with a warm cache, in new processes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator

from benchmarks.probe import SOLVERS, probe
from benchmarks.rows import Benchmark, Effort, Row


def _cold_and_warm(solver: str) -> Callable[[Effort], Iterator[Row]]:
    def run(_: Effort) -> Iterator[Row]:
        with tempfile.TemporaryDirectory() as cache:
            environment = os.environ | {"NUMBA_CACHE_DIR": cache}
            cold, warm = (
                probe("first-call", solver, "tiny", environment=environment) for _ in range(2)
            )
        label = cold["label"]
        first, again = cold["first_seconds"], warm["first_seconds"]
        yield Row(f"{solver}, first call, cold cache", label, first, "s")
        yield Row(f"{solver}, first call, warm cache", label, again, "s")
        yield Row(f"{solver}, compilation", label, first / again, "×", "the same, warm cache")

    return run


BENCHMARKS = tuple(
    Benchmark(f"first-call-{solver.lower()}", _cold_and_warm(solver)) for solver in SOLVERS
)
