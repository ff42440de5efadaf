"""How the numbers came about: the stages of a mechanism in words, and one region through them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pgsr_core.documents.words import in_words
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.postprocessing.steps import cumulative_from_counts
from tasks.pages.charts import Row
from tasks.publication.facts import BundleFacts
from tasks.publication.report.bins import Range, bin_label, size_bins
from tasks.publication.report.charts import Chart
from tasks.publication.report.figures import SizeAxes
from tasks.publication.report.levels import MOST_ROWS, size_label
from tasks.publication.report.outline import Canvas
from tasks.publication.report.reading import Int, ReportTables

if TYPE_CHECKING:
    from markupsafe import Markup

_NEAREST_COUNTS = (
    "Make the tree add up",
    "Of all whole, non-negative counts that add up along the tree and to the number of groups "
    "in all, the ones nearest to the numbers before are found, exactly, and released.",
)
_ALL_AT_ONCE = (
    "Make everything fit at once",
    "Of all whole numbers that never rise with the size and add up along the tree, those "
    "nearest to the measurements of all regions together are found, and released.",
)
_STEPS: Mapping[str, tuple[str, str]] = {
    "isotonic": (
        "Put in order",
        "There cannot be more groups of size at least 5 than of size at least 4. In each region by "
        "itself, the nearest numbers that never rise are taken (isotonic regression), within "
        "what is possible.",
    ),
    "cpwl": _NEAREST_COUNTS,
    "exact-counts": _NEAREST_COUNTS,
    "constraint-tables": _NEAREST_COUNTS,
    "margins": (
        "Tell how far off the counts may be",
        "For every count an interval is computed that holds the true number with 90 and 95 % "
        "confidence; and noise and steps like these are simulated on the result, to see how "
        "far the counts of a level typically stray. Neither costs any privacy.",
    ),
    "global": (
        "Make everything fit at once",
        "Each region is drawn towards its share of the region above it, as far as noise may have "
        "set them apart. Of all whole numbers that never rise with the size and add up along "
        "the tree, those nearest to all regions together are found, and released.",
    ),
    "exact-cumulative": _ALL_AT_ONCE,
}


@dataclass(frozen=True)
class Example:
    """A region whose way through the stages is shown to those without JavaScript."""

    id: str
    title: str
    why: str
    stages: Markup
    changes: Markup
    rows: tuple[Row, ...]


def stage_words(facts: BundleFacts) -> tuple[tuple[str, str], ...]:
    """Name and explain what was done, from the measurements on."""
    scales = sorted({level.scale for level in facts.levels})
    noise = " to ".join(in_words(scale) for scale in (scales[0], scales[-1])[: len(scales)])
    measured = (
        "Measure with noise",
        f"In every region, {measured_words(facts)} is counted, and noise of scale {noise} is "
        "added. These noisy numbers are all that leaves the confidential zone.",
    )
    return (measured, *(_STEPS[step] for step in facts.certificates if step in _STEPS))


def measured_words(facts: BundleFacts) -> str:
    """What one measurement counts."""
    if facts.query == Query.CUMULATIVE:
        return "the number of groups of at least each size"
    return "the number of groups of each size"


def stage_charts(facts: BundleFacts) -> tuple[Chart, Chart]:
    """The picture of the stages, and the one of what they changed."""
    cumulative = facts.query == Query.CUMULATIVE
    size = "Size k of the group" if cumulative else "Size of the group"
    counted = "Groups of size at least k" if cumulative else "Groups"
    sizes = facts.measured_sizes
    return (
        Chart("stages", SizeAxes(sizes, size, counted)),
        Chart("changes", SizeAxes(sizes, size, "Difference from released")),
    )


def example_of(facts: BundleFacts, tables: ReportTables, canvas: Canvas) -> Example:
    """Take a region of the lowest level through the stages."""
    measured, released = tables.measured, as_measured(facts, tables.released)
    lowest = np.flatnonzero(tables.region_levels == tables.held_levels)
    # Where noise is small against the counts nothing can be seen; where it moved most, it can.
    moved = np.abs(measured[lowest] - released[lowest]).sum(axis=1)
    region = int(lowest[moved.argmax()])
    rows = stage_rows(facts, tables, region)
    stages, changes = stage_charts(facts)
    return Example(
        id=tables.ids[region],
        title=tables.title(region),
        why="the region of its level in which the steps moved the numbers most",
        stages=canvas.place(stages, rows),
        changes=canvas.place(changes, rows),
        rows=tuple(rows[:MOST_ROWS]),
    )


def as_measured(facts: BundleFacts, counts: Int) -> Int:
    """Released counts in the form in which they were measured."""
    if facts.query == Query.CUMULATIVE:
        # A size 0 is counted, and not measured; it is never part of a range.
        measured = counts.shape[1] - (facts.smallest_size == 0)
        return cumulative_from_counts(counts, largest_size=measured)
    return counts


def stage_rows(facts: BundleFacts, tables: ReportTables, region: int) -> list[Row]:
    """One region through the stages, a row for each measured size or range of sizes."""
    one = slice(region, region + 1)
    released = as_measured(facts, tables.released[one])[0].tolist()
    noisy = tables.measured[region].tolist()
    fitted = [None] * len(noisy) if tables.fitted is None else tables.fitted[region].tolist()
    return [
        {
            "size": first,
            "label": _stage_label(first, last, facts),
            "noisy": before,
            "fitted": between,
            "released": after,
            "noisy_change": before - after,
            "fitted_change": None if between is None else between - after,
        }
        for (first, last), before, between, after in zip(
            _measured_ranges(facts), noisy, fitted, released, strict=True
        )
    ]


def _measured_ranges(facts: BundleFacts) -> list[Range]:
    bins = size_bins(facts.measured_sizes)
    return [(size, size) for size in facts.measured_sizes] if bins is None else list(bins)


def _stage_label(first: int, last: int, facts: BundleFacts) -> str:
    if facts.query == Query.CUMULATIVE:
        return f"≥ {first:,}"
    return size_label(last, facts) if first == last else bin_label((first, last))
