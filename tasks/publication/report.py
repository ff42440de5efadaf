"""The release on one page: a self-contained HTML report made from facts and released numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tasks.publication.facts import SIMULATION_NOTICE, BundleFacts
from tasks.publication.statement import assumptions, in_words, not_protected, paragraphs
from tasks.publication.tables import Overview, published_tables

MOST_ROWS = 30
_SINGLE_UP_TO = 10


@dataclass(frozen=True)
class SizeRow:
    """One row of the distribution: a size or a range of sizes."""

    label: str
    count: int
    share: str


def render_report(facts: BundleFacts, overview: Overview, *, formats: Sequence[str]) -> str:
    """Fill in the page; every value is escaped."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tasks.publication", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["thousands"] = lambda number: f"{number:,}"
    environment.filters["in_words"] = in_words
    return environment.get_template("report.html.jinja").render(_context(facts, overview, formats))


def _context(facts: BundleFacts, overview: Overview, formats: Sequence[str]) -> dict[str, Any]:
    return {
        "facts": facts,
        "notice": SIMULATION_NOTICE,
        "root": overview.root_name or overview.root,
        "paragraphs": paragraphs(facts),
        "assumptions": assumptions(facts),
        "not_protected": not_protected(facts),
        "tables": published_tables(facts),
        "formats": formats,
        "distribution": distribution(overview.root_counts),
        "levels": tuple(zip(facts.levels, overview.level_totals, strict=True)),
    }


def distribution(counts: Sequence[tuple[int, int]]) -> tuple[SizeRow, ...]:
    """Turn (size, count) into at most a page of rows; the last size means "or more"."""
    total = sum(count for _, count in counts)
    rows = []
    for first, last in _ranges(counts[0][0], counts[-1][0]):
        count = sum(count for size, count in counts if first <= size <= last)
        label = str(first) if first == last else f"{first}–{last}"
        if last == counts[-1][0]:
            label = f"{last} or more"
        rows.append(SizeRow(label, count, f"{100 * count / total:.2f} %" if total else "–"))
    return tuple(rows)


def _ranges(smallest: int, largest: int) -> list[tuple[int, int]]:
    """Cut the sizes into ranges: single ones at first, then ending at 20, 50, 100, 200, …

    The top-coded size always stands alone, as it means something else than its number.
    """
    if largest - smallest < MOST_ROWS:
        return [(size, size) for size in range(smallest, largest + 1)]
    ends = list(range(smallest, _SINGLE_UP_TO + 1))
    scale = _SINGLE_UP_TO
    while scale < largest:
        ends += [2 * scale, 5 * scale, 10 * scale]
        scale *= 10
    ends = [smallest - 1, *(end for end in ends if end < largest - 1), largest - 1, largest]
    return [(before + 1, end) for before, end in pairwise(ends)]
