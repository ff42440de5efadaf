"""Stores with very many sizes, made by DuckDB in a moment: a root and the regions below it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from pgsr_core.margins import MARGINS
from pgsr_core.mechanisms import MECHANISMS
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.solvers.isotonic import isotonic_integers
from tasks.publication.facts import BundleFacts, StatedLevel
from tasks.storage.duck import connect
from tests.tasks.test_publication_bundle import example_facts

_REGION = "'r' || lpad({}::VARCHAR, 4, '0')"
"""Ids whose order is that of their numbers, as it is in a tree."""


def large_store(path: Path, *, regions: int, largest: int) -> Path:
    """A root and equal regions below it: few groups of large sizes, many of small ones."""
    cells = f"range({regions}) AS r(i), range({largest + 1}) AS s(k)"
    count = "(CASE WHEN k % 7 = 0 THEN 100000 // (k + 1) ELSE 0 END)"
    value = f"{count} * (CASE WHEN i = 0 THEN {regions - 1} ELSE 1 END)"
    above = "CAST(sum(value) OVER (PARTITION BY region_index ORDER BY size DESC) AS BIGINT)"
    with connect(path) as store:
        store.execute(f"""
            CREATE TABLE regions AS SELECT i::INTEGER AS region_index,
            {_REGION.format("i")} AS region,
            CASE WHEN i > 0 THEN {_REGION.format("0")} END AS parent,
            (CASE WHEN i > 0 THEN 2 ELSE 1 END)::INTEGER AS "level",
            'Region ' || i AS "name", NULL::BIGINT AS groups FROM range({regions}) t(i)
        """)
        store.execute(f"""
            CREATE TABLE group_sizes AS SELECT i::INTEGER AS region_index, k::INTEGER AS size,
            ({value})::BIGINT AS value FROM {cells}
        """)
        store.execute(f"""
            CREATE TABLE measurements AS SELECT region_index, size,
            {above} + (hash(region_index, size) % 13)::BIGINT - 6 AS value FROM group_sizes
            QUALIFY size > 0
        """)
        _put_in_order(store, regions, largest)
        store.execute("""
            CREATE TABLE margins AS SELECT region_index, size, greatest(value - 3, 0) AS lower_90,
            value + 3 AS upper_90, greatest(value - 5, 0) AS lower_95, value + 5 AS upper_95
            FROM group_sizes
        """)
        store.execute(f"""
            CREATE TABLE margins_by_level AS SELECT i::INTEGER AS level_index, k::INTEGER AS size,
            (3 + k % 2)::BIGINT AS half_width_90, 5::BIGINT AS half_width_95
            FROM range(2) AS r(i), range({largest + 1}) AS s(k)
        """)
    return path


def _put_in_order(store: duckdb.DuckDBPyConnection, regions: int, largest: int) -> None:
    """The isotonic stage, as the mechanism computes it where no number of groups is public."""
    found = store.execute("SELECT value FROM measurements ORDER BY region_index, size").fetchnumpy()
    noisy = found["value"].reshape(regions, largest)
    fitted = isotonic_integers(noisy, upper=np.full(regions, groups_of(regions, largest)))
    frame = pa.table(
        {
            "region_index": pa.array(np.repeat(np.arange(regions), largest), pa.int32()),
            "size": pa.array(np.tile(np.arange(1, largest + 1), regions), pa.int32()),
            "value": pa.array(fitted.ravel(), pa.int64()),
        }
    )
    store.register("incoming", frame)
    store.execute("CREATE TABLE isotonic AS SELECT * FROM incoming")
    store.unregister("incoming")


def groups_of(regions: int, largest: int) -> int:
    """How many groups such a release has."""
    return (regions - 1) * sum(100_000 // (size + 1) for size in range(0, largest + 1, 7))


def large_facts(*, regions: int, largest: int, **changes: object) -> BundleFacts:
    """What the documents say of such a store."""
    facts = example_facts(
        levels=tuple(
            StatedLevel(level, many, many * largest, Fraction(1, 4), Fraction(4), 3.98)
            for level, many in ((1, 1), (2, regions - 1))
        ),
        largest_size=largest,
        groups=groups_of(regions, largest),
        units_from_data=False,
        certificates={"isotonic": {}, "cpwl": {}, MARGINS: {"repetitions": 40}},
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


def large_direct_facts(*, regions: int, largest: int) -> BundleFacts:
    """The same, had the counts themselves been measured."""
    levels = tuple(
        StatedLevel(level, many, many * (largest + 1), Fraction(1, 4), Fraction(8), 7.99)
        for level, many in ((1, 1), (2, regions - 1))
    )
    return large_facts(
        regions=regions,
        largest=largest,
        query=Query.COUNTS,
        mechanism="direct",
        notation=MECHANISMS["direct"].notation,
        sensitivity=2,
        levels=levels,
        certificates={"cpwl": {}, MARGINS: {"repetitions": 40}},
    )
