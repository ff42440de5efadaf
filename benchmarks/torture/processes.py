"""Forked processes that do one thing, say what came of it, and may be killed while they do it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn

from benchmarks.torture.driver import Protocol
from benchmarks.torture.evidence import Evidence, changed, look, unfinished, violations
from benchmarks.torture.rows import Trials


@dataclass(frozen=True)
class Ended:
    """How a process ended: with what it says, or killed (None)."""

    said: list[str] | None


def in_child(work: Callable[[], Iterable[str]]) -> Ended:
    """Run in a forked process; an error is something that it says."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _work_and_exit(work, write)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    killed = os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    if not killed and not said:
        return Ended(["the process died without a word"])
    return Ended(None if killed else json.loads(said))


def _work_and_exit(work: Callable[[], Iterable[str]], write: int) -> NoReturn:
    said: list[str] = []
    try:
        for word in work():
            said.append(word)  # kept one by one: an error must not take back what was said
    except BaseException as error:  # whatever it is, it is reported, and the process ends here
        said.append(f"{type(error).__name__}: {error}")
    os.write(write, json.dumps(said).encode())
    os._exit(0)


def rerun(driver: Protocol) -> list[str]:
    """Look at what an attempt left, run again in a new process, and say all that is wrong."""

    def work() -> Iterable[str]:
        def seen() -> Evidence:
            return look(driver.place, release=driver.release, population=driver.population)

        before = seen()
        yield from (f"left: {wrong}" for wrong in violations(before))
        try:
            driver.run()
        finally:
            after = seen()
        yield from violations(after)
        yield from unfinished(after)
        yield from changed(before, after)

    return in_child(work).said or []


def note_rerun(trials: Trials, trial: str, driver: Protocol) -> None:
    trials.note(trial, rerun(driver))
