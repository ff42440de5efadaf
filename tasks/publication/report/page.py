"""The report: a self-contained page made from facts and public-safe tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.pages.frame import SEARCH, VEGA, asset, render_page
from tasks.publication.facts import SIMULATION_NOTICE, BundleFacts
from tasks.publication.report.explorer import packed_numbers, region_tables, release_document
from tasks.publication.report.figures import MOST_BARS
from tasks.publication.report.levels import level_views
from tasks.publication.report.reading import ReportTables
from tasks.publication.report.stages import example_of, measured_words, stage_words
from tasks.publication.report.words import plain_words, privacy_numbers
from tasks.publication.statement import assumptions, in_words, not_protected, paragraphs
from tasks.publication.tables import published_tables

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


def render_report(
    facts: BundleFacts, tables: ReportTables, *, formats: Sequence[str], keyid: str | None = None
) -> str:
    """Write the page of a release.

    Args:
        facts: what the documents of the bundle say.
        tables: the numbers.
        formats: of the tables in the bundle.
        keyid: of the key that the bundle is going to be signed with.
    """
    context = {
        **_words(facts),
        **_numbers(facts, tables),
        "facts": facts,
        "in_words": in_words,
        "formats": formats,
        "keyid": keyid,
        "notice": SIMULATION_NOTICE,
        "sections": SECTIONS,
    }
    ours = [asset("tasks.pages", name) for name in (VEGA, SEARCH)]
    scripts = (*ours, asset(__package__, EXPLORER))
    return render_page("report.html.jinja", context, package=__package__, scripts=scripts)


def _words(facts: BundleFacts) -> dict[str, Any]:
    return {
        "plain_words": plain_words(facts),
        "privacy_numbers": privacy_numbers(facts),
        "paragraphs": paragraphs(facts),
        "assumptions": assumptions(facts),
        "not_protected": not_protected(facts),
        "stages": stage_words(facts),
        "measured_words": measured_words(facts),
        "tables": published_tables(facts),
        "checks_passed": sum(check.passed for check in facts.checks),
    }


def _numbers(facts: BundleFacts, tables: ReportTables) -> dict[str, Any]:
    packed = packed_numbers(tables)
    return {
        "root": tables.title(0),
        "levels": level_views(facts, tables),
        "region_tables": region_tables(facts, tables),
        "example": example_of(facts, tables),
        "release": release_document(facts, tables, packed),
        "blocks": packed.blocks,
        "has_fit": tables.fitted is not None,
        "has_margins": facts.states_margins,
        "many_sizes": len(facts.sizes) > MOST_BARS,
    }
