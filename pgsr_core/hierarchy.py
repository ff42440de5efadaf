"""The region tree: frozen, validated, laid out so that solvers walk arrays instead of objects.

Regions are numbered breadth first: the root is 0, the regions of a level are contiguous, and
so are the children of a region. Siblings are in the order of their names, so that two tables
that describe one tree give identical arrays whatever the order of their rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pgsr_core.errors import InputError

Int = NDArray[np.int64]
SHOWN_ROWS = 5


class TreeError(InputError):
    """The region table does not describe one rooted tree."""


class EmptyTree(TreeError):
    rule = "there must be at least one region"
    remedy = "give the root a row of its own, with an empty parent"


class RegionWithTwoParents(TreeError):
    rule = "each region must have exactly one row, hence one parent"
    remedy = "keep one row for each region"


class SeveralRoots(TreeError):
    rule = "exactly one region may have an empty parent"
    remedy = "give every region but the root its parent"


class NoRoot(TreeError):
    rule = "one region must have an empty parent"
    remedy = "leave the parent of the root empty"


class OrphanRegion(TreeError):
    rule = "every parent must be a region of the table"
    remedy = "add the missing parent, or correct its name"


class CyclicRegions(TreeError):
    rule = "no region may be its own ancestor"
    remedy = "break the cycle of parents"


@dataclass(frozen=True, eq=False)
class RegionTree:
    """A rooted tree of regions in breadth-first order; two are alike if their digests are.

    Attributes:
        names: region ids; ``names[0]`` is the root.
        parent: index of each region's parent, −1 for the root.
        first_child: the children of r are ``first_child[r] : first_child[r + 1]``
            (length R + 1); a leaf has an empty range.
        level_start: the regions of level l (0 is the root's) are
            ``level_start[l] : level_start[l + 1]``.
    """

    names: tuple[str, ...]
    parent: Int
    first_child: Int
    level_start: Int

    def __post_init__(self) -> None:
        for array in (self.parent, self.first_child, self.level_start):
            array.setflags(write=False)

    @classmethod
    def from_table(
        cls, regions: Sequence[str], parents: Sequence[str | None], *, table: str = "regions"
    ) -> RegionTree:
        """Build the tree from rows (region, parent); an empty or missing parent is the root's.

        Raises:
            TreeError: a subclass says which rule is broken and in which rows.
        """
        if not regions:
            raise EmptyTree(table=table)
        row_of: dict[str, int] = {}
        repeated: list[int] = []
        for row, region in enumerate(regions):
            if region in row_of:
                repeated.append(row)
            else:
                row_of[region] = row
        _refuse(RegionWithTwoParents, repeated, table=table, column="region")
        roots = [row for row, parent in enumerate(parents) if not parent]
        if not roots:
            raise NoRoot(table=table, column="parent")
        if len(roots) > 1:
            _refuse(SeveralRoots, roots, table=table, column="parent")
        orphans = [row for row, parent in enumerate(parents) if parent and parent not in row_of]
        _refuse(OrphanRegion, orphans, table=table, column="parent")

        children: dict[str, list[str]] = {}
        for region, parent in zip(regions, parents, strict=True):
            if parent:
                children.setdefault(parent, []).append(region)
        return cls._breadth_first(regions, children, root=regions[roots[0]], table=table)

    @classmethod
    def _breadth_first(
        cls, regions: Sequence[str], children: dict[str, list[str]], *, root: str, table: str
    ) -> RegionTree:
        names: list[str] = []
        parent: list[int] = []
        first_child: list[int] = []
        level_start = [0]
        level, level_parents = [root], [-1]
        # Invariant: `level` holds one whole level in final order, numbered from len(names) on.
        while level:
            offset = len(names)
            names.extend(level)
            parent.extend(level_parents)
            level_start.append(len(names))
            next_level: list[str] = []
            level_parents = []
            for index, region in enumerate(level, start=offset):
                first_child.append(len(names) + len(next_level))
                siblings = sorted(children.get(region, ()))
                next_level.extend(siblings)
                level_parents.extend([index] * len(siblings))
            level = next_level
        if len(names) < len(regions):
            reached = set(names)
            lost = [row for row, region in enumerate(regions) if region not in reached]
            _refuse(CyclicRegions, lost, table=table, column="parent")
        first_child.append(len(names))
        return cls(
            names=tuple(names),
            parent=np.array(parent, dtype=np.int64),
            first_child=np.array(first_child, dtype=np.int64),
            level_start=np.array(level_start, dtype=np.int64),
        )

    @classmethod
    def from_columns(cls, columns: Sequence[Sequence[str | None]], *, root: str) -> RegionTree:
        """Build the tree from one column a level, coarsest first, one row a leaf.

        Region ids must be unique over the whole tree; trailing empty cells end a branch early
        (a ragged tree).

        Raises:
            RegionWithTwoParents: an id stands under two different parents.
            OrphanRegion: a cell is filled to the right of an empty one.
        """
        parent_of: dict[str, str | None] = {root: None}
        clashes: list[int] = []
        gaps: list[int] = []
        for row, cells in enumerate(zip(*columns, strict=True)):
            above, ended = root, False
            for cell in cells:
                if not cell:
                    ended = True
                    continue
                if ended:
                    gaps.append(row)
                    break
                if parent_of.setdefault(cell, above) != above:
                    clashes.append(row)
                    break
                above = cell
        _refuse(OrphanRegion, gaps, table="regions", column="level columns")
        _refuse(RegionWithTwoParents, clashes, table="regions", column="level columns")
        return cls.from_table(list(parent_of), list(parent_of.values()))

    @property
    def regions(self) -> int:
        """Number of regions."""
        return len(self.names)

    @property
    def levels(self) -> int:
        """Number of levels; a lone root has one."""
        return len(self.level_start) - 1

    @cached_property
    def level(self) -> Int:
        """Level of each region, from 0."""
        level = np.repeat(np.arange(self.levels), np.diff(self.level_start))
        level.setflags(write=False)
        return level

    @cached_property
    def is_leaf(self) -> NDArray[np.bool_]:
        """Which regions have no children."""
        leaf: NDArray[np.bool_] = np.diff(self.first_child) == 0
        leaf.setflags(write=False)
        return leaf

    @cached_property
    def leaves(self) -> Int:
        """Indices of the leaves, in breadth-first order."""
        leaves = np.flatnonzero(self.is_leaf)
        leaves.setflags(write=False)
        return leaves

    @cached_property
    def index(self) -> dict[str, int]:
        """Region id → number."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the tree: ids in breadth-first order, and parents."""
        state = hashlib.sha256()
        for name in self.names:
            encoded = name.encode()
            state.update(len(encoded).to_bytes(8, "little") + encoded)
        state.update(self.parent.astype("<i8").tobytes())
        return state.hexdigest()

    def aggregate(self, values: Int) -> Int:
        """Sum leaf rows of a (regions, …) array into all ancestors, in place, and return it.

        Rows of internal regions must be zero on entry.
        """
        # Invariant: when level l is added to its parents, its rows are already final.
        for level in range(self.levels - 1, 0, -1):
            start, stop = self.level_start[level], self.level_start[level + 1]
            parents = self.parent[start:stop]
            heads = np.flatnonzero(np.diff(parents, prepend=-1))
            values[parents[heads]] += np.add.reduceat(values[start:stop], heads, axis=0)
        return values

    def children_sums(self, values: Int) -> Int:
        """For each region the sum of its children's rows; a leaf gets its own row."""
        sums = values.copy()
        sums[~self.is_leaf] = 0
        for level in range(self.levels - 1, 0, -1):
            start, stop = self.level_start[level], self.level_start[level + 1]
            parents = self.parent[start:stop]
            heads = np.flatnonzero(np.diff(parents, prepend=-1))
            sums[parents[heads]] = np.add.reduceat(values[start:stop], heads, axis=0)
        return sums


def _refuse(error: type[TreeError], rows: list[int], *, table: str, column: str) -> None:
    if rows:
        shown = tuple(row + 1 for row in rows[:SHOWN_ROWS])
        raise error(table=table, column=column, rows=shown, count=len(rows))
