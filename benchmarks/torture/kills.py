"""`kill -9` at random moments between the reservation and the end of publication."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from benchmarks.torture.driver import Places, Protocol
from benchmarks.torture.mutants import UnhurriedTwoTransactions
from benchmarks.torture.processes import note_rerun
from benchmarks.torture.rows import Effort, Row, Torture, Trials

BEGUN, ENDED = b"(", b")"
MOST_TRIES = 3


def attempt(driver: Protocol, delay: float | None) -> tuple[bool, float]:
    """Run in a process and kill it that long after it went into the protocol (None: never).

    Returns:
        whether it was killed inside the protocol, and how long it was inside.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _run_and_exit(driver, write)
    os.close(write)
    begun = os.read(read, 1)
    start = time.perf_counter()
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    rest = os.read(read, 1)
    spent = time.perf_counter() - start
    os.waitpid(child, 0)
    os.close(read)
    return begun == BEGUN and rest != ENDED, spent


def _run_and_exit(driver: Protocol, write: int) -> None:
    signs = {"ingested": BEGUN, "published": ENDED}
    try:
        replace(driver, reach=lambda at: os.write(write, signs.get(at, b"")) and None).run()
    finally:
        os._exit(0)


def kill_at_random(places: Places, kind: type[Protocol], *, kills: int) -> Trials:
    """Kill that many attempts inside the protocol, each followed by a rerun."""
    usual = median(attempt(kind(places.fresh()), None)[1] for _ in range(3))
    chance = random.Random(5)  # noqa: S311 (when to kill)
    trials = Trials()
    for _ in range(MOST_TRIES * kills):
        if trials.tried == kills:
            break
        driver = kind(places.fresh())
        inside, _ = attempt(driver, chance.uniform(0, usual))
        if inside:
            note_rerun(trials, f"kill {trials.tried}", driver)
    return trials


def run(effort: Effort) -> Iterator[Row]:
    places = Places(effort.folder / "places")
    kills = effort.times(200, 4)
    trials = kill_at_random(places, Protocol, kills=kills)
    mutant = kill_at_random(places, UnhurriedTwoTransactions, kills=effort.times(20, 12))
    yield Row(
        "random kill -9 inside the protocol",
        trials.count("effective kills"),
        f"≥ {kills} effective, 0 violations",
        trials.tried >= kills and not trials.violations,
        f"two transactions, a while apart: {mutant.count('kills')}",
        bool(mutant.violations),
        trials.violations,
    )


TORTURE = Torture("kills", run)
