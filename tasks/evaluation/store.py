"""Results of an evaluation in DuckDB: a row a run, a row a level of it, and what is missing.

Evaluation is not private: every error is a difference from the truth. The store says so itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgsr_core.errors import Refused, Unavailable
from pgsr_core.evaluation.metrics import LevelError
from tasks.evaluation.order import Order, Trial
from tasks.storage import duck

if TYPE_CHECKING:
    import duckdb

_one_at_a_time = threading.Lock()
NOT_PRIVATE = "evaluation: not private, for public or synthetic data only"


# The epsilons that are not tried any more; NULL: none is.
GIVEN_UP = """
SELECT epsilon FROM runs WHERE data = $data AND mechanism = $mechanism GROUP BY epsilon
HAVING sum(seconds) FILTER (outcome = 'answered') >= $patience
  OR bool_or(outcome = 'timed out' AND time_limit >= $limit)
UNION ALL
SELECT NULL FROM runs
WHERE data = $data AND mechanism = $mechanism AND outcome = 'not applicable'
UNION ALL
SELECT NULL FROM runs
WHERE mechanism = $mechanism
  AND starts_with($data, 'synthetic-') AND starts_with(data, 'synthetic-')
  AND split_part(data, '-', 2)::INTEGER < split_part($data, '-', 2)::INTEGER
  AND (outcome = 'not applicable' OR (outcome = 'timed out' AND time_limit >= $limit))
"""


class OtherEvaluation(Refused):
    """The folder holds results that do not go with the ones that are asked for."""

    def __init__(self, folder: Path, seed: str) -> None:
        super().__init__(
            f"{folder} holds results of seed {seed}. Remedy: take that seed, or another folder."
        )


class ResultsUnavailable(Unavailable):
    """The store of the results cannot be opened."""

    def __init__(self, store: Path) -> None:
        super().__init__(
            f"{store} cannot be opened: another evaluation has it, or its disk is full or not "
            "there. Remedy: wait for the other one to end, and run the same again."
        )


class Outcome(StrEnum):
    """How a run ended."""

    ANSWERED = "answered"
    TIMED_OUT = "timed out"
    NOT_APPLICABLE = "not applicable"
    FAILED = "failed"
    """It crashed; the next evaluation tries again."""


@dataclass(frozen=True)
class Result:
    """What came of a run.

    Attributes:
        outcome: how it ended.
        seconds: of post-processing.
        distance: squared, of the answer from what was measured.
        memory: peak bytes above what the process held before; None where not measured.
        violations: constraint violations of the answer.
        errors: of the answer, level by level.
        note: why there is no answer.
    """

    outcome: Outcome
    seconds: float | None = None
    distance: int | None = None
    memory: int | None = None
    violations: int | None = None
    errors: tuple[LevelError, ...] = ()
    note: str = ""


class Store:
    """The results in an open database."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def pending(self, order: Order, data: str, mechanism: str) -> list[Trial]:
        """The runs of a group that are still to be made, in order.

        A combination that timed out, or whose runs exhausted all patience, is not repeated; nor is
        a mechanism begun on a member of the series when a smaller one was too much for it.
        """
        done = {
            (epsilon, repetition)
            for epsilon, repetition in self._connection.execute(
                "SELECT epsilon, repetition FROM runs WHERE data = ? AND mechanism = ?"
                " AND outcome <> ? AND (outcome <> ? OR time_limit >= ?)",
                [data, mechanism, Outcome.FAILED, Outcome.TIMED_OUT, order.time_limit],
            ).fetchall()
        }
        given_up = self._given_up(order, data, mechanism)
        return [
            trial
            for trial in order.trials(data, mechanism)
            if (trial.epsilon, trial.repetition) not in done
            and trial.epsilon not in given_up
            and None not in given_up
        ]

    def _given_up(self, order: Order, data: str, mechanism: str) -> set[str | None]:
        """The ε that are not tried (again); None stands for all."""
        rows = self._connection.execute(
            GIVEN_UP,
            {
                "data": data,
                "mechanism": mechanism,
                "limit": order.time_limit,
                "patience": order.patience,
            },
        ).fetchall()
        return {epsilon for (epsilon,) in rows}

    def forget(self, order: Order) -> None:
        """Delete the runs of an order, to make them again."""
        for data, mechanism in order.groups():
            for table in ("errors", "runs"):
                self._connection.execute(
                    f"DELETE FROM {table} WHERE data = ? AND mechanism = ?",  # noqa: S608 - ours
                    [data, mechanism],
                )

    def describe(self, data: str, facts: Mapping[str, Any]) -> None:
        """Write down what a data set is like."""
        self._connection.execute(
            "INSERT OR REPLACE INTO data_sets VALUES ($data, $levels, $regions, $leaves,"
            " $largest_size, $groups, $public_units)",
            {"data": data, **facts},
        )

    def add(self, trial: Trial, result: Result, *, seed: int, time_limit: float) -> None:
        """Write a result down, whole or not at all."""
        key = list(trial)
        self._connection.begin()
        self._connection.execute(
            "DELETE FROM errors WHERE (data, mechanism, epsilon, repetition) = (?, ?, ?, ?)", key
        )
        self._connection.execute(
            "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                *key,
                str(seed),
                result.outcome,
                result.seconds,
                result.distance,
                result.memory,
                result.violations,
                time_limit,
                result.note,
            ],
        )
        for error in result.errors:
            self._connection.execute(
                "INSERT INTO errors VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [*key, error.level, error.l1, error.earth_mover, error.range_error],
            )
        self._connection.commit()

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """The answer to a query, a mapping a row."""
        found = self._connection.execute(query, list(parameters))
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def prepare_store(order: Order) -> None:
    """Make the tables and views of an order's results where they are not there.

    Raises:
        OtherEvaluation: there are results of another seed.
        ResultsUnavailable: it cannot be opened.
    """
    schema = (files(__package__) / "schema.sql").read_text(encoding="utf-8")
    with _connected(order.store) as connection:
        connection.execute(schema)
        connection.execute(
            "INSERT OR IGNORE INTO about VALUES ('about', ?), ('seed', ?)",
            [NOT_PRIVATE, str(order.seed)],
        )
        [(seed,)] = connection.execute("SELECT value FROM about WHERE key = 'seed'").fetchall()
        if seed != str(order.seed):
            raise OtherEvaluation(order.store.parent, seed)


@contextmanager
def open_store(order: Order) -> Iterator[Store]:
    """Open the results of an order for a moment; other threads wait.

    Raises:
        ResultsUnavailable: it cannot be opened.
    """
    with _one_at_a_time, _connected(order.store) as connection:
        yield Store(connection)


@contextmanager
def _connected(store: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    try:
        with duck.connect(store) as connection:
            yield connection
    except (duck.StoreUnavailable, duck.StoreUnusable):
        raise ResultsUnavailable(store) from None
