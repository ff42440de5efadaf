"""Every mechanism keeps its promises on any tree, any sizes and any noise."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pgsr_core import mechanisms
from pgsr_core.hierarchy import RegionTree
from pgsr_core.postprocessing.protocol import PublicFacts, Query
from pgsr_core.postprocessing.steps import (
    LocalIsotonicFix,
    counts_from_cumulative,
    cumulative_from_counts,
)

# Generic solvers take tables of any size or noise only in principle; they have tests of their own.
MECHANISMS = {
    name: known for name, known in mechanisms.MECHANISMS.items() if known.requires is None
}


def random_tree(generator, regions):
    """Each region's parent is one that came before it: ragged trees, chains and stars alike."""
    parents = [None] + [f"r{generator.integers(0, place):03d}" for place in range(1, regions)]
    return RegionTree.from_table([f"r{place:03d}" for place in range(regions)], parents)


def random_truth(generator, tree, *, smallest_size, largest_size, most):
    """True counts: anything at the leaves, added up."""
    counts = np.zeros((tree.regions, largest_size + 1 - smallest_size), dtype=np.int64)
    sparse = generator.random(counts.shape) < 0.5
    drawn = generator.integers(0, most + 1, counts.shape) * sparse
    counts[tree.leaves] = drawn[tree.leaves]
    return tree.aggregate(counts)


def facts_of(tree, truth, *, from_data, largest_size):
    totals = truth.sum(axis=1)
    return PublicFacts(
        tree=tree,
        smallest_size=1 if from_data else 0,
        largest_size=largest_size,
        groups=int(totals[0]),
        groups_by_region=None if from_data else totals,
        scales=(Fraction(3),) * tree.levels,
    )


def run(mechanism, noisy, facts):
    values, certificates = noisy, []
    for step in mechanism.steps:
        before = values.copy()
        values.setflags(write=False)
        result = step(values, facts)
        assert (values == before).all(), "a step changed its argument"
        values = result.values
        certificates.append(result.certificate)
    return values, certificates


def check_promises(counts, certificates, facts, mechanism):
    tree = facts.tree
    assert counts.dtype == np.int64
    assert counts.shape == (tree.regions, len(facts.sizes))
    assert (counts >= 0).all()
    assert (tree.children_sums(counts) == counts).all()
    assert counts[0].sum() == facts.groups
    if mechanism.keeps_region_totals and facts.groups_by_region is not None:
        assert (counts.sum(axis=1) == facts.groups_by_region).all()
    for certificate in certificates:
        assert certificate, "a step without evidence"
        claims = [fact for fact in certificate.values() if isinstance(fact, bool)]
        assert claims
        assert all(claims)


@pytest.mark.parametrize("from_data", [False, True], ids=["unit-table", "from-data"])
@pytest.mark.parametrize("name", sorted(MECHANISMS))
@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    regions=st.integers(1, 14),
    largest_size=st.integers(1, 6),
    most=st.sampled_from([0, 1, 3, 50, 10**6]),
    scale=st.sampled_from([0, 1, 10, 1000, 10**7]),
)
@example(seed=0, regions=1, largest_size=1, most=0, scale=0)
@example(seed=1, regions=14, largest_size=6, most=0, scale=1000)
@example(seed=2, regions=14, largest_size=1, most=50, scale=10**7)
def test_counts_are_non_negative_consistent_and_add_up_to_g(
    name, from_data, seed, regions, largest_size, most, scale
):
    generator = np.random.default_rng(seed)
    mechanism = MECHANISMS[name]
    tree = random_tree(generator, regions)
    truth = random_truth(
        generator, tree, smallest_size=1 if from_data else 0, largest_size=largest_size, most=most
    )
    facts = facts_of(tree, truth, from_data=from_data, largest_size=largest_size)
    measured = truth
    if mechanism.query is Query.CUMULATIVE:
        measured = cumulative_from_counts(truth, largest_size=largest_size)
    assert measured.shape[1] == len(facts.measured_sizes(mechanism.query))
    noisy = measured + generator.integers(-scale, scale + 1, measured.shape)

    counts, certificates = run(mechanism, noisy.copy(), facts)
    check_promises(counts, certificates, facts, mechanism)
    again, _ = run(mechanism, noisy.copy(), facts)
    assert (again == counts).all()


