"""Published histograms of group sizes, as rows of cells, turned into populations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from pgsr_core.synthesis.options import (
    LARGEST_SIZE,
    BadGroupCount,
    BadOption,
    GroupsAboveLeaf,
    HistogramError,
    LevelGap,
    MissingColumn,
    NoPeople,
    check_common,
    check_range,
)
from pgsr_core.synthesis.populations import CountedPopulation
from pgsr_core.synthesis.regions import Path, table_of_paths

Int = NDArray[np.int64]
TABLE = "histogram"
SHOWN_ROWS = 5


def population_of_cells(
    lines: Iterable[Sequence[str]],
    *,
    level_columns: Sequence[str],
    size_columns: Sequence[str] | None = None,
    empty_share: float = 0.05,
    seed: int = 1,
) -> CountedPopulation:
    """Turn counts of groups by region (rows) and size (columns) into a population.

    Rows of one region are added up, so that leaving out the finest level columns gives a
    coarser tree. The size of a column is the number in its name; "7plus" counts as 7.

    Args:
        lines: the header, then the rows.
        level_columns: names of the levels' columns, coarsest first.
        size_columns: the columns with counts; if None all that are named like h1 or h7plus.
        empty_share: share of empty units, among all units, that are added.
        seed: decides on the empty units and on the order of rows.

    Raises:
        HistogramError: a subclass says which rule is broken and where.
        BadOption: the columns asked for make no sense.
    """
    check_common(seed=seed, empty_share=empty_share)
    rows = iter(lines)
    header = [cell.strip() for cell in next(rows, [])]
    if size_columns is None:
        size_columns = [name for name in header if re.fullmatch(r"h[0-9]+(plus)?", name)]
    sizes = _sizes(size_columns, level_columns)
    for column in (*level_columns, *size_columns):
        if header.count(column) != 1:
            raise MissingColumn(table=TABLE, column=column)
    paths, counts = _read(rows, header, level_columns, size_columns)
    regions, row_of_path = table_of_paths(paths)
    leaf_of_row = np.full(len(regions.ids), -1, dtype=np.int64)
    leaf_of_row[regions.leaves] = np.arange(len(regions.leaves))
    leaf_of_path = leaf_of_row[row_of_path]
    _refuse(GroupsAboveLeaf, np.flatnonzero(leaf_of_path < 0).tolist(), "level columns")
    by_leaf = np.zeros((len(regions.leaves), len(sizes)), dtype=np.int64)
    np.add.at(by_leaf, leaf_of_path, counts)
    population = CountedPopulation(
        regions, np.array(sizes, dtype=np.int64), by_leaf, empty_share, seed
    )
    if population.people == 0:
        raise NoPeople(table=TABLE, column="size columns")
    return population


def size_of_column(name: str) -> int:
    """Return the group size that a column counts: the only number in its name.

    Raises:
        BadOption: there is none, or there are several.
    """
    numbers = re.findall(r"[0-9]+", name)
    if len(numbers) != 1:
        raise BadOption(
            option="size-columns",
            rule="must each have one number in the name, the group size",
            got=name,
            remedy="name them like h1, h2, h3plus",
        )
    return int(numbers[0])


def _read(
    rows: Iterable[Sequence[str]],
    header: list[str],
    level_columns: Sequence[str],
    size_columns: Sequence[str],
) -> tuple[list[Path], Int]:
    levels = [header.index(column) for column in level_columns]
    counted = [header.index(column) for column in size_columns]
    paths: list[Path] = []
    counts: list[list[int]] = []
    uncounted: list[int] = []
    # Blank lines, which a CSV reader gives as no cells, are not rows.
    for row, line in enumerate(line for line in rows if line):
        cells = [cell.strip() for cell in line]
        numbers = [cells[place] for place in counted] if len(cells) == len(header) else [""]
        if not all(re.fullmatch(r"[0-9]{1,12}", number) for number in numbers):
            uncounted.append(row)
            continue
        paths.append(_path([cells[place] for place in levels]))
        counts.append([int(number) for number in numbers])
    _refuse(BadGroupCount, uncounted, "size columns")
    _refuse(LevelGap, [row for row, path in enumerate(paths) if not path], "level columns")
    if not counts:
        raise NoPeople(table=TABLE, column="size columns")
    return paths, np.array(counts, dtype=np.int64)


def _sizes(size_columns: Sequence[str], level_columns: Sequence[str]) -> list[int]:
    sizes = [size_of_column(column) for column in size_columns]
    for option, columns in (("level-columns", level_columns), ("size-columns", size_columns)):
        if not columns:
            raise BadOption(
                option=option,
                rule="must name at least one column",
                got="none",
                remedy="write names of the file's header with commas between",
            )
    if len(set(sizes)) < len(sizes):
        raise BadOption(
            option="size-columns",
            rule="must count different sizes",
            got=",".join(size_columns),
            remedy="name each size once",
        )
    check_range("size-columns: largest size", max(sizes), lowest=1, highest=LARGEST_SIZE)
    return sizes


def _path(cells: list[str]) -> Path:
    """Cut trailing empty cells; a path with a gap, or none at all, comes back empty."""
    while cells and not cells[-1]:
        cells.pop()
    return tuple(cells) if all(cells) else ()


def _refuse(error: type[HistogramError], rows: list[int], column: str) -> None:
    if rows:
        shown = tuple(row + 1 for row in rows[:SHOWN_ROWS])
        raise error(table=TABLE, column=column, rows=shown, count=len(rows))
