"""Timing: best of several rounds, with all candidates in each round."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numba
import numpy as np
from numpy.typing import NDArray

TWO_THREADS = min(2, os.cpu_count() or 1, int(numba.config.NUMBA_NUM_THREADS))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run compiled kernels on this many threads."""
    before = numba.get_num_threads()
    numba.set_num_threads(count)
    try:
        yield
    finally:
        numba.set_num_threads(before)


def on_threads(count: int, call: Callable[[], object]) -> Callable[[], None]:
    """The same call, on a number of threads of its own."""

    def run() -> None:
        with threads(count):
            call()

    return run


def best_seconds(
    candidates: Mapping[str, Callable[[], object]], *, repetitions: int
) -> dict[str, float]:
    """The least time of each candidate over several rounds, after one call to warm up.

    Candidates take turns within a round, so that all of them see the same machine: a slow
    minute of a shared host hits both sides of a ratio.
    """
    for call in candidates.values():
        call()
    best = dict.fromkeys(candidates, float("inf"))
    for _ in range(repetitions):
        for name, call in candidates.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def plain_copy(source: NDArray[np.int64]) -> Callable[[], None]:
    """A copy of the array into memory that is already mapped: what moving the data costs."""
    target = np.zeros_like(source)

    def run() -> None:
        np.copyto(target, source)

    return run
