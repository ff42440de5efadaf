"""The papers' exact programs by generic solvers: the optimum, proved, or a typed error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from fractions import Fraction
from multiprocessing import get_context

import numpy as np
import pytest

from pgsr_core.mechanisms import MECHANISMS
from pgsr_core.postprocessing import exact_programs
from pgsr_core.postprocessing.exact_programs import (
    ConstraintTables,
    ExactCounts,
    ExactCumulative,
    TimeLimited,
)
from pgsr_core.postprocessing.protocol import PublicFacts
from pgsr_core.postprocessing.steps import ConsistentCounts, cumulative_from_counts
from pgsr_core.solvers.generic.errors import (
    NotProved,
    SolverMissing,
    SolverTimedOut,
    TooLargeForSolver,
)
from pgsr_core.solvers.generic.quadratic import closest_counts
from tests.core.cpwl_oracles import layered_tree, noisy_table, random_tree
from tests.core.generic_oracles import Int, error_of, facts_of, least_cumulative_cost

TINY = layered_tree(2)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Executor]:
    """Another process: OR-tools cannot be loaded beside HiGHS, which other tests use."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


def some_problem(seed: int) -> tuple[Int, PublicFacts]:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, int(rng.integers(1, 9)), reach=int(rng.integers(1, 9)))
    noisy, groups = noisy_table(rng, tree, int(rng.integers(1, 5)), groups=30, scale=3.0)
    return noisy, PublicFacts(tree, 1, noisy.shape[1], groups, None)


def direct_objective(noisy: Int, facts: PublicFacts) -> object:
    return ConsistentCounts()(noisy, facts).certificate["objective"]


@pytest.mark.parametrize("seed", range(12))
def test_branch_and_bound_finds_the_optimum_of_the_direct_mechanism(seed: int) -> None:
    noisy, facts = some_problem(seed)
    result = ExactCounts()(noisy, facts)
    assert result.certificate["feasible"] is True
    assert result.certificate["optimal"] is True
    assert result.certificate["objective"] == direct_objective(noisy, facts)


@pytest.mark.parametrize("seed", range(3))
def test_constraint_tables_find_the_optimum_of_the_direct_mechanism(
    elsewhere: Executor, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 5, reach=3)
    noisy, groups = noisy_table(rng, tree, 2, groups=12, scale=0.8)
    facts = PublicFacts(tree, 1, 2, groups, None, (Fraction(4, 5),) * tree.levels)
    result = elsewhere.submit(ConstraintTables(), noisy, facts).result()
    assert result.certificate["optimal"] is True
    assert result.certificate["objective"] == direct_objective(noisy, facts)


def test_domains_that_leave_no_solution_are_widened_until_the_optimum_is_proved(
    elsewhere: Executor,
) -> None:
    noisy = np.array([[9], [-5], [1]])
    facts = PublicFacts(TINY, 1, 1, 9, None)
    result = elsewhere.submit(ConstraintTables(), noisy, facts).result()
    assert result.certificate["optimal"] is True
    assert result.certificate["objective"] == direct_objective(noisy, facts)


@pytest.mark.parametrize("units", [False, True], ids=["from-data", "units"])
@pytest.mark.parametrize("seed", range(4))
def test_the_exact_cumulative_program_finds_what_trying_everything_finds(
    seed: int, units: bool
) -> None:
    rng = np.random.default_rng(seed)
    tree = [layered_tree(2), layered_tree(1, 2), random_tree(rng, 4, reach=2)][seed % 3]
    truth = np.zeros((tree.regions, 3), dtype=np.int64)
    truth[tree.leaves] = rng.integers(0, 2, (len(tree.leaves), 3))
    truth[tree.leaves[0], 0] += 1
    facts = facts_of(tree, tree.aggregate(truth), units=units)
    cumulative = cumulative_from_counts(truth, largest_size=facts.largest_size)
    noisy = cumulative + rng.integers(-3, 4, cumulative.shape)
    result = ExactCumulative()(noisy, facts)
    assert result.certificate["consistent"] is True
    assert result.certificate["non_increasing"] is True
    assert int(result.certificate["objective"]) == least_cumulative_cost(noisy, facts)
    assert (result.values >= 0).all()
    assert (tree.children_sums(result.values) == result.values).all()
    assert result.values[0].sum() == facts.groups
    if units:
        assert (result.values.sum(axis=1) == facts.groups_by_region).all()
    assert (ExactCumulative()(noisy, facts).values == result.values).all()


def test_a_run_out_of_time_publishes_nothing_and_says_what_to_do(elsewhere: Executor) -> None:
    noisy, facts = some_problem(3)
    for step in (ExactCounts(), ExactCumulative()):
        with pytest.raises(SolverTimedOut, match="pgsr repost") as caught:
            step.within(0.0)(noisy, facts)
        assert (caught.value.exit_code, caught.value.time_limit) == (1, 0.0)
    doomed = elsewhere.submit(error_of, ConstraintTables(time_limit=1e-9), noisy, facts)
    assert doomed.result().startswith("CP-SAT did not reach the optimum")


def test_every_step_that_needs_a_generic_solver_has_the_papers_time_limit() -> None:
    slow = [m for m in MECHANISMS.values() if m.requires is not None]
    assert {m.name for m in slow} == {"exact-counts", "constraint-tables", "exact-cumulative"}
    for mechanism in slow:
        (step,) = mechanism.steps
        assert isinstance(step, TimeLimited)
        assert step == step.within(1800.0)
        assert step != step.within(1.0)


@pytest.mark.parametrize("package", ["pyscipopt", "ortools"])
def test_a_missing_extra_is_told_before_anything_is_spent(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    noisy, facts = some_problem(3)
    for mechanism in MECHANISMS.values():
        if mechanism.requires != package:
            continue
        with pytest.raises(SolverMissing, match=r"pgsr\[evaluate\]") as caught:
            mechanism.refuse_if_out_of_reach(cells=1)
        assert caught.value.exit_code == 2
        with pytest.raises(SolverMissing, match=package):
            mechanism.steps[0](noisy, facts)


def test_more_cells_than_a_generic_solver_can_take_are_refused_at_once() -> None:
    for mechanism in MECHANISMS.values():
        if mechanism.requires is None:
            mechanism.refuse_if_out_of_reach(cells=10**9)
        else:
            mechanism.refuse_if_out_of_reach(cells=exact_programs.MOST_CELLS)
            with pytest.raises(TooLargeForSolver, match="measured cells"):
                mechanism.refuse_if_out_of_reach(cells=exact_programs.MOST_CELLS + 1)


def test_tables_with_too_many_entries_are_refused_at_once(elsewhere: Executor) -> None:
    facts = PublicFacts(TINY, 1, 1, 9, None, (Fraction(1000),) * 2)
    refused = elsewhere.submit(error_of, ConstraintTables(), np.array([[9], [4], [4]]), facts)
    assert "table entries" in refused.result()


def test_an_answer_beyond_the_solvers_digits_is_refused_or_exact() -> None:
    """Either the proof holds, or there is no answer: never one that is nearly optimal."""
    noisy = np.array([[10**8, 7], [-(10**8), 3], [3 * 10**8, 5]])
    facts = PublicFacts(TINY, 1, 2, 10**8, None)
    try:
        counts = closest_counts(TINY, noisy, groups=10**8, time_limit=20.0)
    except NotProved:
        return
    cost = int(((counts - noisy).astype(object) ** 2).sum())
    assert str(cost) == direct_objective(noisy, facts)
