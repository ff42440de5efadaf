"""The levels of the tree: their groups by size as a chart and as a table of at most a page."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tasks.pages.charts import Row
from tasks.pages.frame import thousands
from tasks.publication.facts import BundleFacts, StatedLevel
from tasks.publication.report.bins import bin_label, size_bins
from tasks.publication.report.charts import Chart
from tasks.publication.report.figures import SizeAxes
from tasks.publication.report.outline import Canvas
from tasks.publication.report.reading import LevelSizes, ReportTables

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_ROWS = 30
_SINGLE_UP_TO = 10
_EXAMPLES = 3


@dataclass(frozen=True)
class SizeRow:
    """One row of a table: a size or a range of sizes."""

    label: str
    count: int
    share: str
    average: str
    margins: tuple[str, ...]


@dataclass(frozen=True)
class LevelView:
    """What the page shows of a level."""

    facts: StatedLevel
    sizes: LevelSizes
    title: str
    detail: str
    example: str
    svg: Markup
    rows: tuple[SizeRow, ...]


def level_views(facts: BundleFacts, tables: ReportTables, canvas: Canvas) -> tuple[LevelView, ...]:
    """Prepare every level for the page."""
    return tuple(
        _level_view(facts, tables, level, sizes, canvas)
        for level, sizes in zip(facts.levels, tables.levels, strict=True)
    )


def _level_view(
    facts: BundleFacts,
    tables: ReportTables,
    level: StatedLevel,
    sizes: LevelSizes,
    canvas: Canvas,
) -> LevelView:
    one = level.regions == 1
    axes = SizeAxes(facts.sizes, "Size of the group", "Groups" if one else "Groups in a region")
    return LevelView(
        facts=level,
        sizes=sizes,
        title=level_title(level),
        detail=tables.title(0) if level.level == 1 else "the average region",
        example=_examples(tables, level),
        svg=canvas.place(Chart("sizes", axes), _chart_rows(facts, sizes)),
        rows=distribution(facts.sizes, sizes),
    )


def _chart_rows(facts: BundleFacts, level: LevelSizes) -> list[Row]:
    """The average region by size, with the margin of error of one region (90 %).

    Of a range of sizes no margin is known: those of its sizes do not add up.
    """
    bins = size_bins(facts.sizes)
    reach = [None] * len(level.counts)
    if level.half_widths is not None and bins is None:
        reach = level.half_widths[0].tolist()
    shown = facts.sizes if bins is None else [first for first, _ in bins]
    averages = [count / level.regions for count in level.counts]
    return [
        {
            "size": size,
            "label": size_label(size, facts),
            "count": average,
            "lower": None if far is None else max(0.0, average - far),
            "upper": None if far is None else average + far,
        }
        for size, average, far in zip(shown, averages, reach, strict=True)
    ]


def _examples(tables: ReportTables, level: StatedLevel) -> str:
    """Name a few regions of a level, so that a reader knows what it is."""
    found = np.flatnonzero(tables.region_levels == level.level)[:_EXAMPLES]
    names = ", ".join(tables.title(region) for region in found.tolist())
    return f"{names} …" if names and level.regions > _EXAMPLES else names


def level_title(level: StatedLevel) -> str:
    """Name a level and say how many regions it has."""
    return f"Level {level.level}: {level.regions:,} region{'' if level.regions == 1 else 's'}"


def size_label(size: int, facts: BundleFacts) -> str:
    """Name a size on an axis; the last one stands for all that are larger, too."""
    return f"{size:,}+" if size == facts.largest_size else f"{size:,}"


def distribution(sizes: range, level: LevelSizes) -> tuple[SizeRow, ...]:
    """Turn the counts of a level into at most a page of rows; the last size means "or more"."""
    total = sum(level.counts)
    rows = []
    bins = size_bins(sizes)
    for place, (first, last) in enumerate(bins or size_ranges(sizes)):
        cells = slice(first - sizes.start, last - sizes.start + 1)
        if bins is not None:
            cells = slice(place, place + 1)
        count = sum(level.counts[cells])
        label = f"{last:,} or more" if last == sizes[-1] else bin_label((first, last))
        rows.append(
            SizeRow(
                label=label,
                count=count,
                share=f"{100 * count / total:.2f} %" if total else "–",
                average=thousands(count / level.regions),
                margins=_margins(level, cells, several=last > first),
            )
        )
    return tuple(rows)


def _margins(level: LevelSizes, cells: slice, *, several: bool) -> tuple[str, ...]:
    """The typical margins of one region; of several sizes no sum is known, but the widest is."""
    if level.half_widths is None:
        return ()
    each = " each" if several else ""
    return tuple(f"± {widths[cells].max():,}{each}" for widths in level.half_widths)


def size_ranges(sizes: range, most: int = MOST_ROWS) -> list[tuple[int, int]]:
    """Cut the sizes into ranges: single ones at first, then ending at 20, 50, 100, 200, …

    The top-coded size always stands alone, as it means something else than its number.
    """
    smallest, largest = sizes[0], sizes[-1]
    if len(sizes) <= most:
        return [(size, size) for size in sizes]
    ends = list(range(smallest, _SINGLE_UP_TO + 1))
    scale = _SINGLE_UP_TO
    while scale < largest:
        ends += [2 * scale, 5 * scale, 10 * scale]
        scale *= 10
    ends = [smallest - 1, *(end for end in ends if end < largest - 1), largest - 1, largest]
    return [(before + 1, end) for before, end in pairwise(ends)]
