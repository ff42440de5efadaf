"""Processes: what a new one draws, and what it and its children draw after a fork, differs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.privacy_audit.fresh import SCALE
from benchmarks.privacy_audit.verdicts import Verdict, worst
from pgsr_core.noise.catalogue import ReleaseSampler

ROOT = Path(__file__).parents[2]
PROCESSES = 2
DRAWS = ("at first", "in one child", "in another child", "after both")
Drawn = dict[str, NDArray[np.int64]]


def draw_in_new_processes(*, sampler: ReleaseSampler, bug: str | None) -> Drawn:
    """Start new processes one beside the other; what each draws, by process and moment."""
    command = [sys.executable, "-m", "benchmarks.privacy_audit.fresh", "--sampler", sampler]
    command += ["--bug", bug] if bug else []
    started = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)  # noqa: S603 (ours)
        for _ in range(PROCESSES)
    ]
    drawn: Drawn = {}
    for number, process in enumerate(started, start=1):
        output, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"a new process could not draw: exit code {process.returncode}")
        for moment, values in zip(DRAWS, json.loads(output), strict=True):
            drawn[f"process {number}, {moment}"] = np.array(values)
    return drawn


def differ(drawn: Drawn) -> Verdict:
    """No two draws agree in more cells than chance has it.

    Two independent draws agree in a cell with probability Σ P(X = v)²
    = (1 − a)² (1 + a²) / ((1 + a)² (1 − a²)), a = exp(−1/scale), whoever drew them.
    """
    return worst(
        {f"{one} is {other}": _p_value(drawn[one], drawn[other]) for one, other in _pairs(drawn)}
    )


def _pairs(drawn: Drawn) -> Sequence[tuple[str, str]]:
    return list(combinations(drawn, 2))


def _p_value(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    decay = math.exp(-1 / float(SCALE))
    chance = (1 - decay) ** 2 * (1 + decay**2) / ((1 + decay) ** 2 * (1 - decay**2))
    agreeing = int((one == other).sum())
    return float(stats.binom.sf(agreeing - 1, len(one), chance))
