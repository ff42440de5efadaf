"""The paper's relaxed programs as printed: right on small numbers, and off on a nation's."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pgsr_core.evaluation import as_printed
from pgsr_core.evaluation.contenders import CONTENDERS, NotApplicable, Setting, TimedOut
from pgsr_core.evaluation.datasets import EvaluationData, census_like, limited
from pgsr_core.evaluation.metrics import errors_by_level
from pgsr_core.evaluation.published import AS_PRINTED
from pgsr_core.solvers.generic.interior_point import families, relaxed_counts, relaxed_cumulative
from tests.core import generic_oracles
from tests.core.cpwl_oracles import random_tree
from tests.core.generic_oracles import facts_of


def some_measurements(seed):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, int(rng.integers(1, 12)), reach=int(rng.integers(1, 12)))
    truth = np.zeros((tree.regions, 5), dtype=np.int64)
    truth[tree.leaves] = rng.poisson([9, 6, 3, 1, 0.3], (len(tree.leaves), 5))
    return (
        facts_of(tree, tree.aggregate(truth), units=False),
        truth,
        rng.integers(-6, 7, truth.shape),
    )


@pytest.mark.parametrize("seed", range(6))
def test_on_small_numbers_the_optimum_is_found(seed):
    facts, truth, noise = some_measurements(seed)
    asked = {"groups": facts.groups, "time_limit": 60.0}
    counts = relaxed_counts(facts.tree, truth + noise, **asked)
    assert counts == pytest.approx(generic_oracles.relaxed_counts(truth + noise, facts), abs=0.01)
    rising = relaxed_cumulative(facts.tree, np.cumsum(truth, axis=1) + noise, **asked)
    # Counting from the other end is the same program with its columns turned round.
    turned = np.cumsum(truth, axis=1)[:, ::-1] + noise[:, ::-1]
    assert rising[:, ::-1] == pytest.approx(
        generic_oracles.relaxed_cumulative(turned, facts), abs=0.01
    )


def test_families_tell_what_children_lack_of_their_parent():
    facts, truth, noise = some_measurements(3)
    tree, table = facts.tree, truth + noise
    inner = ~tree.is_leaf
    assert (families(tree) @ table == (tree.children_sums(table) - table)[inner]).all()


@pytest.fixture(scope="module")
def nation() -> EvaluationData:
    """Seven million households of up to 60."""
    return limited(census_like(counties=200), 60)


def error_at_the_root(name: str, data: EvaluationData, epsilon: int) -> int:
    answer = CONTENDERS[name](Setting(data, Fraction(epsilon), seed=1, time_limit=100.0))
    return errors_by_level(data.tree, data.truth, answer.values, smallest_size=1)[0].l1


@pytest.mark.parametrize("name", AS_PRINTED)
def test_on_a_nations_numbers_the_error_is_the_solvers_and_not_that_of_the_noise(name, nation):
    """Hence the errors of Table 1 that do not fall as ε grows."""
    ended = [error_at_the_root(name, nation, epsilon) for epsilon in (1, 10)]
    printed = [error_at_the_root(AS_PRINTED[name], nation, epsilon) for epsilon in (1, 10)]
    assert ended[1] < ended[0] / 5
    assert printed[1] > printed[0] / 2
    assert printed[1] > 10 * ended[1]


@pytest.mark.parametrize("name", AS_PRINTED.values())
def test_no_answer_in_time_or_too_many_cells_are_told_apart(name, nation, monkeypatch):
    with pytest.raises(TimedOut):
        CONTENDERS[name](Setting(nation, Fraction(1), seed=1, time_limit=0.0))
    monkeypatch.setattr(as_printed, "MOST_CELLS", 1_000)
    with pytest.raises(NotApplicable):
        CONTENDERS[name](Setting(nation, Fraction(1), seed=1, time_limit=100.0))
