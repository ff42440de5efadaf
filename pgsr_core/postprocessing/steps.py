"""The steps of the mechanisms (Fioretto and Van Hentenryck 2019, sections 7 and 8, and beyond).

Solvers are imported where they are called: reading a configuration needs the names of the
mechanisms, not the compiled kernels behind them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgsr_core.postprocessing.protocol import Int, PublicFacts, StepResult


def counts_from_cumulative(cumulative: Int, facts: PublicFacts) -> Int:
    """Turn c_k = #{size ≥ k}, k = 1..N, into counts: n_k = c_k − c_(k+1), n_N = c_N.

    Where size 0 is published, n_0 = G_r − c_1.
    """
    counts = np.empty((cumulative.shape[0], len(facts.sizes)), dtype=np.int64)
    positive = counts[:, -cumulative.shape[1] :]
    positive[:, :-1] = cumulative[:, :-1] - cumulative[:, 1:]
    positive[:, -1] = cumulative[:, -1]
    if facts.groups_by_region is not None:
        counts[:, 0] = facts.groups_by_region - cumulative[:, 0]
    return counts


def cumulative_from_counts(counts: Int, *, largest_size: int) -> Int:
    """Count groups of size at least k for k = 1..N; the inverse of counts_from_cumulative."""
    positive = counts[:, -largest_size:]
    return np.ascontiguousarray(np.cumsum(positive[:, ::-1], axis=1)[:, ::-1])


@dataclass(frozen=True)
class LocalIsotonicFix:
    """Makes each region's noisy cumulative counts non-increasing, integer and within bounds.

    Bounds are [0, G_r] where the number of units of a region is public, else [0, G]
    (Algorithm 1, line 2, counting from the top).
    """

    name: str = "isotonic"

    def __call__(self, values: Int, facts: PublicFacts) -> StepResult:
        """See Step."""
        from pgsr_core.solvers.isotonic import isotonic_integers

        upper = facts.groups_by_region
        if upper is None:
            upper = np.full(facts.tree.regions, facts.groups, dtype=np.int64)
        fitted = isotonic_integers(values, upper=upper)
        return StepResult(
            values=fitted,
            certificate={
                "non_increasing": bool(np.all(fitted[:, :-1] >= fitted[:, 1:])),
                "within_bounds": bool(np.all((fitted >= 0) & (fitted <= upper[:, None]))),
            },
        )


@dataclass(frozen=True)
class ConsistentCounts:
    """The exact integer optimum of (H1)–(H4): non-negative, consistent, adding up to G."""

    name: str = "cpwl"

    def __call__(self, values: Int, facts: PublicFacts) -> StepResult:
        """See Step."""
        from pgsr_core.solvers import cpwl

        solution = cpwl.solve(facts.tree, values, groups=facts.groups)
        proof = cpwl.certify(facts.tree, values, solution.counts, groups=facts.groups)
        return StepResult(
            values=solution.counts,
            certificate={
                "feasible": proof.feasible,
                "optimal": proof.optimal,
                # A string: the objective is exact and may pass 2^53, where JSON loses digits.
                "objective": str(proof.objective),
            },
        )


@dataclass(frozen=True)
class ConsistentCountsFromCumulative:
    """The same optimum over the counts that fitted cumulative counts imply (line 5)."""

    name: str = "cpwl"

    def __call__(self, values: Int, facts: PublicFacts) -> StepResult:
        """See Step."""
        return ConsistentCounts()(counts_from_cumulative(values, facts), facts)
