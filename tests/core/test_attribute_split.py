"""The split over levels and tables: exact fractions, never worse than equal, deterministic."""

from __future__ import annotations

import numpy as np
import pytest

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.attribute_tables.schema import TablesDoNotFit, schema
from pgsr_core.solvers.attribute_tables.split import (
    equal_shares,
    optimised_shares,
    relative_error,
)
from tests.core.attribute_oracles import random_schema, random_tree


def balanced_tree(children: int, levels: int) -> RegionTree:
    names, parents, last = ["r"], [None], ["r"]
    for _ in range(levels - 1):
        fresh = [f"{one}{child:02d}" for one in last for child in range(children)]
        parents += [one for one in last for _ in range(children)]
        names, last = names + fresh, fresh
    return RegionTree.from_table(names, parents)


@pytest.mark.parametrize("seed", range(6))
def test_shares_add_up_to_exactly_one_and_are_never_worse_than_equal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree, tables = random_tree(rng, int(rng.integers(1, 30))), random_schema(rng)
    weights = rng.uniform(0, 2, (tree.levels, len(tables.tables)))
    shares = optimised_shares(tree, tables, weights=weights)
    assert sum(map(sum, shares)) == 1
    assert min(map(min, shares)) >= 0
    assert relative_error(tree, tables, shares, weights=weights) <= 1.0 + 1e-12
    assert shares == optimised_shares(tree, tables, weights=weights)


def test_a_good_split_beats_the_equal_one_clearly() -> None:
    tables = schema([6, 2, 2], [[], [0], [1], [2], [0, 1, 2]])
    tree = balanced_tree(8, 3)
    assert relative_error(tree, tables, optimised_shares(tree, tables)) < 0.85


def test_what_is_public_takes_no_share() -> None:
    tables = schema([3, 2], [[], [0, 1]])
    tree = balanced_tree(3, 2)
    exact = np.array([[True, False], [False, False]])
    shares = optimised_shares(tree, tables, exact=exact)
    assert shares[0][0] == 0
    assert sum(map(sum, shares)) == 1
    assert sum(map(sum, equal_shares(2, 2, exact=exact))) == 1


def test_no_random_split_is_much_better() -> None:
    from fractions import Fraction

    tables = schema([3, 2], [[], [0], [0, 1]])
    tree = balanced_tree(4, 2)
    best = relative_error(tree, tables, optimised_shares(tree, tables))
    rng = np.random.default_rng(0)
    for _ in range(300):
        drawn = rng.dirichlet(np.full(6, 0.4))
        shares = tuple(tuple(Fraction(float(one)) for one in row) for row in drawn.reshape(2, 3))
        assert relative_error(tree, tables, shares) > best * 0.999


def test_weights_of_another_shape_are_refused() -> None:
    with pytest.raises(TablesDoNotFit, match="Remedy"):
        optimised_shares(balanced_tree(2, 2), schema([2], [[0]]), weights=[[1.0]])
