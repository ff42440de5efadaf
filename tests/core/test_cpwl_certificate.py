from __future__ import annotations

import numpy as np
import pytest

from pgsr_core.solvers.cpwl import CertificateInputError, CertificateOverflow, certify, solve
from tests.core.cpwl_oracles import (
    is_feasible,
    layered_tree,
    linear_program,
    objective,
    random_tree,
)


def moved(tree, counts, giver, taker):
    """One unit from a leaf's cell to another, ancestors included."""
    changed = counts.copy()
    for (leaf, size), change in ((giver, -1), (taker, 1)):
        region = leaf
        while region >= 0:
            changed[region, size] += change
            region = tree.parent[region]
    return changed


def problems(count):
    rng = np.random.default_rng(11)
    for _ in range(count):
        tree = random_tree(rng, int(rng.integers(2, 12)), reach=int(rng.integers(1, 12)))
        noisy = rng.integers(-4, 8, (tree.regions, int(rng.integers(1, 4))))
        weights = rng.integers(1, 9, tree.levels).tolist()
        yield tree, noisy, weights, int(rng.integers(1, 12))


def test_every_single_exchange_that_worsens_an_optimum_is_rejected():
    worse = 0
    for tree, noisy, weights, groups in problems(80):
        counts = solve(tree, noisy, groups=groups, level_weights=weights).counts
        best = objective(tree, noisy, counts, weights)
        cells = [(leaf, size) for leaf in tree.leaves.tolist() for size in range(noisy.shape[1])]
        for giver in cells:
            for taker in cells:
                if giver == taker or counts[giver] == 0:
                    continue
                changed = moved(tree, counts, giver, taker)
                assert is_feasible(tree, changed, groups)
                cost = objective(tree, noisy, changed, weights)
                proof = certify(tree, noisy, changed, groups=groups, level_weights=weights)
                assert proof.feasible
                assert proof.objective == cost
                assert proof.optimal == (cost == best)
                if cost > best:
                    # The way back is one exchange; the cheapest costs no more.
                    assert proof.worst_exchange <= best - cost
                    worse += 1
    assert worse > 500


def test_a_random_feasible_table_is_accepted_exactly_when_a_linear_program_cannot_beat_it():
    rng = np.random.default_rng(12)
    verdicts = set()
    for tree, noisy, weights, groups in problems(60):
        counts = np.zeros_like(noisy)
        spots = rng.integers(0, len(tree.leaves) * noisy.shape[1], min(groups, 2))
        leaf = np.zeros(len(tree.leaves) * noisy.shape[1], np.int64)
        np.add.at(leaf, spots, 1)
        counts[tree.leaves] = leaf.reshape(len(tree.leaves), -1)
        tree.aggregate(counts)
        total = int(counts[0].sum())
        proof = certify(tree, noisy, counts, groups=total, level_weights=weights)
        best = linear_program(tree, noisy, total, weights)
        assert proof.optimal == (proof.objective == best)
        verdicts.add(proof.optimal)
    assert verdicts == {True, False}


@pytest.mark.parametrize("spoil", ["negative", "child", "root", "huge"])
def test_a_table_that_breaks_a_constraint_is_not_feasible(spoil):
    tree = layered_tree(2, 2)
    counts = np.zeros((tree.regions, 3), dtype=np.int64)
    counts[tree.leaves] = 1
    tree.aggregate(counts)
    noisy, groups = counts.copy(), int(counts[0].sum())
    assert certify(tree, noisy, counts, groups=groups).feasible
    if spoil == "negative":
        counts = moved(tree, moved(tree, counts, (3, 0), (4, 0)), (3, 0), (4, 0))
    elif spoil == "child":
        counts[5, 1] += 1
    elif spoil == "root":
        groups += 1
    else:
        counts[:, 0] = np.iinfo(np.int64).max
    proof = certify(tree, noisy, counts, groups=groups)
    assert not proof.feasible
    assert not proof.optimal
    assert proof.worst_exchange is None


def test_where_no_unit_can_move_there_is_no_exchange_to_price():
    tree = layered_tree(2, 2)
    zeros = np.zeros((tree.regions, 3), dtype=np.int64)
    proof = certify(tree, zeros + 5, zeros, groups=0)
    assert proof.optimal
    assert proof.worst_exchange is None
    assert proof.objective == 25 * 21


def test_the_objective_is_exact_where_squares_exceed_64_bits():
    tree = layered_tree(2)
    noisy = np.full((3, 2), -(2**50), dtype=np.int64)
    counts = np.array([[2, 0], [1, 0], [1, 0]])
    proof = certify(tree, noisy, counts, groups=2, level_weights=[3, 1])
    assert proof.objective == objective(tree, noisy, counts, [3, 1])


def test_costs_that_could_overflow_are_refused_with_the_remedy():
    tree = layered_tree(2)
    counts = np.array([[2, 0], [1, 0], [1, 0]])
    with pytest.raises(CertificateOverflow, match="Remedy: "):
        certify(tree, np.full((3, 2), 2**61), counts, groups=2)


def test_tables_of_different_shapes_are_refused():
    tree = layered_tree(2)
    with pytest.raises(CertificateInputError, match="Remedy: "):
        certify(tree, np.zeros((3, 2), np.int64), np.zeros((3, 3), np.int64), groups=0)
