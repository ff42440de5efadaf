"""The relaxed mechanisms round what a generic solver finds, and break what rounding breaks."""

from __future__ import annotations

import numpy as np
import pytest

from pgsr_core.evaluation.metrics import constraint_violations
from pgsr_core.postprocessing.relaxations import RelaxedCounts, RelaxedCumulative
from pgsr_core.postprocessing.steps import counts_from_cumulative, cumulative_from_counts
from tests.core.cpwl_oracles import layered_tree, random_tree
from tests.core.generic_oracles import facts_of, relaxed_counts, relaxed_cumulative

# How near to a half a real number may be rounded either way.
CLOSE = 0.02


def some_data(seed, *, units):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, int(rng.integers(1, 12)), reach=int(rng.integers(1, 12)))
    truth = np.zeros((tree.regions, 5), dtype=np.int64)
    truth[tree.leaves] = rng.poisson([9, 6, 3, 1, 0.3], (len(tree.leaves), 5))
    return rng, facts_of(tree, tree.aggregate(truth), units=units), truth


def is_rounding(rounded, real):
    return (np.abs(rounded - real) <= 0.5 + CLOSE).all()


@pytest.mark.parametrize("seed", range(10))
def test_relaxed_counts_are_the_rounded_real_optimum(seed):
    rng, facts, truth = some_data(seed, units=False)
    noisy = truth + rng.integers(-6, 7, truth.shape)
    assert is_rounding(RelaxedCounts()(noisy, facts).values, relaxed_counts(noisy, facts))


@pytest.mark.parametrize("units", [False, True], ids=["from-data", "units"])
@pytest.mark.parametrize("seed", range(6))
def test_relaxed_cumulative_counts_are_the_rounded_real_optimum(seed, units):
    rng, facts, truth = some_data(seed, units=units)
    cumulative = cumulative_from_counts(truth, largest_size=facts.largest_size)
    noisy = cumulative + rng.integers(-6, 7, cumulative.shape)
    values = RelaxedCumulative()(noisy, facts).values
    rounded = cumulative_from_counts(values, largest_size=facts.largest_size)
    assert is_rounding(rounded, relaxed_cumulative(noisy, facts))
    assert (counts_from_cumulative(rounded, facts) == values).all()


def test_rounding_breaks_consistency_and_the_violations_are_counted():
    tree = layered_tree(3)
    noisy = np.array([[1], [0], [0], [0]])
    facts = facts_of(tree, np.array([[1], [1], [0], [0]]), units=False)
    values = RelaxedCounts()(noisy, facts).values
    assert values.tolist() == [[1], [0], [0], [0]]
    assert constraint_violations(tree, values) == 1
