"""How far a release is from the truth, level by level, and which constraints it breaks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.postprocessing.steps import cumulative_from_counts

Int = NDArray[np.int64]
Real = NDArray[np.float64]

# A range that holds less than this share of a region's groups counts as if it held that much:
# otherwise the relative error would be that of ranges in which nobody lives.
SANITY_SHARE = 0.001


@dataclass(frozen=True)
class LevelError:
    """What went wrong at one level of the tree; level 1 is the root.

    Attributes:
        level: from 1.
        l1: Σ |n̂ − n| over the regions and sizes of the level (the papers' error).
        earth_mover: Σ |ĉ − c| over its regions and thresholds 1..N: how many steps of one size
            groups must be moved, all together.
        range_error: relative error of range queries, the mean over its regions and dyadic ranges.
    """

    level: int
    l1: int
    earth_mover: int
    range_error: float


def errors_by_level(
    tree: RegionTree, truth: Int, released: Int, *, smallest_size: int
) -> tuple[LevelError, ...]:
    """Compare two tables of counts (regions × sizes from `smallest_size` to N)."""
    largest_size = smallest_size + truth.shape[1] - 1
    cells = np.abs(released - truth).sum(axis=1)
    cumulative = cumulative_from_counts(released - truth, largest_size=largest_size)
    steps = np.abs(cumulative).sum(axis=1)
    ranges = _range_errors(truth, released, smallest_size)
    start = tree.level_start
    return tuple(
        LevelError(
            level=level + 1,
            l1=int(cells[start[level] : start[level + 1]].sum()),
            earth_mover=int(steps[start[level] : start[level + 1]].sum()),
            range_error=float(ranges[start[level] : start[level + 1]].mean()),
        )
        for level in range(tree.levels)
    )


def constraint_violations(tree: RegionTree, released: Int) -> int:
    """How many pairs (internal region, size) have children that do not add up to it.

    That is how Fioretto and Van Hentenryck 2019 count them ("whenever a subtree of the hierarchy
    violates the consistency condition", section 9.3), since each size has a tree of its own.
    """
    return int(np.count_nonzero(tree.children_sums(released) != released))


def dyadic_ranges(smallest_size: int, largest_size: int) -> list[range]:
    """Sizes 1, 2–3, 4–7, …, and 0 by itself: ranges as wide as they are far out."""
    ranges = [range(0, 1)] if smallest_size == 0 else []
    first = 1
    while first <= largest_size:
        ranges.append(range(first, min(2 * first, largest_size + 1)))
        first *= 2
    return ranges


def _range_errors(truth: Int, released: Int, smallest_size: int) -> Real:
    """The mean over the dyadic ranges of |q̂ − q| / max(q, SANITY_SHARE · groups, 1)."""
    largest_size = smallest_size + truth.shape[1] - 1
    starts = [part.start - smallest_size for part in dyadic_ranges(smallest_size, largest_size)]
    true = np.add.reduceat(truth, starts, axis=1)
    got = np.add.reduceat(released, starts, axis=1)
    least = np.maximum(SANITY_SHARE * truth.sum(axis=1, keepdims=True), 1.0)
    errors: Real = (np.abs(got - true) / np.maximum(true, least)).mean(axis=1)
    return errors
