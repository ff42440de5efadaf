"""What can keep a generic solver from an answer; nothing is published then."""

from __future__ import annotations

from pgsr_core.errors import PgsrError, Refused

_FASTER = "the measurements are kept: pgsr repost computes from them with another mechanism"


class SolverMissing(PgsrError):
    """A solver of the optional extra cannot be imported."""

    def __init__(self, *, package: str, reason: str) -> None:
        self.package = package
        self.reason = reason
        super().__init__(
            f"this mechanism needs the package {package}, which cannot be imported ({reason}). "
            "Remedy: install the extra, pip install 'pgsr[evaluate]', or take the mechanism "
            "direct, cumulative or global."
        )


class SolverTimedOut(Refused):
    """A solver was stopped at its time limit, before the optimum was found and proved."""

    def __init__(self, *, solver: str, time_limit: float) -> None:
        self.solver = solver
        self.time_limit = time_limit
        super().__init__(
            f"{solver} did not reach the optimum within {time_limit:g} s; nothing is published. "
            f"Remedy: {_FASTER}."
        )


class TooLargeForSolver(Refused):
    """A problem is larger than what a generic solver is given."""

    def __init__(self, *, number: int, most: int, of: str) -> None:
        self.number = number
        self.most = most
        self.of = of
        super().__init__(
            f"{number} {of} are more than the {most} that a generic solver is given. "
            "Remedy: take the mechanism direct, cumulative or global."
        )


class NotProved(Refused):
    """A solver's floating-point answer could not be proved to be the optimum."""

    def __init__(self, *, solver: str) -> None:
        self.solver = solver
        super().__init__(
            f"the answer of {solver} could not be proved to be optimal, as numbers are too large "
            f"for its floating-point arithmetic; nothing is published. Remedy: {_FASTER}."
        )