@pytest.mark.parametrize("from_data", [False, True], ids=["unit-table", "from-data"])
@pytest.mark.parametrize("name", sorted(MECHANISMS))
@pytest.mark.parametrize("scales", [(), (Fraction(1, 1000),)], ids=["exact", "hardly-any-noise"])
def test_without_noise_the_truth_comes_back(name, from_data, scales):
    generator = np.random.default_rng(11)
    tree = random_tree(generator, 12)
    smallest = 1 if from_data else 0
    truth = random_truth(generator, tree, smallest_size=smallest, largest_size=5, most=20)
    facts = facts_of(tree, truth, from_data=from_data, largest_size=5)
    facts = replace(facts, scales=scales * tree.levels)
    mechanism = MECHANISMS[name]
    measured = (
        cumulative_from_counts(truth, largest_size=5)
        if mechanism.query is Query.CUMULATIVE
        else truth
    )
    counts, _ = run(mechanism, measured.copy(), facts)
    assert (counts == truth).all()


@pytest.mark.parametrize("name", sorted(MECHANISMS))
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_counts_do_not_depend_on_anything_but_measurements_and_public_facts(name, seed):
    """Two truths, one noisy table: the released counts must be the same."""
    generator = np.random.default_rng(seed)
    tree = random_tree(generator, 8)
    truth = random_truth(generator, tree, smallest_size=0, largest_size=4, most=9)
    facts = facts_of(tree, truth, from_data=False, largest_size=4)
    columns = len(facts.measured_sizes(MECHANISMS[name].query))
    noisy = generator.integers(-30, 60, (tree.regions, columns))
    first, _ = run(MECHANISMS[name], noisy.copy(), facts)
    strided = np.zeros((tree.regions, 2 * columns), dtype=np.int64)
    strided[:, ::2] = noisy
    second, _ = run(MECHANISMS[name], strided[:, ::2], facts)
    assert (first == second).all()


@given(
    seed=st.integers(0, 2**32 - 1),
    regions=st.integers(1, 9),
    largest_size=st.integers(1, 8),
    from_data=st.booleans(),
)
def test_counts_and_cumulative_counts_are_inverse(seed, regions, largest_size, from_data):
    generator = np.random.default_rng(seed)
    tree = random_tree(generator, regions)
    smallest = 1 if from_data else 0
    counts = generator.integers(-50, 50, (regions, largest_size + 1 - smallest))
    facts = facts_of(tree, counts, from_data=from_data, largest_size=largest_size)
    cumulative = cumulative_from_counts(counts, largest_size=largest_size)
    for k in range(1, largest_size + 1):
        assert (cumulative[:, k - 1] == counts[:, k - smallest :].sum(axis=1)).all()
    assert (counts_from_cumulative(cumulative, facts) == counts).all()
    noisy = generator.integers(-50, 50, cumulative.shape)
    back = counts_from_cumulative(noisy, facts)
    assert (cumulative_from_counts(back, largest_size=largest_size) == noisy).all()


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), from_data=st.booleans())
def test_the_isotonic_fix_yields_counts_that_are_not_negative(seed, from_data):
    """The bounds are tight enough that every difference, n_0 included, is a count."""
    generator = np.random.default_rng(seed)
    tree = random_tree(generator, 6)
    smallest = 1 if from_data else 0
    truth = random_truth(generator, tree, smallest_size=smallest, largest_size=5, most=9)
    facts = facts_of(tree, truth, from_data=from_data, largest_size=5)
    noisy = generator.integers(-40, 80, (tree.regions, 5))
    fixed = LocalIsotonicFix()(noisy, facts)
    assert fixed.certificate == {"non_increasing": True, "within_bounds": True}
    assert (counts_from_cumulative(fixed.values, facts) >= 0).all()


def test_mechanisms_are_known_by_their_own_names_and_the_last_step_yields_the_counts():
    every = {**mechanisms.MECHANISMS, **mechanisms.RELAXED}
    assert all(name == mechanism.name for name, mechanism in every.items())
    for mechanism in every.values():
        names = [step.name for step in mechanism.steps]
        assert names
        assert len(set(names)) == len(names)
    with pytest.raises(TypeError):
        mechanisms.MECHANISMS["other"] = None
