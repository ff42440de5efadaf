"""Looking up regions: what the page holds for its script, and tables for those without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pgsr_core.margins import BOUNDS
from pgsr_core.postprocessing.protocol import Query
from tasks.pages.packing import Packed, pack
from tasks.publication.facts import BundleFacts
from tasks.publication.report.bins import bin_label, size_bins
from tasks.publication.report.charts import Chart
from tasks.publication.report.figures import SizeAxes
from tasks.publication.report.levels import level_title, size_ranges
from tasks.publication.report.reading import ReportTables
from tasks.publication.report.stages import stage_charts

MOST_TABLE_ROWS = 200
MOST_TABLE_COLUMNS = 12


@dataclass(frozen=True)
class RegionTable:
    """The regions of one level and their groups by size."""

    title: str
    note: str
    labels: tuple[str, ...]
    rows: tuple[tuple[str, tuple[int, ...]], ...]


def packed_numbers(tables: ReportTables) -> Packed:
    """Pack the numbers of every region that the page holds."""
    columns = {"released": tables.released, "measured": tables.measured}
    if tables.fitted is not None:
        columns["fitted"] = tables.fitted
    if tables.bounds is not None:
        columns |= dict(zip(BOUNDS, tables.bounds, strict=True))
    return pack(columns)


def release_document(facts: BundleFacts, tables: ReportTables, packed: Packed) -> dict[str, Any]:
    """What the script needs besides the packed numbers."""
    sizes = Chart("sizes", SizeAxes(facts.sizes, "Size of the group", "Groups"))
    return {
        "sizes": [facts.sizes[0], facts.sizes[-1]],
        "bins": size_bins(facts.sizes),
        "measured": [facts.measured_sizes[0], facts.measured_sizes[-1]],
        "cumulative": facts.query == Query.CUMULATIVE,
        "levels": len(facts.levels),
        "held_levels": tables.held_levels,
        "regions": {
            "ids": tables.ids,
            "names": tables.names,
            "parents": tables.parents.tolist(),
            "groups": tables.public_groups,
            "totals": tables.released.sum(axis=1).tolist(),
        },
        "packed": {
            "columns": packed.columns,
            "rows_a_block": packed.rows_a_block,
            "width": packed.width,
        },
        "charts": {chart.name: chart.compiled() for chart in (sizes, *stage_charts(facts))},
    }


def region_tables(facts: BundleFacts, tables: ReportTables) -> tuple[RegionTable, ...]:
    """Table the upper levels, for as many whole levels as a reader can take in."""
    bins = size_bins(facts.sizes)
    ranges = bins or size_ranges(facts.sizes, most=MOST_TABLE_COLUMNS)
    counts = tables.released
    if bins is None:
        starts = [first - facts.smallest_size for first, _ in ranges]
        counts = np.add.reduceat(tables.released, starts, axis=1)
    labels = tuple(_label(first, last, facts) for first, last in ranges)
    found: list[RegionTable] = []
    rows = 0
    for level in facts.levels[: tables.held_levels]:
        rows += level.regions
        if found and rows > MOST_TABLE_ROWS:
            break
        regions = np.flatnonzero(tables.region_levels == level.level).tolist()
        found.append(
            RegionTable(
                title=level_title(level),
                note="" if len(ranges) == len(facts.sizes) else ", in ranges of sizes",
                labels=labels,
                rows=tuple((tables.title(i), tuple(counts[i].tolist())) for i in regions),
            )
        )
    return tuple(found)


def _label(first: int, last: int, facts: BundleFacts) -> str:
    return f"{last:,}+" if last == facts.largest_size else bin_label((first, last))
