"""What is to be evaluated: an order decides everything, and the runs only obey."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from pgsr_core.errors import PgsrError
from pgsr_core.evaluation.contenders import CONTENDERS
from pgsr_core.evaluation.published import AS_PRINTED, CENSUS
from tasks.evaluation.catalogue import ALL, CATALOGUE, expand

# The paper's exact programs and tables, for small data only.
EXACT = ("exact-counts", "constraint-tables", "exact-cumulative")
# Those by generic solvers: minutes for a run on data of the paper's size, or no end at all.
SLOW = (*EXACT, *AS_PRINTED.values())
SLOW_REPETITIONS = 5
MOST_REPETITIONS = 10_000


class BadOrder(PgsrError):
    """An evaluation was asked for that cannot be made."""


class Trial(NamedTuple):
    """One run of a mechanism on a data set."""

    data: str
    mechanism: str
    epsilon: str
    repetition: int


class Order(BaseModel):
    """An evaluation: where its results are, and what is to be in them.

    Attributes:
        folder: of the results.
        data: names of data sets.
        mechanisms: names of contenders.
        slow: those of them that are run only where it is worth the time.
        epsilons: each is a budget for all levels together.
        repetitions: of every combination, but for slow mechanisms.
        seed: from which every run's own seed is derived.
        time_limit: seconds for one run.
        patience: seconds for all runs of one combination; after that it is not repeated again.
        page: a document whose marked parts are filled in with the results.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str
    data: tuple[str, ...]
    mechanisms: tuple[str, ...]
    slow: tuple[str, ...] = ()
    epsilons: tuple[str, ...]
    repetitions: int
    seed: int
    time_limit: float
    patience: float
    page: str | None = None

    @property
    def store(self) -> Path:
        """The file of the results."""
        return Path(self.folder) / "results.duckdb"

    def groups(self) -> Iterator[tuple[str, str]]:
        """Every data set with every mechanism that is to be run on it."""
        for data in self.data:
            for mechanism in self.mechanisms:
                if mechanism not in self.slow or self._worth_the_time(data, mechanism):
                    yield data, mechanism

    def _worth_the_time(self, data: str, mechanism: str) -> bool:
        """Small data, for every solver; and one census, for programs that Table 1 is of.

        Not the taxi data, whose printed numbers nobody can match.
        """
        if CATALOGUE[data].exact_epsilon is not None:
            return True
        censuses = [name for name in self.data if CATALOGUE[name].stands_for == CENSUS]
        return mechanism not in EXACT and data in censuses[:1]

    def trials(self, data: str, mechanism: str) -> list[Trial]:
        """The runs of a group, one repetition of every ε after the other.

        Few repetitions say enough of mechanisms that take long, and of exact programs one ε. What
        they are compared with is run for that ε as well.
        """
        epsilons, repetitions = self.epsilons, self.repetitions
        exact_epsilon = CATALOGUE[data].exact_epsilon
        if mechanism in SLOW:
            repetitions = min(repetitions, SLOW_REPETITIONS)
        if exact_epsilon is not None:
            epsilons = tuple(dict.fromkeys((*epsilons, exact_epsilon)))
            if mechanism in EXACT:
                epsilons = (exact_epsilon,)
        return [
            Trial(data, mechanism, epsilon, repetition)
            for repetition in range(repetitions)
            for epsilon in epsilons
        ]

    def seed_of(self, trial: Trial) -> int:
        """The seed of a run: not of its mechanism, so that all of them meet the same noise.

        Mechanisms that measure the same query with the same split then differ by what they make of
        one and the same measurement, and differences of errors have little variance.
        """
        key = f"{self.seed}/{trial.data}/{trial.epsilon}/{trial.repetition}"
        return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")


def make_order(
    *,
    folder: Path,
    data: str,
    mechanisms: str | None,
    epsilons: str,
    repetitions: int,
    seed: int,
    time_limit: float,
    patience: float | None = None,
    page: Path | None = None,
) -> Order:
    """Check what was asked for and spell it out; lists are comma-separated.

    Patience is as long as the time limit unless it is given.

    Raises:
        BadOrder: a mechanism or number is none, or out of range.
        UnknownData: a data set is not in the catalogue.
        RealDataMissing: its table is not here.
    """
    if not 1 <= repetitions <= MOST_REPETITIONS:
        raise BadOrder(
            f"repetitions must be 1 to {MOST_REPETITIONS:,}, got {repetitions}. "
            "Remedy: the paper takes 30."
        )
    patience = time_limit if patience is None else patience
    for name, seconds in (("time limit", time_limit), ("patience", patience)):
        if not seconds > 0:
            raise BadOrder(f"the {name} must be above 0 s, got {seconds:g}. Remedy: raise it.")
    if page is not None and not page.is_file():
        raise BadOrder(f"{page} is not there to be filled in. Remedy: name a document.")
    names, slow = _mechanisms(mechanisms)
    return Order(
        folder=str(folder.absolute()),
        data=expand(_listed(data)),
        mechanisms=names,
        slow=slow,
        epsilons=tuple(_epsilon(text) for text in _listed(epsilons)),
        repetitions=repetitions,
        seed=seed,
        time_limit=time_limit,
        patience=patience,
        page=None if page is None else str(page.absolute()),
    )


def _mechanisms(listed: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of mechanisms, and the slow ones of them unless they were asked for by name."""
    if listed is None:
        return tuple(name for name in CONTENDERS if name not in SLOW), ()
    if listed == ALL:
        return tuple(CONTENDERS), SLOW
    names = _listed(listed)
    for name in names:
        if name not in CONTENDERS:
            raise BadOrder(
                f"there is no mechanism {name}. Remedy: choose from {', '.join(CONTENDERS)} or all."
            )
    return tuple(dict.fromkeys(names)), ()


def _epsilon(text: str) -> str:
    """The shortest decimal of an ε: results of 1 and of 1.0 are the same."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal(0)
    if not (value.is_finite() and value > 0):
        raise BadOrder(f"epsilon must be above 0, got {text}. Remedy: list some, as 0.1,0.5,1.")
    return f"{value.normalize():f}"


def _listed(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise BadOrder("an empty list was given. Remedy: name one, or leave the option out.")
    return names
