"""The compiled sampler: against numpy's geometric noise, the raw cipher stream, and OpenDP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from benchmarks.rows import Benchmark, Effort, Row
from benchmarks.timing import TWO_THREADS, best_seconds
from pgsr_core.noise.discrete_laplace import BUFFER_WORDS, draw_into
from pgsr_core.noise.fast_exact import FastExactSampler, fresh_stream
from pgsr_core.noise.opendp import OpenDPSampler
from pgsr_core.noise.seeded import SeededSampler

CELLS = 4_000_000
TINY_CELLS = 2_000
# OpenDP takes some fifty times as long, and its time grows with the cells alone.
OPENDP_PART = 20


def _cipher_stream(cells: int, scale: Fraction) -> Callable[[], None]:
    """As many bytes of the stream as so many draws take, and nothing done with them."""
    noise = np.empty(cells, dtype=np.int64)
    used = draw_into(
        noise,
        numerator=scale.numerator,
        denominator=scale.denominator,
        refill=fresh_stream(),
    )
    memory = memoryview(bytearray(4 * BUFFER_WORDS))

    def run() -> None:
        refill = fresh_stream()
        for start in range(0, used, BUFFER_WORDS):
            refill(memory[: 4 * min(BUFFER_WORDS, used - start)])

    return run


def _rows(scale: Fraction) -> Callable[[Effort], Iterator[Row]]:
    def run(effort: Effort) -> Iterator[Row]:
        cells = TINY_CELLS if effort.quick else CELLS
        label = f"{cells:,} cells, scale {scale}"
        label = f"tiny {label}" if effort.quick else label
        zeros = np.zeros(cells, dtype=np.int64)
        samplers = {
            "one": FastExactSampler(threads=1),
            "two": FastExactSampler(threads=TWO_THREADS),
            "numpy": SeededSampler(np.random.default_rng(1)),
        }
        calls = {
            name: lambda sampler=sampler: sampler.add_noise(zeros, scale=scale)
            for name, sampler in samplers.items()
        }
        part = zeros[: cells // OPENDP_PART]
        calls["opendp"] = lambda: OpenDPSampler().add_noise(part, scale=scale)
        calls["cipher"] = _cipher_stream(cells, scale)
        seconds = best_seconds(calls, repetitions=effort.repetitions)
        seconds["opendp"] *= cells / part.size
        for threads in ("one", "two"):
            name, mine = f"fast-exact, {threads} thread{'s' * (threads == 'two')}", seconds[threads]
            yield Row(name, label, cells / mine / 1e6, "million draws a second")
            geometric = "numpy's difference of geometric draws"
            yield Row(f"{name}, speed", label, seconds["numpy"] / mine, "× as fast", geometric)
            yield Row(name, label, mine / seconds["cipher"], "×", "its AES-256-CTR stream alone")
            yield Row(f"{name}, speed", label, seconds["opendp"] / mine, "× faster", "OpenDP")

    return run


BENCHMARKS = (
    Benchmark("sampler-1", _rows(Fraction(1))),
    Benchmark("sampler-6", _rows(Fraction(6))),
    Benchmark("sampler-7-3", _rows(Fraction(7, 3))),
    Benchmark("sampler-million", _rows(Fraction(10**6))),
)
