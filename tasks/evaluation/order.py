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
from tasks.evaluation.catalogue import ALL, expand, is_series

# The paper's exact programs and tables: ruled out by its Figure 8 for all other data.
SERIES_ONLY = ("exact-counts", "constraint-tables", "exact-cumulative")
SERIES_EPSILON = "0.5"
SERIES_REPETITIONS = 5
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
        series_only: those of them that are run on the series of growing N alone.
        epsilons: each is a budget for all levels together.
        repetitions: of every combination.
        seed: from which every run's own seed is derived.
        time_limit: seconds for one run, and for all repetitions of one combination together.
        page: a document whose marked parts are filled in with the results.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str
    data: tuple[str, ...]
    mechanisms: tuple[str, ...]
    series_only: tuple[str, ...] = ()
    epsilons: tuple[str, ...]
    repetitions: int
    seed: int
    time_limit: float
    page: str | None = None

    @property
    def store(self) -> Path:
        """The file of the results."""
        return Path(self.folder) / "results.duckdb"

    def groups(self) -> Iterator[tuple[str, str]]:
        """Every data set with every mechanism that is to be run on it."""
        for data in self.data:
            for mechanism in self.mechanisms:
                if is_series(data) or mechanism not in self.series_only:
                    yield data, mechanism

    def trials(self, data: str, mechanism: str) -> list[Trial]:
        """The runs of a group, one repetition of every ε after the other.

        The series is there for run times: one ε and few repetitions say enough of those.
        """
        epsilons, repetitions = self.epsilons, self.repetitions
        if is_series(data):
            epsilons = (SERIES_EPSILON,)
            repetitions = min(repetitions, SERIES_REPETITIONS)
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
    page: Path | None = None,
) -> Order:
    """Check what was asked for and spell it out; lists are comma-separated.

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
    if not time_limit > 0:
        raise BadOrder(f"the time limit must be above 0 s, got {time_limit:g}. Remedy: raise it.")
    if page is not None and not page.is_file():
        raise BadOrder(f"{page} is not there to be filled in. Remedy: name a document.")
    names, series_only = _mechanisms(mechanisms)
    return Order(
        folder=str(folder.absolute()),
        data=expand(_listed(data)),
        mechanisms=names,
        series_only=series_only,
        epsilons=tuple(_epsilon(text) for text in _listed(epsilons)),
        repetitions=repetitions,
        seed=seed,
        time_limit=time_limit,
        page=None if page is None else str(page.absolute()),
    )


def _mechanisms(listed: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of mechanisms, and which of them are for the series alone."""
    if listed is None:
        return tuple(name for name in CONTENDERS if name not in SERIES_ONLY), ()
    if listed == ALL:
        return tuple(CONTENDERS), SERIES_ONLY
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
