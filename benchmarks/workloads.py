"""Inputs that look like the real thing: uneven trees, heavy-tailed sizes, seeded noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree

Int = NDArray[np.int64]
CHUNK_CELLS = 1 << 22
EMPTY_UNITS = 0.08
"""Public units without people, as a share of the others."""


@dataclass(frozen=True)
class Shape:
    """A region tree and a range of sizes.

    Attributes:
        name: short, for the report.
        regions: how many regions there are on each level, root first.
        sizes: how many sizes.
        groups_a_leaf: how many groups an average leaf has.
        typical_size: where the sizes of most groups lie.
    """

    name: str
    regions: tuple[int, ...]
    sizes: int
    groups_a_leaf: float
    typical_size: float

    @property
    def label(self) -> str:
        return f"{self.name} {'+'.join(f'{r:,}' for r in self.regions)} × {self.sizes:,}"


US = Shape("US", (1, 52, 3_143), 1_000, groups_a_leaf=35_000, typical_size=2.5)
TAXI_ZONES = Shape("taxi", (1, 6, 263), 13_282, groups_a_leaf=400, typical_size=900)
TAXI_BLOCKS = Shape("taxi", (1, 6, 3_973), 13_282, groups_a_leaf=40, typical_size=900)
DEEP = Shape(
    "deep",
    (1, 4, 20, 100, 400, 2_000, 10_000, 40_000, 200_000, 1_000_000),
    50,
    groups_a_leaf=60,
    typical_size=2.5,
)


def tiny(shape: Shape) -> Shape:
    """The same kind of input, small enough for a smoke test."""
    levels = len(shape.regions)
    regions = (1, 4, 40) if levels == 3 else tuple(2**level for level in range(levels))
    return replace(shape, name=f"tiny {shape.name}", regions=regions, sizes=min(shape.sizes, 30))


@dataclass(frozen=True)
class Workload:
    """One solver input: the noisy table and the public facts beside it."""

    shape: Shape
    tree: RegionTree
    noisy: Int
    groups: int
    groups_by_region: Int
    scale: float

    @property
    def label(self) -> str:
        return f"{self.shape.label}, λ = {self.scale:g}"


def counts(shape: Shape, *, scale: float, seed: int = 1) -> Workload:
    """Noisy counts n (regions × sizes), as the CPWL step gets them."""
    rng = np.random.default_rng([seed, shape.sizes, *shape.regions])
    tree = uneven_tree(shape.regions, rng)
    truth = _true_counts(shape, tree, rng)
    groups_by_region = truth.sum(axis=1)
    _add_noise(truth, scale, rng)
    return Workload(shape, tree, truth, int(groups_by_region[0]), groups_by_region, scale)


def cumulative(shape: Shape, *, scale: float, seed: int = 1) -> Workload:
    """Noisy counts of groups of at least each size, with public units that may be empty."""
    rng = np.random.default_rng([seed, shape.sizes, *shape.regions])
    tree = uneven_tree(shape.regions, rng)
    table = _true_counts(shape, tree, rng)
    # c_k = n_k + c_(k+1), from the top down, in place: one column at a time is one stride.
    np.cumsum(table[:, ::-1], axis=1, out=table[:, ::-1])
    empty = np.zeros(tree.regions, dtype=np.int64)
    leaves = tree.is_leaf
    empty[leaves] = rng.poisson(EMPTY_UNITS * table[leaves, 0])
    groups_by_region = table[:, 0] + tree.aggregate(empty)
    _add_noise(table, scale, rng)
    return Workload(shape, tree, table, int(groups_by_region[0]), groups_by_region, scale)


def uneven_tree(regions: tuple[int, ...], rng: np.random.Generator) -> RegionTree:
    """A tree with this many regions a level; families differ, as counties of states do."""
    level_start = np.concatenate([[0], np.cumsum(regions)])
    parent = [np.array([-1])]
    for level in range(1, len(regions)):
        above, here = regions[level - 1], regions[level]
        # One child each, the others in proportion to a Dirichlet draw: nobody is a leaf early.
        extra = rng.multinomial(here - above, rng.dirichlet(np.full(above, 3.0)))
        parent.append(np.repeat(np.arange(level_start[level - 1], level_start[level]), 1 + extra))
    parents = np.concatenate(parent).astype(np.int64)
    first_child = np.searchsorted(parents[1:], np.arange(len(parents) + 1)) + 1
    return RegionTree(
        names=tuple(map(str, range(len(parents)))),
        parent=parents,
        first_child=first_child.astype(np.int64),
        level_start=level_start.astype(np.int64),
    )


def _true_counts(shape: Shape, tree: RegionTree, rng: np.random.Generator) -> Int:
    """Groups by size: leaves from a log-normal body with a power tail, then summed up the tree."""
    table = np.zeros((tree.regions, shape.sizes), dtype=np.int64)
    leaves = len(tree.leaves)
    first = tree.regions - leaves  # no leaf lies above the last level
    groups = shape.groups_a_leaf * rng.lognormal(-0.5, 1.0, leaves)
    typical = shape.typical_size * rng.lognormal(0.0, 0.2, leaves)
    sizes = np.arange(1, shape.sizes + 1)
    tail = sizes**-2.0 / (sizes**-2.0).sum()
    rows = max(1, CHUNK_CELLS // shape.sizes)
    for start in range(0, leaves, rows):
        part = slice(start, start + rows)
        body = np.exp(-0.5 * (np.log(sizes / typical[part, None]) / 0.6) ** 2) / sizes
        body /= body.sum(axis=1, keepdims=True)
        expected = groups[part, None] * (0.97 * body + 0.03 * tail)
        table[first + start : first + start + len(body)] = rng.poisson(expected)
    return tree.aggregate(table)


def _add_noise(table: Int, scale: float, rng: np.random.Generator) -> None:
    """Add double-geometric noise, P(X = v) ∝ exp(−|v| / scale), in place.

    It is the difference of two geometric variables, each the whole part of an exponential one.
    """
    rows = max(1, CHUNK_CELLS // table.shape[1])
    for start in range(0, len(table), rows):
        part = table[start : start + rows]
        for sign in (1, -1):
            part += sign * (scale * rng.standard_exponential(part.shape)).astype(np.int64)
