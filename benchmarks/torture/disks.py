"""A disk that fails at the n-th call: the run says so and stops, and the next one succeeds."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import duckdb
from sqlalchemy.exc import OperationalError

from benchmarks.torture.boundaries import CLEANING, Counter, watch
from benchmarks.torture.driver import Places, Protocol
from benchmarks.torture.failpoints import boundaries_of
from benchmarks.torture.processes import in_child, rerun
from benchmarks.torture.rows import Effort, Row, Torture, Trials
from pgsr_core.errors import PgsrError
from tasks.publication import place as publication

IGNORED = CLEANING | {"statement"}
# A full disk and a bad block may be over with the next call; a read-only one stays so.
FAILURES = {"ENOSPC": False, "EIO": False, "EROFS": True}


def failing(name: str) -> Callable[[str], None]:
    """What a boundary of each kind raises when the disk under it fails."""
    number = getattr(errno, name)

    def fail(kind: str) -> None:
        if kind in IGNORED:
            return
        if kind == "commit":
            full = sqlite3.OperationalError("database or disk is full")
            raise OperationalError("COMMIT", None, full)
        if kind == "duckdb":
            raise duckdb.IOException(os.strerror(number))
        if kind == "duckdb commit":
            raise duckdb.TransactionException(f"Failed to commit: {os.strerror(number)}")
        raise OSError(number, os.strerror(number))

    return fail


def said_of(driver: Protocol) -> Iterator[str]:
    """Run, and say what is wrong with how it ended: it must be an error with a remedy."""
    try:
        replace(driver).run()
    except PgsrError as error:
        if "Remedy: " not in str(error):
            yield f"{type(error).__name__} names no remedy"
    except Exception as error:  # a stop, but one that the command line would show as a traceback
        yield f"an untyped {type(error).__name__}"
    else:
        yield "the failure was passed over"


def fail_at(driver: Protocol, number: int, kind: str, name: str) -> list[str]:
    """Run with a disk that fails at one boundary, which must be of the kind that is expected."""

    def work() -> Iterable[str]:
        counter = Counter(number, failing(name), and_after=FAILURES[name])
        watch(counter)
        yield from said_of(driver)
        if counter.kinds[number : number + 1] != [kind]:
            yield "another boundary failed than was meant to"

    return in_child(work).said or []


def fail_at_every(places: Places, *, step: int) -> Trials:
    """Fail in every way at every boundary (or every step-th), then run again."""
    trials = Trials()
    boundaries = boundaries_of(lambda: Protocol(places.fresh()))
    # The driver's named points are no calls to a disk; without them the rest keeps its order.
    passed = [kind for kind in boundaries if not kind.startswith("at ")]
    chosen = [n for n, kind in enumerate(passed) if kind not in IGNORED][::step]
    for number in chosen:
        for name in FAILURES:
            driver = Protocol(places.fresh())
            wrong = fail_at(driver, number, passed[number], name)
            trials.note(f"{name} at {number} ({passed[number]})", [*wrong, *rerun(driver)])
    return trials


def run(effort: Effort) -> Iterator[Row]:
    places = Places(effort.folder / "places")
    trials = fail_at_every(places, step=effort.times(1, 16))
    mutant = fail_deaf_publication(places)
    yield Row(
        "write, fsync, rename, commit failing at the n-th call (ENOSPC, EIO, EROFS)",
        trials.count("failures"),
        "a typed error at every n, rerun succeeds",
        bool(trials.tried) and not trials.violations,
        f"failed fsync passed over: {mutant.count('failures')}",
        bool(mutant.violations),
        trials.violations,
    )


def fail_deaf_publication(places: Places) -> Trials:
    """Fail the fsync of the public folder after the rename, with a publication that is deaf."""
    trials = Trials()
    driver = Protocol(places.fresh())

    def work() -> Iterable[str]:
        original = publication._flush

        def deaf(path: object) -> None:
            try:
                original(path)  # type: ignore[arg-type]
            except OSError:
                return

        publication._flush = deaf  # type: ignore[assignment]
        renamed = False

        def fail(kind: str) -> None:
            nonlocal renamed
            if kind == "fsync" and renamed:
                renamed = False
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            renamed = renamed or kind == "rename"

        watch(fail)
        yield from said_of(driver)

    trials.note("EIO", in_child(work).said or [])
    return trials


TORTURE = Torture("disks", run)
