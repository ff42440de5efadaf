"""The program's data as flat arrays: who is internal, which leaves form a pool, which weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pgsr_core.errors import PgsrError
from pgsr_core.hierarchy import RegionTree

Int = NDArray[np.int64]
Real = NDArray[np.float64]

TABLE_DIMENSIONS = 2
# Leaves that one parallel task takes. Tasks do not depend on the number of threads and their
# sums are added in a fixed order, so neither does the result.
LEAVES_A_TASK = 48
# How much heavier than its children a region is when its own row is held monotone too. Below,
# multipliers are moderate and the plain quadratic term makes the better Newton system.
HEAVY = 30.0


class ProjectionInputError(PgsrError):
    """The arguments do not describe a cumulative program on this tree."""


class Layout(NamedTuple):
    """The tree as the dual sees it: one multiplier row for each internal region.

    A named tuple, because compiled kernels take one as an argument.

    Attributes:
        internal: regions with children, breadth first, so parents come before children.
        above: for each internal region the position in `internal` of its parent, −1 at the root.
        stiffness: 1/weight of each internal region.
        held: internal regions whose own row is kept monotone and bounded as well. That follows
            from the leaves, so it changes no optimum; it does keep the multipliers of heavy
            regions from having to carry all of their rows' noise, times the weight.
        leaves: regions without children; those of one parent (a pool) are contiguous.
        leaf_stiffness: 1/weight of the leaves of each internal region's pool.
        pool_leaves: internal region i's pool is ``leaves[pool_leaves[i] : pool_leaves[i + 1]]``.
        steepest: the largest curvature of the dual along each internal region's multipliers.
        task_pool: which internal region's leaves each task takes.
        task_start: the leaves of task t are ``task_start[t] : task_start[t + 1]``.
        pool_start: the tasks of internal region i are ``pool_start[i] : pool_start[i + 1]``.
        root_total: what the root's first column is pinned to; −1 where it is free.
    """

    internal: Int
    above: Int
    stiffness: Real
    held: NDArray[np.bool_]
    leaves: Int
    leaf_stiffness: Real
    pool_leaves: Int
    steepest: Real
    task_pool: Int
    task_start: Int
    pool_start: Int
    root_total: float

    @classmethod
    def of(cls, tree: RegionTree, weights: Real, *, root_total: float) -> Layout:
        """Lay out a tree of at least two regions; `weights` has one entry for each level."""
        internal = np.flatnonzero(~tree.is_leaf)
        position = np.full(tree.regions, -1)
        position[internal] = np.arange(len(internal))
        above = np.where(internal > 0, position[tree.parent[internal]], -1)
        leaves = tree.leaves.copy()
        pool_sizes = np.bincount(position[tree.parent[leaves]], minlength=len(internal))
        pool_leaves = np.concatenate([[0], np.cumsum(pool_sizes)])
        tasks = -(-pool_sizes // LEAVES_A_TASK)
        pool_start = np.concatenate([[0], np.cumsum(tasks)])
        task_pool = np.repeat(np.arange(len(internal)), tasks)
        number_in_pool = np.arange(len(task_pool)) - pool_start[task_pool]
        task_start = pool_leaves[task_pool] + number_in_pool * LEAVES_A_TASK
        level = tree.level[internal]
        stiffness = 1.0 / weights[level]
        # The deepest level has no internal region, so level + 1 exists.
        leaf_stiffness = 1.0 / weights[level + 1]
        steepest = leaf_stiffness * pool_sizes + stiffness
        np.add.at(steepest, above[1:], stiffness[1:])
        return cls(
            internal=internal,
            above=above,
            stiffness=stiffness,
            held=leaf_stiffness >= HEAVY * stiffness,
            leaves=leaves,
            leaf_stiffness=leaf_stiffness,
            pool_leaves=pool_leaves,
            steepest=steepest,
            task_pool=task_pool,
            task_start=np.append(task_start, len(leaves)),
            pool_start=pool_start,
            root_total=root_total,
        )


def checked_weights(tree: RegionTree, level_weights: Sequence[float] | None) -> Real:
    """One positive weight for each level, scaled so that the leaves' level has 1."""
    weights = np.ones(tree.levels) if level_weights is None else np.array(level_weights, float)
    if weights.shape != (tree.levels,) or not (np.isfinite(weights).all() and (weights > 0).all()):
        raise ProjectionInputError(
            f"level weights must be {tree.levels} positive numbers, root first. "
            f"Remedy: give one weight for each level of the region tree."
        )
    scaled: Real = weights / weights[-1]
    return scaled


def checked_table(tree: RegionTree, table: NDArray[Any], kind: type[np.generic]) -> None:
    """Refuse what is not a regions × sizes table of this tree and of this kind of number."""
    if table.ndim != TABLE_DIMENSIONS or table.shape[0] != tree.regions or table.shape[1] == 0:
        raise ProjectionInputError(
            f"a table of shape {table.shape} does not fit a tree of {tree.regions} regions and "
            f"at least one size. Remedy: pass the measurements of this tree."
        )
    if not np.can_cast(table.dtype, kind):
        raise ProjectionInputError(
            f"a table of {table.dtype} is not one of {np.dtype(kind)}. "
            f"Remedy: convert the table, deciding how to round."
        )


def checked_groups(tree: RegionTree, groups: int, groups_by_region: Int | None) -> Int:
    """The largest cumulative count of each region: its public total, or G where none is public."""
    if groups < 0:
        raise ProjectionInputError("the number of groups is negative. Remedy: check the units.")
    if groups_by_region is None:
        return np.full(tree.regions, groups, dtype=np.int64)
    totals = np.array(groups_by_region, dtype=np.int64)
    if totals.shape != (tree.regions,) or (totals < 0).any() or totals[0] != groups:
        raise ProjectionInputError(
            "public totals must be one number of groups for each region, with the root's equal "
            "to the number of groups. Remedy: count the public unit table anew."
        )
    if (tree.children_sums(totals) != totals).any():
        raise ProjectionInputError(
            "public totals of children do not add up to their parent's. "
            "Remedy: count the public unit table anew."
        )
    return totals
