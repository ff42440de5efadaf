"""Stated sensitivities against every pair of neighbouring data sets of a small world."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from pgsr_core.postprocessing.protocol import Query
from pgsr_core.sensitivity import Neighbours, l1_sensitivity

# Two regions of one level: unit u lies in region u % 2. Three units are enough for a replaced
# record to leave one unit of a region and enter another of the same or of the other region.
UNITS = 3
REGIONS = 2
# Enough records to pass the largest size with Z = 1; with a larger Z fewer records reach it.
RECORDS = {1: 5, 2: 4, 3: 3}


def data_sets(largest_contribution, most=None):
    """Every data set of at most RECORDS[Z] records (unit, quantity), as a sorted tuple."""
    most = RECORDS[largest_contribution] if most is None else most
    records = list(itertools.product(range(UNITS), range(largest_contribution + 1)))
    for count in range(most + 1):
        yield from itertools.combinations_with_replacement(records, count)


def unit_sizes(records, *, with_unit_table):
    """Size of each unit; without a unit table only units with somebody in them are seen."""
    sizes = Counter(dict.fromkeys(range(UNITS), 0) if with_unit_table else {})
    for unit, quantity in records:
        sizes[unit] += quantity
    if with_unit_table:
        return dict(sizes)
    return {unit: size for unit, size in sizes.items() if size > 0}


def counts(sizes, largest_size, *, first):
    """n_k with top-coding, by the definition."""
    return [
        sum(
            unit % REGIONS == region and min(size, largest_size) == k
            for unit, size in sizes.items()
        )
        for region in range(REGIONS)
        for k in range(first, largest_size + 1)
    ]


def from_the_top(sizes, largest_size):
    """c_k = units of size at least k, by the definition."""
    return [
        sum(unit % REGIONS == region and size >= k for unit, size in sizes.items())
        for region in range(REGIONS)
        for k in range(1, largest_size + 1)
    ]


def from_the_bottom(sizes, largest_size):
    """The papers' c_s = units of size at most s, for s = 1..N; empty units are not counted."""
    return [
        sum(
            unit % REGIONS == region and 1 <= min(size, largest_size) <= s
            for unit, size in sizes.items()
        )
        for region in range(REGIONS)
        for s in range(1, largest_size + 1)
    ]


def from_the_top_dropped(sizes, largest_size):
    """The same from the top, with units above N dropped instead of top-coded."""
    kept = {unit: size for unit, size in sizes.items() if size <= largest_size}
    return from_the_top(kept, largest_size)


def largest_change(
    measure,
    *,
    neighbours,
    largest_contribution,
    with_unit_table=True,
    equal_groups=False,
    most=None,
):
    """The largest L1 distance of a query over every pair of neighbours (with equal G)."""

    def look(records):
        sizes = unit_sizes(records, with_unit_table=with_unit_table)
        return len(sizes), tuple(measure(sizes))

    tables = {records: look(records) for records in data_sets(largest_contribution, most)}
    # Distinct tables only: many data sets look alike, and replaced pairs are quadratic.
    by_rest = {}
    worst = 0
    for records, table in tables.items():
        for place in range(len(records)):
            rest = records[:place] + records[place + 1 :]
            if neighbours is Neighbours.ADD_REMOVE:
                worst = max(worst, distance(table, tables[rest], equal_groups=equal_groups))
            else:
                by_rest.setdefault(rest, set()).add(table)
    for others in by_rest.values():
        for one, other in itertools.combinations(others, 2):
            worst = max(worst, distance(one, other, equal_groups=equal_groups))
    return worst


def distance(one, other, *, equal_groups):
    if equal_groups and one[0] != other[0]:
        return 0
    return sum(abs(a - b) for a, b in zip(one[1], other[1], strict=True))


