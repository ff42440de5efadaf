"""The region tree as the solver walks it: internal nodes in preorder, leaves gathered in pools.

A *pool* is the set of leaf children of one region. They lie on one level, hence share a weight,
and are solved together. A region with both leaf and internal children gets a *virtual* node of
weight 0 for its pool, so that every node is either a pool (leaves only) or a branch (nodes
only): a node of weight 0 hands multipliers and totals through unchanged.

Preorder keeps a subtree contiguous: a walk down and back up touches each node's state twice
within a short time, and what passes between levels is one row of a stack for each depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree

Int = NDArray[np.int64]
Real = NDArray[np.float64]

NO_ROW = -1


class Layout(NamedTuple):
    """Internal nodes in preorder; node 0 is the root.

    Attributes:
        row: the node's region, ``NO_ROW`` for a virtual node.
        depth: distance from the root.
        above: the parent's number, −1 for the root.
        stop: the subtree of node i is ``i : stop[i]``; its first child is i + 1, and the
            sibling that follows it is ``stop[i]``.
        pool: number of the node's pool, −1 for a branch.
        first_leaf: the leaves of node i are ``leaf_row[first_leaf[i] : first_leaf[i + 1]]``.
        leaf_row: regions of the leaves, pool by pool.
        weight: the node's weight, 0 for a virtual node.
        leaf_weight: the weight of its leaves, 1 for a branch.
    """

    row: Int
    depth: Int
    above: Int
    stop: Int
    pool: Int
    first_leaf: Int
    leaf_row: Int
    weight: Int
    leaf_weight: Int

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.row)

    @property
    def pools(self) -> int:
        """Number of pools."""
        return int(self.pool.max()) + 1

    @property
    def largest_pool(self) -> int:
        """Leaves of the largest pool."""
        return int(np.diff(self.first_leaf).max())


def lay_out(tree: RegionTree, level_weights: Sequence[int]) -> Layout:
    """Number the internal nodes of a tree with at least two regions."""
    arrays = _preorder(
        tree.first_child, tree.level, tree.is_leaf, np.array(level_weights, dtype=np.int64)
    )
    return Layout(*arrays)


@njit(cache=True)
def _preorder(
    first_child: Int, level: Int, is_leaf: NDArray[np.bool_], weights: Int
) -> tuple[Int, ...]:
    regions = len(is_leaf)
    internal = regions - is_leaf.sum()
    limit = 2 * internal
    row = np.empty(limit, np.int64)
    depth = np.empty(limit, np.int64)
    above = np.empty(limit, np.int64)
    pool = np.full(limit, -1, np.int64)
    first_leaf = np.zeros(limit + 1, np.int64)
    leaf_row = np.empty(regions - internal, np.int64)
    weight = np.zeros(limit, np.int64)
    leaf_weight = np.ones(limit, np.int64)
    waiting = np.empty(internal + 1, np.int64)
    waiting_above = np.empty(internal + 1, np.int64)
    waiting[0], waiting_above[0] = 0, -1
    stacked, nodes, leaves, pools = 1, 0, 0, 0
    # Invariant: rows of nodes before `nodes` are final; `waiting` holds internal regions whose
    # parents are numbered, the next one in preorder on top.
    while stacked:
        stacked -= 1
        region, node = waiting[stacked], nodes
        row[node], depth[node], above[node] = region, level[region], waiting_above[stacked]
        weight[node] = weights[level[region]]
        first_leaf[node] = leaves
        nodes += 1
        inner = 0
        for child in range(first_child[region + 1] - 1, first_child[region] - 1, -1):
            if not is_leaf[child]:
                waiting[stacked], waiting_above[stacked] = child, node
                stacked += 1
                inner += 1
        if inner == first_child[region + 1] - first_child[region]:
            continue
        owner = node
        if inner:
            owner = nodes
            row[owner], depth[owner], above[owner] = NO_ROW, depth[node] + 1, node
            first_leaf[owner] = leaves
            nodes += 1
        pool[owner] = pools
        pools += 1
        leaf_weight[owner] = weights[level[region] + 1]
        for child in range(first_child[region], first_child[region + 1]):
            if is_leaf[child]:
                leaf_row[leaves] = child
                leaves += 1
    first_leaf[nodes] = leaves
    stop = np.arange(1, nodes + 1)
    for node in range(nodes - 1, 0, -1):
        stop[above[node]] = max(stop[above[node]], stop[node])
    return (
        row[:nodes].copy(),
        depth[:nodes].copy(),
        above[:nodes].copy(),
        stop,
        pool[:nodes].copy(),
        first_leaf[: nodes + 1].copy(),
        leaf_row,
        weight[:nodes].copy(),
        leaf_weight[:nodes].copy(),
    )
