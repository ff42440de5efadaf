"""The verdict of the gates as plain values: names, sentences and booleans, never a count."""

from __future__ import annotations

from dataclasses import dataclass

from pgsr_core.documents.checks import Suite


@dataclass(frozen=True)
class CheckOutcome:
    """What became of one check.

    Attributes:
        name: the check's name, stable over releases.
        suite: the property it belongs to.
        statement: what holds if it passed, in words for an auditor.
        passed: whether every expectation that must run ran, on every row, and held.
        expectations: how many expectations ran on every row.
    """

    name: str
    suite: Suite
    statement: str
    passed: bool
    expectations: int


@dataclass(frozen=True)
class GateReport:
    """All outcomes of a release, beside the names of the checks that must be among them."""

    outcomes: tuple[CheckOutcome, ...]
    required: frozenset[str]

    @property
    def passed(self) -> bool:
        """Whether the release may be published.

        A check that is missing, superfluous or doubled fails the report as surely as one that
        did not hold: a suite that is silently shorter than promised is no evidence.
        """
        ran = sorted(outcome.name for outcome in self.outcomes)
        return bool(ran) and ran == sorted(self.required) and not self.failed

    @property
    def failed(self) -> tuple[CheckOutcome, ...]:
        """The outcomes that did not pass."""
        return tuple(outcome for outcome in self.outcomes if not outcome.passed)

    @property
    def missing(self) -> frozenset[str]:
        """Names of the checks that must run and did not."""
        return self.required - {outcome.name for outcome in self.outcomes}
