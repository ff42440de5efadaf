"""Region tables: regular and uneven trees, and safe ids for regions that come with names only."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree

Int = NDArray[np.int64]
Float = NDArray[np.float64]
Path = tuple[str, ...]

LONGEST_ID = 64
DIGEST_LENGTH = 12
LONGEST_NAME = 200
# The wide forms start a formula in some locales' spreadsheets.
FORMULA_STARTS = "=+-@＝＋－＠"
# Controls to Unicode, yet ordinary spelling in Persian or Hindi.
JOINERS = "\u200c\u200d"
ADDED_ROOT = "all"
ADDED_ROOT_NAME = "All regions"


@dataclass(frozen=True)
class RegionTable:
    """Rows (region, parent, name), every parent before its children; the root is row 0.

    Attributes:
        ids: region ids, unique.
        parents: row of each region's parent, −1 for the root.
        names: what people call the regions; need not be unique.
    """

    ids: tuple[str, ...]
    parents: Int
    names: tuple[str, ...]

    @cached_property
    def leaves(self) -> Int:
        """Rows of the regions without children."""
        childless = np.ones(len(self.ids), dtype=np.bool_)
        childless[self.parents[1:]] = False
        return np.flatnonzero(childless)

    @cached_property
    def leaf_ids(self) -> tuple[str, ...]:
        """Ids of the leaves, in the order of `leaves`."""
        return tuple(self.ids[row] for row in self.leaves)

    @cached_property
    def depth(self) -> Int:
        """Depth of each region; the root's is 0."""
        depth = np.zeros(len(self.ids), dtype=np.int64)
        # Invariant: parents stand before children, so a parent's depth is final when read.
        for row in range(1, len(depth)):
            depth[row] = depth[self.parents[row]] + 1
        return depth

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield (region, parent, name); the root's parent is empty."""
        for region, parent, name in zip(self.ids, self.parents, self.names, strict=True):
            yield region, "" if parent < 0 else self.ids[parent], name

    def tree(self) -> RegionTree:
        """Return the same tree as the solvers use it."""
        regions, parents, _ = zip(*self.rows(), strict=True)
        return RegionTree.from_table(regions, parents)


def regular_children(fan_out: Sequence[int]) -> list[Int]:
    """Return, level by level, how many children each region has when all have equally many."""
    children = []
    regions = 1
    for number in fan_out:
        children.append(np.full(regions, number, dtype=np.int64))
        regions *= number
    return children


def uneven_children(
    regions_by_level: Sequence[int], *, spread: float, generator: np.random.Generator
) -> list[Int]:
    """Return, level by level, how many children each region has, given the levels' totals.

    Every region has at least one child, the others are handed out in lognormal shares:
    states have between 1 and 254 counties. Levels must not shrink downwards.
    """
    children = []
    for above, below in pairwise((1, *regions_by_level)):
        shares = np.exp(spread * generator.standard_normal(above))
        children.append(1 + apportion(below - above, shares))
    return children


def nested_table(
    children: Sequence[Int], *, root: tuple[str, str], kinds: Sequence[str]
) -> RegionTable:
    """Number the regions of a tree: ids such as US, US-07, US-07-003, names by kind.

    Args:
        children: how many children each region of a level has, level by level.
        root: id and name of the root.
        kinds: what a region of each level below the root is called.
    """
    ids, names, parents = [root[0]], [root[1]], [-1]
    start = 0
    # Invariant: rows from `start` on are the level whose children come next.
    for counts, kind in zip(children, kinds, strict=True):
        width = len(str(int(counts.max())))
        stop = len(ids)
        for parent, count in zip(range(start, stop), counts.tolist(), strict=True):
            of_parent = f", {names[parent]}" if parent else ""
            for number in range(1, count + 1):
                ids.append(f"{ids[parent]}-{number:0{width}d}")
                names.append(f"{kind} {number}{of_parent}")
                parents.append(parent)
        start = stop
    return RegionTable(tuple(ids), np.array(parents, dtype=np.int64), tuple(names))


def walk_down(
    table: RegionTable, spreads: Sequence[float], *, generator: np.random.Generator
) -> Float:
    """Draw a Gaussian walk from the root (0) down: siblings are alike, levels add up.

    Args:
        table: the regions.
        spreads: standard deviation of the step into each level below the root.
    """
    scales: Float = np.array([0.0, *spreads], dtype=np.float64)[table.depth]
    steps: Float = generator.standard_normal(len(table.ids)) * scales
    for row in range(1, len(steps)):
        steps[row] += steps[table.parents[row]]
    return steps


