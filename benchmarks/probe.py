"""One measurement in a fresh process: peak memory of a call, or the time of a first call.

Run as ``python -m benchmarks.probe memory|first-call SOLVER SHAPE``; prints one JSON object.
Memory and compilation are properties of a process: neither can be measured twice in one.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import workloads
from benchmarks.workloads import Shape, Workload

SOLVERS = {"CPWL": "cpwl", "isotonic": "isotonic", "projection": "projection"}
SHAPES = {
    "us": workloads.US,
    "taxi-blocks": workloads.TAXI_BLOCKS,
    "tiny": workloads.tiny(workloads.US),
}


def probe(
    what: str, solver: str, shape: str, *, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run one measurement in a process of its own.

    Raises:
        RuntimeError: the process failed; the message holds its standard error.
    """
    command = [sys.executable, "-m", "benchmarks.probe", what, solver, shape]
    done = subprocess.run(  # noqa: S603 - our own module, fixed arguments
        command, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[2:])} failed:\n{done.stderr}")
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def _call(solver: str, shape: Shape) -> tuple[Workload, Callable[[], object]]:
    make = workloads.counts if solver == "CPWL" else workloads.cumulative
    load = make(shape, scale=6)
    return load, importlib.import_module(f"benchmarks.{SOLVERS[solver]}").solver(load)


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}: memory is measured on Linux only")


def _release_free_memory() -> None:
    """Hand freed memory back to the system, lest the measured call reuse it unseen."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _memory(solver: str, shape: Shape) -> dict[str, Any]:
    _, warm_up = _call(solver, replace(shape, sizes=max(10, shape.sizes // 8)))
    warm_up()
    load, call = _call(solver, shape)
    _release_free_memory()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _status_bytes("VmRSS")
    result = call()
    extra = _status_bytes("VmHWM") - before
    del result
    return {"label": load.label, "input_bytes": load.noisy.nbytes, "extra_bytes": extra}


def _first_call(solver: str, shape: Shape) -> dict[str, Any]:
    load, call = _call(solver, shape)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return {"label": load.label, "first_seconds": seconds[0], "second_seconds": seconds[1]}


if __name__ == "__main__":
    _, chosen, solver_name, shape_name = sys.argv
    measure = {"memory": _memory, "first-call": _first_call}[chosen]
    print(json.dumps(measure(solver_name, SHAPES[shape_name])))
