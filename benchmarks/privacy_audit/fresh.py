"""``python -m benchmarks.privacy_audit.fresh``: what a new process draws, before and after a fork.

It imports nothing but the sampler, so that it starts quickly and forks without threads.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from benchmarks.privacy_audit.buggy_samplers import BUGGY_SAMPLERS, with_sampler_bug
from pgsr_core.noise.catalogue import ReleaseSampler

CELLS = 64
SCALE = Fraction(1000)
CHILDREN = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a list of draws as JSON: the process's own, its children's, and its own again."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.privacy_audit.fresh")
    parser.add_argument("--sampler", type=ReleaseSampler, default=ReleaseSampler.OPENDP)
    parser.add_argument("--bug", choices=BUGGY_SAMPLERS)
    options = parser.parse_args(arguments)
    with with_sampler_bug(options.bug) if options.bug else contextlib.nullcontext():
        sampler = options.sampler.make()

        def draw() -> list[int]:
            zeros = np.zeros(CELLS, dtype=np.int64)
            return [int(value) for value in sampler.add_noise(zeros, scale=SCALE)]

        draws = [draw(), *(_in_child(draw) for _ in range(CHILDREN)), draw()]
    json.dump(draws, sys.stdout)
    return 0


def _in_child(draw: Callable[[], list[int]]) -> list[int]:
    """What a forked child draws."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w") as stream:
            json.dump(draw(), stream)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        drawn: list[int] = json.load(stream)
    os.waitpid(child, 0)
    return drawn


if __name__ == "__main__":
    sys.exit(main())