def apportion(total: int, shares: Float) -> Int:
    """Split a whole number in proportion to shares, by largest remainders (Hamilton's method)."""
    quotas = shares * (total / shares.sum())
    whole: Int = np.floor(quotas).astype(np.int64)
    left = total - int(whole.sum())
    # Rounding of the quotas may leave one unit too few or too many beside the remainders.
    order = np.argsort(whole - quotas, kind="stable")
    if left >= 0:
        whole[order[:left]] += 1
    else:
        takers = order[whole[order] > 0]
        whole[takers[left:]] -= 1
    return whole


def table_of_paths(paths: Sequence[Path]) -> tuple[RegionTable, Int]:
    """Build the table of all regions on some paths of names, coarsest first, one path a leaf.

    A root is added above when the coarsest level has more than one region.

    Returns:
        The table, and for each path the row of the region where it ends.
    """
    every = dict.fromkeys(path[:stop] for path in paths for stop in range(1, len(path) + 1))
    tops = sum(len(path) == 1 for path in every)
    ordered = sorted(every, key=len)
    if tops > 1:
        ordered.insert(0, ())
    row_of = {path: row for row, path in enumerate(ordered)}
    ids = safe_ids(ordered)
    table = RegionTable(
        ids=tuple(ids),
        parents=np.array([row_of.get(path[:-1], -1) if path else -1 for path in ordered]),
        names=tuple(
            (safe_name(path[-1]) or region) if path else ADDED_ROOT_NAME
            for path, region in zip(ordered, ids, strict=True)
        ),
    )
    return table, np.array([row_of[path] for path in paths], dtype=np.int64)


def safe_ids(paths: Sequence[Path]) -> list[str]:
    """Give each region, known by its path of names, an id that is unique and safe anywhere.

    An id starts with a letter or digit and holds only ASCII letters, digits, "_", "-" and ".",
    at most 64, so that it can be no formula in a spreadsheet and no path. The rule, in order:
    the region's own name if no other region has that id; else all names on its path, joined
    by "."; else that, shortened, with a digest of the path. Capitals do not tell ids apart.
    The result does not depend on the order of the paths.
    """
    attempts = (_own_name, _whole_path, _digested)
    attempt = [0] * len(paths)
    # Invariant: attempts only grow, so this ends; digested ids differ by their digest.
    while True:
        ids = [attempts[number](path) for number, path in zip(attempt, paths, strict=True)]
        uses = Counter(region.casefold() for region in ids)
        clashing = [
            row
            for row, region in enumerate(ids)
            if uses[region.casefold()] > 1 and attempt[row] < len(attempts) - 1
        ]
        if not clashing:
            return ids
        for row in clashing:
            attempt[row] += 1


def safe_name(name: str) -> str:
    """Return a name as it came, but for what could make it a formula, a path or unprintable.

    Control characters become spaces, slashes become dashes, runs of dots and of spaces become
    one, signs that start a formula are dropped. May come out empty.
    """
    printable = "".join(" " if _is_control(character) else character for character in name)
    flat = re.sub(r"\.{2,}", ".", re.sub(r"[/\\]", "-", printable))
    bare = " ".join(flat.split()).lstrip(FORMULA_STARTS + " ")[:LONGEST_NAME].strip()
    return "" if bare == "." else bare


def _is_control(character: str) -> bool:
    category = unicodedata.category(character)
    return character not in JOINERS and (category[0] == "C" or category in {"Zl", "Zp"})


def _label(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", plain)
    return re.sub(r"\.{2,}", ".", plain).strip("_.-") or "region"


def _own_name(path: Path) -> str:
    label = _label(path[-1]) if path else ADDED_ROOT
    return label if len(label) <= LONGEST_ID else _digested(path)


def _whole_path(path: Path) -> str:
    label = ".".join(_label(name) for name in path) or ADDED_ROOT
    return label if len(label) <= LONGEST_ID else _digested(path)


def _digested(path: Path) -> str:
    digest = hashlib.sha256(json.dumps(path).encode()).hexdigest()[:DIGEST_LENGTH]
    start = _label(path[-1] if path else ADDED_ROOT)[: LONGEST_ID - DIGEST_LENGTH - 1]
    return f"{start}-{digest}"
