"""The tree as a network: one arc for each cell, one node for each leaf, and for each other cell.

The arc of cell (r, s) carries x[r, s] from its *tail* to its *head*. The tail of a leaf's arcs is
the leaf itself, which supplies G_r; that of another region's arc is the node (r, s). The head is
the node (parent, s); for the root it is the sink. What flows through node (r, s) is what the
children of r hold of size s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.cpwl.layout import Int

Mask = NDArray[np.uint8]


class Network(NamedTuple):
    """Inner regions and leaves, each in the order of the tree; inner region 0 is the root.

    Attributes:
        inner_row: regions with children.
        leaf_row: regions without.
        above: the parent of each inner region, as its number among them; −1 for the root.
        pool: the parent of each leaf, likewise.
        first_inner: the inner children of i are ``first_inner[i] : first_inner[i + 1]``.
        first_leaf: the leaves among its children, likewise.
        weight: weight of each inner region.
        leaf_weight: weight of the leaves under each inner region (they lie on one level).
    """

    inner_row: Int
    leaf_row: Int
    above: Int
    pool: Int
    first_inner: Int
    first_leaf: Int
    weight: Int
    leaf_weight: Int


def build_network(tree: RegionTree, level_weights: Sequence[int]) -> Network:
    """Number the regions of a tree with at least two of them.

    Siblings are contiguous and in the order of their parents, hence so are the leaves among them.
    """
    weights = np.array([*level_weights, 1], dtype=np.int64)
    inner = np.flatnonzero(~tree.is_leaf)
    leaves = np.flatnonzero(tree.is_leaf)
    number = np.full(tree.regions + 1, -1, dtype=np.int64)  # the last is the parent of the root
    number[inner] = np.arange(len(inner))
    above, pool = number[tree.parent[inner]], number[tree.parent[leaves]]
    above[0] = -1
    edges = np.arange(len(inner) + 1)
    return Network(
        inner,
        leaves,
        above,
        pool,
        np.maximum(np.searchsorted(above, edges), 1),
        np.searchsorted(pool, edges),
        weights[tree.level[inner]],
        weights[tree.level[inner] + 1],
    )
