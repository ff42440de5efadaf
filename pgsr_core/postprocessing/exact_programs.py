"""The papers' slow exact steps, by generic solvers: M_H, M_dp^OP and M_c.

Each ends with the optimum, proved, or with an error; a time limit (the papers' half hour) can only
turn one into the other. Their solvers come with the extra `pgsr[evaluate]`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from pgsr_core.postprocessing.protocol import Int, PublicFacts, Step, StepResult
from pgsr_core.postprocessing.steps import counts_from_cumulative
from pgsr_core.solvers.generic.errors import TooLargeForSolver

PAPERS_TIME_LIMIT = 1800.0
MOST_CELLS = 100_000
"""Regions × sizes that a generic solver is given; beyond, only building its model takes minutes."""
MOST_ENTRIES = 5_000_000
"""Entries of all cost tables together; each takes a constraint program of milliseconds."""
RADIUS_WITHOUT_NOISE = 3


@runtime_checkable
class TimeLimited(Protocol):
    """A step that gives up after a while."""

    def within(self, seconds: float) -> Step:
        """The same step with another time limit."""
        ...


@dataclass(frozen=True)
class ExactCounts:
    """M_H: the program (H1)–(H4) as it stands, by branch and bound."""

    time_limit: float = PAPERS_TIME_LIMIT
    name: str = "exact-counts"

    def __call__(self, values: Int, facts: PublicFacts) -> StepResult:
        """See Step."""
        from pgsr_core.solvers.generic.quadratic import closest_counts

        refuse_too_large(values.size)
        counts = closest_counts(facts.tree, values, groups=facts.groups, time_limit=self.time_limit)
        return _certified(values, counts, facts)

    def within(self, seconds: float) -> ExactCounts:
        """See TimeLimited."""
        return replace(self, time_limit=seconds)


@dataclass(frozen=True)
class ConstraintTables:
    """M_dp^OP: the same optimum by a dynamic program with a constraint program an entry.

    Domains are the papers' (footnote 2), δ = 3 ⌈2λ²⌉ around each measurement. They can exclude
    the optimum or every solution; then they are doubled until the certificate proves that the
    optimum was found.
    """

    time_limit: float = PAPERS_TIME_LIMIT
    name: str = "constraint-tables"

    def __call__(self, values: Int, facts: PublicFacts) -> StepResult:
        """See Step."""
        from pgsr_core.solvers import cpwl
        from pgsr_core.solvers.generic.constraint_tables import (
            CheapestShares,
            solve_by_constraint_tables,
        )

        refuse_too_large(values.size)
        tree, groups = facts.tree, facts.groups
        radii = [3 * math.ceil(2 * scale * scale) for scale in facts.scales]
        radii = radii or [RADIUS_WITHOUT_NOISE] * tree.levels
        cheapest = CheapestShares(self.time_limit)
        while True:
            entries = values.shape[1] * sum(2 * radii[level] + 1 for level in tree.level)
            if entries > MOST_ENTRIES:
                raise TooLargeForSolver(number=entries, most=MOST_ENTRIES, of="table entries")
            counts = solve_by_constraint_tables(
                tree, values, groups=groups, radii=radii, cheapest=cheapest
            )
            if counts is not None and cpwl.certify(tree, values, counts, groups=groups).optimal:
                return _certified(values, counts, facts)
            radii = [2 * radius for radius in radii]

    def within(self, seconds: float) -> ConstraintTables:
        """See TimeLimited."""
        return replace(self, time_limit=seconds)


@dataclass(frozen=True)
class ExactCumulative:
    """M_c: the whole cumulative program (C1)–(C5) in integers, by branch and bound."""

    time_limit: float = PAPERS_TIME_LIMIT
    name: str = "exact-cumulative"

    def __call__(self, values: Int, facts: PublicFacts) -> StepResult:
        """See Step."""
        from pgsr_core.solvers.generic.quadratic import closest_cumulative

        refuse_too_large(values.size)
        cumulative = closest_cumulative(
            facts.tree,
            values,
            groups=facts.groups,
            groups_by_region=facts.groups_by_region,
            time_limit=self.time_limit,
        )
        gaps = (cumulative - values).astype(object)
        return StepResult(
            values=counts_from_cumulative(cumulative, facts),
            certificate={
                "consistent": bool(
                    np.array_equal(facts.tree.children_sums(cumulative), cumulative)
                ),
                "non_increasing": bool(np.all(cumulative[:, :-1] >= cumulative[:, 1:])),
                "objective": str((gaps * gaps).sum()),
            },
        )

    def within(self, seconds: float) -> ExactCumulative:
        """See TimeLimited."""
        return replace(self, time_limit=seconds)


def refuse_too_large(cells: int) -> None:
    """Refuse what a generic solver is not given.

    Raises:
        TooLargeForSolver: with both numbers.
    """
    if cells > MOST_CELLS:
        raise TooLargeForSolver(number=cells, most=MOST_CELLS, of="measured cells")


def _certified(noisy: Int, counts: Int, facts: PublicFacts) -> StepResult:
    """The counts with the proof that does not depend on the solver."""
    from pgsr_core.solvers import cpwl

    proof = cpwl.certify(facts.tree, noisy, counts, groups=facts.groups)
    return StepResult(
        values=counts,
        certificate={
            "feasible": proof.feasible,
            "optimal": proof.optimal,
            "objective": str(proof.objective),
        },
    )
