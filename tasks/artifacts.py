"""What Prefect's pages show of a run: plan and spend, how far it is, stage digests, checks.

Public facts only. Whatever goes wrong here stays here: a release is worth more than its pages.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from pgsr_core.budget import show
from pgsr_core.chain import Event
from tasks.publication.documents import CHECKS, REPORT
from tasks.publication.place import is_published
from tasks.run import Run, RunRef

UNTIL_MEASURED = ("recall", "ingest", "cumulative", "noise")
UNTIL_PUBLISHED = ("margins", "validate", "publish")
_NO_KEY = re.compile(r"[^a-z0-9]+")
logger = logging.getLogger("pgsr.artifacts")


class _Progress:
    """A bar that moves when a stage is done; a resumed run starts where its first stage is."""

    def __init__(self, run: Run) -> None:
        steps = [step.name for step in run.plan.mechanism.steps]
        self._name = run.ref.name
        self.lost = False
        self._stages = [*UNTIL_MEASURED, *steps, *UNTIL_PUBLISHED]
        key = _key(run.ref, "progress")
        made = create_progress_artifact(0.0, key=key, description=self._name)
        self._artifact = cast(UUID, made)  # a coroutine only where somebody awaits it

    def advance(self, stage: str) -> None:
        done, of = self._stages.index(stage) + 1, len(self._stages)
        words = f"{self._name}: {stage} is done, {done} of {of} stages"
        update_progress_artifact(self._artifact, 100 * done / of, description=words)


_progress: ContextVar[_Progress | None] = ContextVar("pgsr_progress", default=None)


@contextmanager
def shown(ref: RunRef) -> Iterator[None]:
    """Show a run in Prefect's pages: what is planned, how far it is, and what came of it."""
    token = _progress.set(None)
    with _quietly():
        run = ref.open()
        _show_plan(run)
        _progress.set(_Progress(run))
    try:
        yield
    except Exception:
        _show_outcome(ref)
        raise
    else:
        _show_outcome(ref)
    finally:
        _progress.reset(token)


def stage_done(stage: str) -> None:
    """Move the bar of the run around us, where there is one."""
    progress = _progress.get()
    if progress is not None and not progress.lost:
        # A server that is gone is asked once: every answer takes until the client gives up.
        progress.lost = True
        with _quietly():
            progress.advance(stage)
            progress.lost = False


def _show_outcome(ref: RunRef) -> None:
    progress = _progress.get()
    if progress is None or progress.lost:
        return
    with _quietly():
        run = ref.open()
        events = run.ledger.timeline(ref.product, ref.release)
        _show_plan(run)
        create_table_artifact(
            _stage_digests(events),
            key=_key(ref, "stages"),
            description=f"{ref.name}: the table of each stage, by its digest",
        )
        create_table_artifact(
            _checks(run, events), key=_key(ref, "checks"), description=f"{ref.name}: every check"
        )


def _show_plan(run: Run) -> None:
    """Plan, spend and, once there is one, the report."""
    plan = run.plan
    population = plan.configuration.population
    account = run.ledger.account(population.name, budget=population.budget)
    levels = "\n".join(
        f"| {level.level} | {level.regions:,} | {level.cells:,} | {show(level.epsilon)} "
        f"| {show(level.scale)} | {level.expected_error:.2f} |"
        for level in plan.levels
    )
    report = "not published yet"
    if is_published(plan.destination):
        report = f"[{REPORT}]({(plan.destination / REPORT).as_uri()})"
    simulation = "**NOT PRIVATE: a simulation.**\n\n" if plan.configuration.simulate else ""
    create_markdown_artifact(
        key=_key(run.ref, "plan"),
        description=run.ref.name,
        markdown=f"""# {run.ref.name}

{simulation}Mechanism `{plan.mechanism.name}` ({plan.mechanism.notation}), epsilon
{show(plan.configuration.privacy.epsilon)}. Population `{population.name}`: spent
{show(account.spent)} of {show(account.budget)}, remaining {show(account.remaining)}.

Report: {report}

| level | regions | cells | epsilon | scale of noise | expected error of a cell |
|--:|--:|--:|--:|--:|--:|
{levels}
""",
    )


def _stage_digests(events: tuple[Event, ...]) -> list[dict[str, Any]]:
    """What the ledger recorded of each stage; the last word counts."""
    found = {}
    for event in events:
        stages = {"measured": "noise", "computed": event.facts.get("stage"), "validated": "gates"}
        stage = stages.get(event.kind)
        if stage is not None:
            found[stage] = {"stage": stage, "digest": event.facts.get("digest")}
    return list(found.values())


def _checks(run: Run, events: tuple[Event, ...]) -> list[dict[str, Any]]:
    """In full from the bundle; of a release that the checks stopped, their names and outcomes."""
    if is_published(run.plan.destination):
        document = json.loads((run.plan.destination / CHECKS).read_text(encoding="utf-8"))
        return [
            {
                "check": check["name"],
                "outcome": _mark(check["passed"]),
                "suite": check["suite"],
                "what holds": check["statement"],
            }
            for check in document["checks"]
        ]
    judged = [event for event in events if event.kind == "validated"]
    outcomes = judged[-1].facts.get("checks", {}) if judged else {}
    return [{"check": name, "outcome": _mark(passed)} for name, passed in outcomes.items()]


def _mark(passed: bool) -> str:
    return "passed" if passed else "FAILED"


def _key(ref: RunRef, what: str) -> str:
    """A key of lower-case letters, digits and dashes, which is all that Prefect takes."""
    return _NO_KEY.sub("-", f"{ref.name}-{what}".lower())


@contextmanager
def _quietly() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        logger.warning("Prefect's pages do not show all of this run: %s", type(error).__name__)
