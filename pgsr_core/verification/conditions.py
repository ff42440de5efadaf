"""The conditions that released counts must meet, checked on the numbers themselves.

(Fioretto and Van Hentenryck 2019, Definition 3: consistency, validity, integrality and
faithfulness.) Integrality and completeness are met by any table that was read into an array of
64-bit integers, each cell of it from exactly one row; see tables.py.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.verification.report import Report

Int = NDArray[np.int64]
_CELLS_AT_ONCE = 4_000_000
_LARGEST = 2**63 - 1


def check_conditions(report: Report, tree: RegionTree, counts: Int, *, groups: int) -> None:
    """Non-negativity, consistency, and faithfulness at every level."""
    lowest = int(counts.min())
    report.say(
        "non-negativity",
        lowest >= 0,
        holds="No count is negative.",
        else_="A count is negative.",
    )
    if not adds_up_in_64_bits(counts):
        for name in ("consistency", "faithfulness"):
            report.fail(name, "The counts are too large to be added up exactly.")
        return
    broken = inconsistent_cells(tree, counts)
    report.say(
        "consistency",
        broken == 0,
        holds="In every region and size the count is the sum of the regions below.",
        else_=f"{broken} counts differ from the sum of the regions below.",
    )
    totals = level_totals(tree, counts.sum(axis=1))
    report.say(
        "faithfulness",
        all(total == groups for total in totals),
        holds=f"At each of {tree.levels} levels the counts add up to {groups} groups.",
        else_=f"At some level the counts do not add up to {groups} groups.",
    )


def check_region_totals(report: Report, counts: Int, groups_by_region: Int | None) -> None:
    """Where it is promised, each region's counts add up to its public number of groups."""
    if groups_by_region is None:
        report.fail("region-totals", "Region totals are promised, but no public ones are given.")
        return
    report.say(
        "region-totals",
        adds_up_in_64_bits(counts) and np.array_equal(counts.sum(axis=1), groups_by_region),
        holds="In every region the counts add up to its public number of groups.",
        else_="In some region the counts do not add up to its public number of groups.",
    )


def adds_up_in_64_bits(values: Int) -> bool:
    """Say whether no sum of some of the values can leave the range of 64-bit integers."""
    return max(-int(values.min()), int(values.max())) <= _LARGEST // values.size


def inconsistent_cells(tree: RegionTree, counts: Int) -> int:
    """Count the cells that are not the sum of their children's."""
    step = max(1, _CELLS_AT_ONCE // tree.regions)
    # Sizes never meet in a sum over children, so a slice of sizes can be judged on its own.
    return sum(
        int(np.count_nonzero(tree.children_sums(part) != part))
        for part in (counts[:, start : start + step] for start in range(0, counts.shape[1], step))
    )


def level_totals(tree: RegionTree, region_totals: Int) -> list[int]:
    """Add up each level together with the leaves that end above it."""
    totals: list[int] = []
    ended_above = 0
    # Invariant: ended_above is the total of all leaves above the current level.
    for level in range(tree.levels):
        rows = slice(tree.level_start[level], tree.level_start[level + 1])
        here = region_totals[rows]
        totals.append(int(here.sum()) + ended_above)
        ended_above += int(here[tree.is_leaf[rows]].sum())
    return totals
