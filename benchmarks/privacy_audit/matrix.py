"""The matrix: rows of bugs, columns of tests, in each cell how many rounds raised the alarm."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numba

from benchmarks.privacy_audit.bugs import BUGS
from benchmarks.privacy_audit.rounds import TESTS, Bench, Round
from benchmarks.privacy_audit.verdicts import Verdict
from pgsr_core.noise.catalogue import ReleaseSampler


@dataclass(frozen=True)
class Subject:
    """What is audited: the product with a sampler, sound or with a bug planted."""

    name: str
    what: str
    sampler: ReleaseSampler = ReleaseSampler.OPENDP
    bug: str | None = None


@dataclass
class Row:
    """The alarms of one subject.

    Attributes:
        rounds: how many there were.
        alarms: test → in how many rounds it raised the alarm.
        caught: in how many rounds any test did.
        smallest: test → its smallest p-value, and where it was seen.
    """

    subject: Subject
    rounds: int = 0
    alarms: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TESTS, 0))
    caught: int = 0
    smallest: dict[str, tuple[float, str]] = field(default_factory=dict)

    def note(self, verdicts: Mapping[str, Verdict]) -> None:
        """One more round."""
        self.rounds += 1
        self.caught += any(verdict.alarm for verdict in verdicts.values())
        for test, verdict in verdicts.items():
            self.alarms[test] += verdict.alarm
            seen = verdict.p_value, verdict.where
            self.smallest[test] = min(self.smallest.get(test, seen), seen)

    @property
    def holds(self) -> bool:
        """Never an alarm for a sound subject, always one for a bug."""
        return self.caught == (self.rounds if self.subject.bug else 0)

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.subject.name,
            "what": self.subject.what,
            "planted": self.subject.bug is not None,
            "sampler": self.subject.sampler,
            "rounds": self.rounds,
            "caught": self.caught,
            "holds": self.holds,
            "alarms": self.alarms,
            "smallest_p_value": {
                test: {"p_value": p_value, "where": where}
                for test, (p_value, where) in self.smallest.items()
            },
        }


def subjects() -> list[Subject]:
    """The sound mechanism with each sampler, then the bugs."""
    sound = [Subject(f"sound, {name}", "the product as it is", name) for name in ReleaseSampler]
    return sound + [Subject(bug.name, bug.what, bug=bug.name) for bug in BUGS.values()]


def idle_tests(rows: Iterable[Row]) -> list[str]:
    """The tests that caught no bug in every round; a test without power proves nothing."""
    planted = [row for row in rows if row.subject.bug]
    return [
        test
        for test in TESTS
        if not any(row.rounds and row.alarms[test] == row.rounds for row in planted)
    ]


class _Workbench:
    """The bench of the last subject in this process: a row's rounds share their set-up."""

    def __init__(self) -> None:
        self._subject: Subject | None = None
        self._planted = ExitStack()
        self._bench: Bench

    def of(self, subject: Subject, folder: Path) -> Bench:
        if subject != self._subject:
            self.clear()
            bug = BUGS[subject.bug] if subject.bug else None
            if bug:
                self._planted.enter_context(bug.plant())
            own = self._planted.enter_context(tempfile.TemporaryDirectory(dir=folder))
            self._bench = Bench(
                Path(own),
                sampler=subject.sampler,
                sampler_bug=bug.of_the_sampler if bug else None,
            )
            self._subject = subject
        return self._bench

    def clear(self) -> None:
        self._planted.close()
        self._subject = None


_workbench = _Workbench()


def prepare_process() -> None:
    """Make a worker of this process: one thread, and no installation but the audit's own."""
    numba.set_num_threads(1)
    for name in [name for name in os.environ if name.startswith("PGSR_")]:
        del os.environ[name]


def judge(subject: Subject, folder: Path) -> dict[str, Verdict]:
    """One round: collect, and ask every test."""
    collected = Round(_workbench.of(subject, folder))
    return {name: test(collected) for name, test in TESTS.items()}
