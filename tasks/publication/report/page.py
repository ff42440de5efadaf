"""The report: a self-contained page made from facts and public-safe tables.

Where it cannot be made, a plain page takes its place: the words alone, from facts alone. Either
says in its head in which form it was written, for those who derive it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgsr_core.documents.tables import published_tables
from pgsr_core.documents.wordings import CURRENT
from pgsr_core.documents.words import in_words
from tasks.pages.frame import SEARCH, VEGA, asset, render_page
from tasks.publication.facts import SIMULATION_NOTICE, BundleFacts
from tasks.publication.report.bins import size_bins
from tasks.publication.report.explorer import packed_numbers, region_tables, release_document
from tasks.publication.report.figures import MOST_BARS
from tasks.publication.report.levels import level_views
from tasks.publication.report.outline import Canvas, Outline
from tasks.publication.report.reading import ReportTables
from tasks.publication.report.stages import example_of, measured_words, stage_words
from tasks.publication.report.words import plain_words, privacy_numbers

REPORT_FORM = f"1.{CURRENT.version}"
PLAIN_FORM = f"{REPORT_FORM}-plain"
"""Pages of one form are alike but for their release: changed words, templates, scripts or style are
another form, from one released version to the next."""
EXPLORER = "explorer.js"
SECTIONS = (
    ("released", "What was released"),
    ("privacy", "Privacy"),
    ("tree", "The region tree"),
    ("sizes", "Group sizes by level"),
    ("region", "Look up a region"),
    ("stages", "From measurements to release"),
    ("checks", "Checks"),
    ("verify", "Provenance and verification"),
)
_OF_NUMBERS = {"tree", "sizes", "region", "stages"}
PLAIN_SECTIONS = tuple(section for section in SECTIONS if section[0] not in _OF_NUMBERS)


def render_report(
    facts: BundleFacts, tables: ReportTables, *, formats: Sequence[str], keyid: str | None = None
) -> str:
    """Write the page of a release; see outline_report.

    Raises:
        NotDrawn: the charts cannot be drawn.
    """
    return outline_report(facts, tables, formats=formats, keyid=keyid).filled()


def outline_report(
    facts: BundleFacts, tables: ReportTables, *, formats: Sequence[str], keyid: str | None = None
) -> Outline:
    """Write the page of a release, but for its drawings.

    Args:
        facts: what the documents of the bundle say.
        tables: the numbers.
        formats: of the tables in the bundle.
        keyid: of the key that the bundle is going to be signed with.
    """
    canvas = Canvas()
    context = {
        **_words(facts, formats, keyid),
        **_numbers(facts, tables, canvas),
        "form": REPORT_FORM,
        "sections": SECTIONS,
    }
    ours = [asset("tasks.pages", name) for name in (VEGA, SEARCH)]
    scripts = (*ours, asset(__package__, EXPLORER))
    text = render_page("report.html.jinja", context, package=__package__, scripts=scripts)
    return canvas.outline(text)


def outline_plain_report(
    facts: BundleFacts, *, formats: Sequence[str], keyid: str | None = None
) -> Outline:
    """Write the page of a release whose report could not be made: words, checks and files."""
    context = {
        **_words(facts, formats, keyid),
        "form": PLAIN_FORM,
        "sections": PLAIN_SECTIONS,
    }
    return Outline(render_page("plain.html.jinja", context, package=__package__))


def _words(facts: BundleFacts, formats: Sequence[str], keyid: str | None) -> dict[str, Any]:
    return {
        "facts": facts,
        "in_words": in_words,
        "formats": formats,
        "keyid": keyid,
        "notice": SIMULATION_NOTICE,
        # As checks.json has them.
        "digests": sorted(facts.digests.items()),
        "plain_words": plain_words(facts),
        "privacy_numbers": privacy_numbers(facts),
        "paragraphs": CURRENT.paragraphs(facts),
        "assumptions": CURRENT.assumptions(facts),
        "not_protected": CURRENT.not_protected(facts),
        "stages": stage_words(facts),
        "measured_words": measured_words(facts),
        "tables": published_tables(facts),
        "checks_passed": sum(check.passed for check in facts.checks),
    }


def _numbers(facts: BundleFacts, tables: ReportTables, canvas: Canvas) -> dict[str, Any]:
    packed = packed_numbers(tables)
    binned = size_bins(facts.sizes) is not None
    return {
        "root": tables.title(0),
        "levels": level_views(facts, tables, canvas),
        "region_tables": region_tables(facts, tables),
        "example": example_of(facts, tables, canvas),
        "release": release_document(facts, tables, packed),
        "blocks": [canvas.place_block(block) for block in packed.blocks],
        "has_fit": tables.fitted is not None,
        "binned": binned,
        "has_margins": facts.states_margins,
        "draws_margins": facts.states_margins and not binned,
        "many_sizes": len(facts.sizes) > MOST_BARS and not binned,
    }
