"""A process that runs one mechanism on one data set: requests come in, results go out.

Run as ``python -m tasks.evaluation.worker DATA MECHANISM``; a line of JSON each way. A process of
its own, so that peak memory is that of one mechanism, a solver that does not stop can be killed,
and libraries that cannot live together need not.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from pgsr_core.evaluation.contenders import (
    CONTENDERS,
    Contender,
    NotApplicable,
    Setting,
    TimedOut,
)
from pgsr_core.evaluation.datasets import EvaluationData, from_leaves
from pgsr_core.evaluation.metrics import constraint_violations, errors_by_level
from tasks.evaluation.catalogue import read_data
from tasks.evaluation.store import Outcome

WARM_UP_SECONDS = 10.0
STATUS = Path("/proc/self/status")
CLEAR_REFERENCES = Path("/proc/self/clear_refs")


def serve(data: str, mechanism: str, requests: TextIO, replies: TextIO) -> None:
    """Say what the data are like, then answer every request."""
    contender, truth = CONTENDERS[mechanism], read_data(data)
    warm_up(contender)
    _say(replies, facts(truth))
    for request in requests:
        _say(replies, run(contender, truth, **json.loads(request)))


def facts(data: EvaluationData) -> dict[str, Any]:
    """What is written down of a data set."""
    return {
        "levels": data.tree.levels,
        "regions": data.tree.regions,
        "leaves": len(data.tree.leaves),
        "largest_size": data.largest_size,
        "groups": int(data.truth[0].sum()),
        "public_units": data.empty_units is not None,
    }


def warm_up(contender: Contender) -> None:
    """Load kernels and libraries: the first run must not pay for them."""
    tiny = from_leaves("warm-up", [("a",), ("b",)], np.array([[4, 2, 1], [3, 0, 1]]))
    with suppress(TimedOut, NotApplicable):
        contender(Setting(tiny, Fraction(1), seed=1, time_limit=WARM_UP_SECONDS))


def run(
    contender: Contender, data: EvaluationData, *, epsilon: str, seed: int, time_limit: float
) -> dict[str, Any]:
    """Make one run; whatever the mechanism does, there is a result."""
    setting = Setting(data, Fraction(epsilon), seed=seed, time_limit=time_limit)
    before = _start_peak()
    try:
        answer = contender(setting)
    except TimedOut as error:
        return {"outcome": Outcome.TIMED_OUT, "seconds": time_limit, "note": str(error)}
    except NotApplicable as error:
        return {"outcome": Outcome.NOT_APPLICABLE, "note": str(error)}
    except Exception as error:  # of a solver that is compared: a result, too
        return {"outcome": Outcome.FAILED, "note": f"{type(error).__name__}: {error}"}
    memory = None if before is None else _status_bytes("VmHWM") - before
    levels = errors_by_level(data.tree, data.truth, answer.values, smallest_size=data.smallest_size)
    return {
        "outcome": Outcome.ANSWERED,
        "seconds": answer.seconds,
        "distance": answer.distance,
        "memory": memory,
        "violations": constraint_violations(data.tree, answer.values),
        "errors": [vars(level) for level in levels],
    }


def _start_peak() -> int | None:
    """Let the peak of memory start anew; bytes held now, or None where nobody counts them."""
    if not CLEAR_REFERENCES.exists():
        return None
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # lest the run reuse freed memory unseen
    CLEAR_REFERENCES.write_text("5")
    return _status_bytes("VmRSS")


def _status_bytes(field: str) -> int:
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _say(replies: TextIO, message: dict[str, Any]) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


def main() -> None:
    """Serve on standard input and output; what solvers print goes to standard error instead."""
    _, data, mechanism = sys.argv
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(data, mechanism, sys.stdin, replies)


if __name__ == "__main__":
    main()
