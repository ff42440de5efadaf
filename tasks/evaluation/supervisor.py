"""Workers and their time limits: a run that does not end is ended, and the next one begins anew."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import IO, Any, Self

from pgsr_core.evaluation.metrics import LevelError
from tasks.evaluation.store import Outcome, Result

# On top of a run's own limit: noise, metrics, and a solver that is slow to stop.
GRACE_FACTOR, GRACE_SECONDS = 1.2, 60.0
START_SECONDS = 600.0
LONGEST_NOTE = 300
# As in the paper: every mechanism has a single core.
ONE_THREAD = dict.fromkeys(
    ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
)


_working: set[subprocess.Popen[bytes]] = set()


class WorkerDied(Exception):
    """The process ended by itself, or was ended as it did not answer in time."""

    def __init__(self, reason: str, *, timed_out: bool) -> None:
        super().__init__(reason)
        self.timed_out = timed_out


class Supervisor:
    """Has a mechanism run on a data set in a process of its own; a context that ends it.

    Attributes:
        facts: what the data set is like, from the first run on.
    """

    def __init__(self, data: str, mechanism: str) -> None:
        self._command = [sys.executable, "-m", "tasks.evaluation.worker", data, mechanism]
        self._worker: subprocess.Popen[bytes] | None = None
        self.facts: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._errors = tempfile.TemporaryFile()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._errors.close()

    def run(self, *, epsilon: str, seed: int, time_limit: float) -> Result:
        """Make one run. There is a result, whatever happens; a worker that died is replaced."""
        request = {"epsilon": epsilon, "seed": seed, "time_limit": time_limit}
        try:
            requests, replies = self._pipes()
            with suppress(BrokenPipeError):  # then there is no answer either
                requests.write(json.dumps(request).encode() + b"\n")
                requests.flush()
            reply = self._answer(replies, time_limit * GRACE_FACTOR + GRACE_SECONDS)
        except WorkerDied as death:
            self._end()
            if death.timed_out:
                return Result(Outcome.TIMED_OUT, seconds=time_limit, note=str(death))
            return Result(Outcome.FAILED, note=str(death))
        errors = tuple(LevelError(**level) for level in reply.pop("errors", ()))
        return Result(outcome=Outcome(reply.pop("outcome")), errors=errors, **reply)

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """The worker's input and output; started, and ready for requests, if there is none."""
        fresh = self._worker is None
        if self._worker is None:
            self._worker = subprocess.Popen(  # noqa: S603 - our own module, names of ours
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, **ONE_THREAD},
            )
            _working.add(self._worker)
        requests, replies = self._worker.stdin, self._worker.stdout
        if requests is None or replies is None:
            raise RuntimeError("a worker is started with pipes")
        if fresh:
            self.facts = self._answer(replies, START_SECONDS)
        return requests, replies

    def _answer(self, replies: IO[bytes], seconds: float) -> dict[str, Any]:
        if not select.select([replies], [], [], seconds)[0]:
            raise WorkerDied(f"ended after {seconds:.0f} s without an answer", timed_out=True)
        line = replies.readline()
        if not line:
            raise WorkerDied(self._last_words(), timed_out=False)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        """How the process ended, and the last line that it wrote to standard error."""
        code = None if self._worker is None else self._worker.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"the process ended with {code}: {lines[-1] if lines else ''}"[:LONGEST_NOTE]

    def _end(self) -> None:
        """Nothing of a worker outlives its answers: to kill it loses nothing."""
        if self._worker is None:
            return
        self._worker.kill()
        self._worker.wait()
        _working.discard(self._worker)
        for stream in (self._worker.stdin, self._worker.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self._worker = None


def end_workers() -> None:
    """Kill the workers of all threads."""
    for worker in tuple(_working):
        worker.kill()