WORLDS = [(1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (2, 2), (3, 2), (1, 3), (2, 3), (4, 3)]


def queries(largest_size, *, with_unit_table):
    return {
        Query.CUMULATIVE: lambda sizes: from_the_top(sizes, largest_size),
        Query.COUNTS: lambda sizes: counts(sizes, largest_size, first=0 if with_unit_table else 1),
    }


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("with_unit_table", [True, False], ids=["unit-table", "from-data"])
@pytest.mark.parametrize(("largest_size", "largest_contribution"), WORLDS)
def test_the_stated_sensitivity_is_the_largest_change_between_neighbours(
    largest_size, largest_contribution, with_unit_table, neighbours
):
    for query, measure in queries(largest_size, with_unit_table=with_unit_table).items():
        found = largest_change(
            measure,
            neighbours=neighbours,
            largest_contribution=largest_contribution,
            with_unit_table=with_unit_table,
        )
        assert found == l1_sensitivity(
            query,
            neighbours=neighbours,
            largest_contribution=largest_contribution,
            largest_size=largest_size,
            units_from_data=not with_unit_table,
        )


@pytest.mark.parametrize(("largest_size", "largest_contribution"), WORLDS)
def test_between_neighbours_with_an_equal_number_of_groups_the_sensitivity_is_no_larger(
    largest_size, largest_contribution
):
    """What the claim covers where units come from the data; not made use of."""
    for query, measure in queries(largest_size, with_unit_table=False).items():
        stated = {
            neighbours: l1_sensitivity(
                query,
                neighbours=neighbours,
                largest_contribution=largest_contribution,
                largest_size=largest_size,
                units_from_data=True,
            )
            for neighbours in Neighbours
        }
        found = {
            neighbours: largest_change(
                measure,
                neighbours=neighbours,
                largest_contribution=largest_contribution,
                with_unit_table=False,
                equal_groups=True,
            )
            for neighbours in Neighbours
        }
        # A replaced record can close one unit and open another: nothing is won there.
        assert found[Neighbours.REPLACE] == stated[Neighbours.REPLACE]
        within_units = (
            min(largest_contribution, largest_size - 1)
            if query is Query.CUMULATIVE
            else 2 * (largest_size > 1)
        )
        assert found[Neighbours.ADD_REMOVE] == within_units <= stated[Neighbours.ADD_REMOVE]


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("largest_size", [1, 2, 3, 4])
def test_counting_from_the_bottom_as_the_papers_do_has_sensitivity_n_and_not_1(
    largest_size, neighbours
):
    found = largest_change(
        lambda sizes: from_the_bottom(sizes, largest_size),
        neighbours=neighbours,
        largest_contribution=1,
        with_unit_table=False,
    )
    assert found == largest_size * (1 if neighbours is Neighbours.ADD_REMOVE else 2)


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("largest_size", [1, 2, 3, 4])
def test_dropping_large_units_instead_of_top_coding_them_has_sensitivity_n(
    largest_size, neighbours
):
    found = largest_change(
        lambda sizes: from_the_top_dropped(sizes, largest_size),
        neighbours=neighbours,
        largest_contribution=1,
        # A unit of size N + 1 and one of size N, for a record to move between them.
        most=2 * largest_size + 1,
    )
    assert found == largest_size * (1 if neighbours is Neighbours.ADD_REMOVE else 2)


def test_the_product_measures_what_the_definition_measures():
    """Ties the enumeration above to the transform that a release uses."""
    import numpy as np

    from pgsr_core.postprocessing.steps import cumulative_from_counts

    largest_size = 3
    for records in itertools.islice(data_sets(3), 0, None, 7):
        sizes = unit_sizes(records, with_unit_table=True)
        table = np.array(counts(sizes, largest_size, first=0)).reshape(REGIONS, -1)
        measured = cumulative_from_counts(table, largest_size=largest_size)
        assert measured.ravel().tolist() == from_the_top(sizes, largest_size)


@pytest.mark.parametrize(("largest_contribution", "largest_size"), [(0, 3), (3, 0), (-1, 3)])
def test_bounds_below_one_are_refused(largest_contribution, largest_size):
    with pytest.raises(ValueError, match="must be at least 1"):
        l1_sensitivity(
            Query.COUNTS,
            neighbours=Neighbours.ADD_REMOVE,
            largest_contribution=largest_contribution,
            largest_size=largest_size,
        )
