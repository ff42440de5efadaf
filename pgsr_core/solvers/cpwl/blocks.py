"""Blocks of sizes, and how threads share them.

Threads only decide who computes a block, never what is computed: results are the same for any
number of them. Kernels release the interpreter's lock, so plain threads suffice, and callers may
themselves be threads (numba's own thread pool would not allow that everywhere).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numba

# Sizes solved side by side: wide enough for the vector loops to pay, narrow enough for a pool's
# leaves to stay in the first cache.
WIDEST = 64
# Widths are multiples of this, the 32-bit lanes of a vector register.
VECTOR = 8
# Runs of blocks for each thread: enough to balance sizes of unequal difficulty.
RUNS_A_THREAD = 4


@dataclass(frozen=True)
class Blocks:
    """Sizes cut into blocks of equal width (the last may be narrower)."""

    sizes: int
    threads: int = field(default_factory=numba.get_num_threads)

    @property
    def width(self) -> int:
        """Lanes of a block, including those of no size in the last one."""
        fewest = -(-self.sizes // WIDEST)
        return -(-self.sizes // (fewest * VECTOR)) * VECTOR

    @property
    def count(self) -> int:
        """Number of blocks."""
        return -(-self.sizes // self.width)

    def run(self, kernel: Callable[..., int], *arguments: Any, parts: int = 0) -> list[int]:
        """Call ``kernel(first, last, *arguments)`` on runs that cover all blocks.

        Where ``parts`` is given, runs cover 0..parts instead. Returns what the kernel returned.
        """
        count = parts or self.count
        if self.threads == 1 or count == 1:
            return [kernel(0, count, *arguments)]
        runs = min(count, self.threads * RUNS_A_THREAD)
        cuts = [count * run // runs for run in range(runs + 1)]
        with ThreadPoolExecutor(max_workers=self.threads) as workers:
            waiting = [
                workers.submit(kernel, first, last, *arguments)
                for first, last in itertools.pairwise(cuts)
            ]
            return [task.result() for task in waiting]
