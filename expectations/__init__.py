"""Great Expectations suites over public-safe tables, and the runner that judges them."""

from expectations.gates import run_gates
from expectations.promises import Promises
from expectations.report import CheckOutcome, GateReport
from pgsr_core.documents.checks import Suite

__all__ = ["CheckOutcome", "GateReport", "Promises", "Suite", "run_gates"]
