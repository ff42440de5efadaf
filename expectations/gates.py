"""The gates: run every check that must run on the table to be published, and report.

Guarantee: the gates read public-safe tables and public facts only, so their verdict is
post-processing and costs no privacy. They fail closed: a missing table, a wrong type, an
exception anywhere or an expectation that did not run is a failed check, without a value in it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from expectations import frames, suites
from expectations.examiner import COULD_NOT_RUN, Examiner, Verdict, silence
from expectations.frames import Part, View
from expectations.promises import Promises
from expectations.report import CheckOutcome, GateReport
from expectations.required import must_run
from expectations.suites import Check

if TYPE_CHECKING:
    import duckdb

logger = logging.getLogger(__name__)


def run_gates(connection: duckdb.DuckDBPyConnection, promises: Promises) -> GateReport:
    """Hold ``group_sizes``, ``regions`` and, where stated, margins against the promises.

    Args:
        connection: on the public-safe store; reading is enough. It sees an additional
            temporary view during the call.
        promises: the public facts, the only authority.

    Returns:
        The outcome of every check; ``passed`` tells whether the table may be published.
    """
    checks = suites.checks_for(promises)
    with silence():
        try:
            examiner = Examiner()
            with frames.promised_regions(connection, promises.facts):
                verdicts = _verdicts(connection, examiner, checks, promises)
        except Exception as error:  # whatever it is, its text may quote a value
            logger.error("the gates could not run (%s)", type(error).__name__)
            verdicts = {}
    required = must_run(promises)
    outcomes = tuple(
        _outcome(check, verdicts.get(check.name, ()), required.get(check.name, frozenset()))
        for check in checks
    )
    return GateReport(outcomes=outcomes, required=frozenset(required))


def _verdicts(
    connection: duckdb.DuckDBPyConnection,
    examiner: Examiner,
    checks: tuple[Check, ...],
    promises: Promises,
) -> dict[str, list[Verdict]]:
    """For each check one verdict a slice of its view; each slice is read once."""
    verdicts: dict[str, list[Verdict]] = {check.name: [] for check in checks}
    for view in View:
        concerned = tuple(check for check in checks if check.view is view)
        if not concerned:
            continue
        for part in frames.parts(view, promises.facts):
            judged = _judge(connection, examiner, part, concerned, view=view)
            for check, verdict in zip(concerned, judged, strict=True):
                verdicts[check.name].append(verdict)
    return verdicts


def _judge(
    connection: duckdb.DuckDBPyConnection,
    examiner: Examiner,
    part: Part,
    checks: tuple[Check, ...],
    *,
    view: View,
) -> tuple[Verdict, ...]:
    try:
        return examiner.examine(frames.read(connection, part), checks, rows=part.rows)
    except Exception as error:  # DuckDB quotes the value that it could not cast
        logger.error("the view of %s could not be judged (%s)", view, type(error).__name__)
        return (COULD_NOT_RUN,) * len(checks)


def _outcome(check: Check, verdicts: Sequence[Verdict], required: frozenset[str]) -> CheckOutcome:
    everywhere = frozenset.intersection(*(v.ran for v in verdicts)) if verdicts else frozenset()
    complete = bool(required) and bool(verdicts) and all(v.ran == required for v in verdicts)
    return CheckOutcome(
        name=check.name,
        suite=check.suite,
        statement=check.statement,
        passed=complete and all(v.held for v in verdicts),
        expectations=len(everywhere),
    )
