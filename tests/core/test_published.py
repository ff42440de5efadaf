"""The paper's printed numbers, and what follows from them alone."""

from __future__ import annotations

import numpy as np

from pgsr_core.evaluation.datasets import census_like
from pgsr_core.evaluation.published import CENSUS, COMPARED, EPSILONS, TABLE_1, TAXI, clear_orders


def test_every_row_of_table_1_is_there():
    assert len(TABLE_1) == 2 * len(EPSILONS) * len(COMPARED)
    assert TABLE_1[TAXI, "0.1", "direct"].l1 == (266_000, 1_219_000, 9_157_000)
    assert TABLE_1[CENSUS, "1", "cumulative"].total == 100 + 3_200 + 91_000


def test_clear_orders_are_those_with_a_gap_of_more_than_a_fifth():
    found = {
        (order.smaller, order.larger)
        for order in clear_orders(CENSUS)
        if (order.epsilon, order.level) == ("0.1", 3)
    }
    assert found == {
        ("relaxed-cumulative", "relaxed-counts"),
        ("relaxed-cumulative", "direct"),
        ("cumulative", "relaxed-counts"),
        ("cumulative", "direct"),
    }
    assert all(order.gap > 0.2 for data in (CENSUS, TAXI) for order in clear_orders(data))


def test_made_up_counties_make_a_census():
    data = census_like(counties=60, seed=2)
    assert data.name == "census-like"
    assert np.diff(data.tree.level_start).tolist() == [1, 52, 60]
    assert (data.tree.children_sums(data.counts) == data.counts).all()
    assert (census_like(counties=60, seed=2).counts == data.counts).all()
