"""Small releases for the gates' tests: a sound table in a store, and a slow twin of the gates."""

from __future__ import annotations

from collections import defaultdict

import duckdb
import numpy as np

from expectations import GateReport, Promises
from pgsr_core.hierarchy import RegionTree
from pgsr_core.postprocessing.protocol import PublicFacts

# Ragged: c ends at level 2, a's children at level 3, b1's at level 4.
RAGGED = RegionTree.from_table(
    ["root", "a", "b", "c", "a1", "a2", "b1", "b2", "b1x", "b1y"],
    [None, "root", "root", "root", "a", "a", "b", "b", "b1", "b1"],
)

Row = tuple[int | None, int | None, int]


def facts_of(tree: RegionTree, values: np.ndarray, *, smallest_size: int = 0) -> PublicFacts:
    return PublicFacts(
        tree=tree,
        smallest_size=smallest_size,
        largest_size=smallest_size + values.shape[1] - 1,
        groups=int(sum(int(value) for value in values[0])),
        groups_by_region=np.array([sum(int(v) for v in row) for row in values], dtype=np.int64),
    )


def sound_values(tree: RegionTree, leaf_values: np.ndarray) -> np.ndarray:
    values = np.zeros((tree.regions, leaf_values.shape[1]), dtype=np.int64)
    values[tree.leaves] = leaf_values
    return tree.aggregate(values)


def ragged_release(*, scale: int = 1) -> tuple[PublicFacts, np.ndarray]:
    """Sizes 0..3; every cell is positive but the last of every region, which is zero."""
    leaves = len(RAGGED.leaves)
    leaf_values = np.arange(3, 3 + 4 * leaves, dtype=np.int64).reshape(leaves, 4) * scale
    leaf_values[:, 3] = 0
    values = sound_values(RAGGED, leaf_values)
    return facts_of(RAGGED, values), values


def rows_of(facts: PublicFacts, values: np.ndarray) -> list[Row]:
    return [
        (region, size, int(values[region, column]))
        for region in range(facts.tree.regions)
        for column, size in enumerate(facts.sizes)
    ]


def store(
    facts: PublicFacts, rows: list[Row], *, database: str = ":memory:"
) -> duckdb.DuckDBPyConnection:
    tree = facts.tree
    connection = duckdb.connect(database)
    connection.execute(
        "CREATE TABLE group_sizes (region_index INTEGER, size INTEGER, value BIGINT)"
    )
    if rows:
        connection.executemany("INSERT INTO group_sizes VALUES (?, ?, ?)", rows)
    connection.execute(
        "CREATE TABLE regions (region_index INTEGER, region VARCHAR, parent VARCHAR,"
        " level INTEGER, name VARCHAR, groups BIGINT)"
    )
    public = facts.groups_by_region
    connection.executemany(
        "INSERT INTO regions VALUES (?, ?, ?, ?, ?, ?)",
        [
            (
                index,
                region,
                None if tree.parent[index] < 0 else tree.names[tree.parent[index]],
                int(tree.level[index]) + 1,
                f"Region {region}",
                None if public is None else int(public[index]),
            )
            for index, region in enumerate(tree.names)
        ],
    )
    return connection


def failed_checks(report: GateReport) -> set[str]:
    return {outcome.name for outcome in report.failed}


def failed_suites(report: GateReport) -> set[str]:
    return {str(outcome.suite) for outcome in report.failed}


def failures_by_hand(rows: list[Row], promises: Promises) -> set[str]:
    """The slow, obvious twin of the gates, for rows of whole numbers and sound regions."""
    facts, tree = promises.facts, promises.facts.tree
    found: dict[tuple[int | None, int | None], list[int]] = defaultdict(list)
    for region, size, value in rows:
        found[region, size].append(value)
    grid = [(region, size) for region in range(tree.regions) for size in facts.sizes]
    failures = set()
    if any(len(found.get(cell, [])) != 1 for cell in grid):
        failures.add("every-cell-once")
    if len(rows) != len(grid) or set(found) - set(grid):
        failures.add("nothing-extra")
    missing = any(cell not in found for cell in grid)
    if missing:
        failures |= {"counts-are-whole", "no-negative-count", "children-sum-to-parent"}
    if any(sum(found.get(cell, [])) < 0 for cell in grid):
        failures.add("no-negative-count")
    for region, size in grid:
        children = range(tree.first_child[region], tree.first_child[region + 1])
        total = sum(sum(found.get((child, size), [])) for child in children)
        if children and total != sum(found.get((region, size), [])):
            failures.add("children-sum-to-parent")
    return failures | _wrong_totals(rows, promises)


def _wrong_totals(rows: list[Row], promises: Promises) -> set[str]:
    facts, tree = promises.facts, promises.facts.tree
    failures = set()
    totals: dict[int, int | None] = dict.fromkeys(range(tree.regions))
    for region, _, value in rows:
        if region in totals:
            totals[region] = (totals[region] or 0) + value
    for level in range(tree.levels):
        members = [
            region
            for region in range(tree.regions)
            if tree.level[region] == level or (tree.is_leaf[region] and tree.level[region] < level)
        ]
        sums = [totals[region] for region in members]
        if None in sums or sum(s for s in sums if s is not None) != facts.groups:
            failures.add("levels-sum-to-groups")
    if totals[0] != facts.groups:
        failures.add("root-sums-to-groups")
    if promises.region_totals_are_promised and any(
        totals[region] != facts.groups_by_region[region] for region in range(tree.regions)
    ):
        failures.add("regions-sum-to-groups")
    return failures
