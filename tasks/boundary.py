"""The boundary of a stage: Prefect on one side, possibly confidential errors on the other."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeVar

from prefect import Task, runtime, task
from prefect.cache_policies import NO_CACHE

from pgsr_core.errors import PgsrError
from tasks import artifacts, failpoints, logs, operator, outside
from tasks.observations import observe
from tasks.run import RunRef
from tasks.storage.zones import PRIVATE_UMASK

P = ParamSpec("P")
R = TypeVar("R")
RETRY_DELAYS = [2.0, 10.0]


class StageFailed(Exception):
    """A stage failed; carries the stage and what may be said of the error, never its text.

    Prefect keeps messages and tracebacks of exceptions in clear, so the original is written to
    the operator's log and shown on the operator's terminal, and this one takes its place.
    """

    def __init__(self, stage: str, error: str, exit_code: int | None) -> None:
        super().__init__(f"stage {stage} failed: {error}; the operator's log says more")
        self.stage = stage
        self.error = error
        self.exit_code = exit_code

    @property
    def expected(self) -> bool:
        """Whether the cause is known (bad input, a failed gate); trying again changes nothing."""
        return self.exit_code is not None

    def __reduce__(self) -> tuple[type[StageFailed], tuple[str, str, int | None]]:
        return type(self), (self.stage, self.error, self.exit_code)


def stage(
    name: str, *, retry: bool
) -> Callable[[Callable[Concatenate[RunRef, P], R]], Task[Concatenate[RunRef, P], R]]:
    """Make a Prefect task of a stage: opaque arguments, no persisted result, scrubbed errors.

    Args:
        name: as in the run's status and in Prefect's pages.
        retry: try again, with delays, after an unexpected error. Never left of the barrier:
            how often a stage was tried would tell of the data, and noise is drawn once.
    """

    def decorate(
        function: Callable[Concatenate[RunRef, P], R],
    ) -> Task[Concatenate[RunRef, P], R]:
        @task(
            name=name,
            task_run_name=name,
            retries=len(RETRY_DELAYS) if retry else 0,
            retry_delay_seconds=RETRY_DELAYS,
            retry_condition_fn=_worth_retrying,
            persist_result=False,
            cache_policy=NO_CACHE,
            log_prints=False,
        )
        @functools.wraps(function)
        def bounded(run: RunRef, *args: P.args, **kwargs: P.kwargs) -> R:
            outcome = _attempt(name, run, lambda: function(run, *args, **kwargs))
            if isinstance(outcome, StageFailed):
                # Raised outside any except block: the original is not chained to it.
                raise outcome
            return outcome

        return bounded

    return decorate


def public_stage(name: str, *, run_name: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Make a Prefect task of a stage that sees public or made-up data only, and belongs to no run.

    Errors come out as they are: there is nothing in them to hide.

    Args:
        name: as in Prefect's pages.
        run_name: a template over the stage's arguments.
    """

    return task(
        name=name,
        task_run_name=run_name,
        persist_result=False,
        cache_policy=NO_CACHE,
        log_prints=False,
    )


def _attempt(name: str, run: RunRef, action: Callable[[], R]) -> R | StageFailed:
    """Run a stage's work and return its outcome, or what may be said of its failure."""
    os.umask(PRIVATE_UMASK)
    operator.terminal().stage_started(name)
    started = time.monotonic()
    _log("stage started", name, run)
    try:
        run.note(state="running", stage=name)
        failpoints.reach(f"{name}.started")
        outcome = action()
    except Exception as error:
        failed = _failed(name, run, error)
        _ended(name, run, started, error=failed.error)
        return failed
    failpoints.reach(f"{name}.finished")
    _ended(name, run, started)
    artifacts.stage_done(name)
    return outcome


def _failed(name: str, run: RunRef, error: Exception) -> StageFailed:
    """Tell the operator and the status; that their disk is full must not hide what happened."""
    with suppress(PgsrError):
        operator.log_failure(run.folder.operator_log, name, error)
    operator.terminal().stage_failed(name, _without_frames(error))
    with suppress(PgsrError):
        run.note(state="failed", stage=name, error=outside.name_of(name, error))
    return StageFailed(name, outside.name_of(name, error), outside.exit_code_of(name, error))


def _ended(name: str, run: RunRef, started: float, *, error: str | None = None) -> None:
    seen = observe(
        run,
        name,
        seconds=time.monotonic() - started,
        error=error,
        flow_run=runtime.flow_run.id,
    )
    took = {"seconds": round(seen.seconds, 3), "peak_memory_bytes": seen.peak_bytes}
    if error is None:
        _log("stage finished", name, run, took)
    else:
        _log("stage failed", name, run, {**took, "error": error}, level=logging.ERROR)


def _log(
    event: str,
    name: str,
    run: RunRef,
    facts: Mapping[str, object] = MappingProxyType({}),
    *,
    level: int = logging.INFO,
) -> None:
    names = {"product": run.product, "release": run.release, "stage": name}
    logs.say(event, level=level, **names, flow_run=runtime.flow_run.id, **facts)


def _without_frames(error: Exception) -> Exception:
    """Let go of the frames behind an error: they hold open databases and confidential tables."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


def _worth_retrying(_task: Any, _run: Any, state: Any) -> bool:
    failure = state.result(raise_on_failure=False)
    return not (isinstance(failure, StageFailed) and failure.expected)
