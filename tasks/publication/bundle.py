"""Building a bundle: every file of a release, in a folder that nobody reads yet.

A bundle is a pure function of the store, the facts and the versions of the software: built
again, it has the same bytes, unless its report could be made only one of the times.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pgsr_core.documents.wordings import privacy_document
from tasks.publication.documents import (
    CHECKS,
    DATAPACKAGE,
    PRIVACY,
    REPORT,
    checks_document,
    datapackage_document,
    write_json,
)
from tasks.publication.errors import GateNotPassed, NotEnoughMemory, PublicFolderUnusable
from tasks.publication.facts import BundleFacts
from tasks.publication.report.page import outline_plain_report, render_report
from tasks.publication.report.reading import read_report_tables
from tasks.publication.tables import FORMATS, write_tables

if TYPE_CHECKING:
    import duckdb

logger = logging.getLogger("pgsr.publication")


def build_bundle(
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    facts: BundleFacts,
    *,
    formats: Sequence[str],
    keyid: str | None = None,
) -> None:
    """Write every file of a release into a new or empty folder.

    Args:
        connection: to the run's safe store, allowed to write into `folder`; only public-safe
            tables are reachable through it.
        folder: new or empty, not public yet; an absolute path.
        facts: what the documents say.
        formats: of the tables, out of FORMATS.
        keyid: of the key that the bundle is going to be signed with; the report names it.

    Raises:
        GateNotPassed: no check ran, or one failed; nothing is written.
        InconsistentFacts: the tables are not what the facts say.
        FormulaLikeName: a region's name could run as a formula in a spreadsheet.
        PublicFolderUnusable: the folder cannot be written.
        NotEnoughMemory: the connection's memory limit is too low to sort the tables.
    """
    import duckdb

    refuse_failed_checks(facts)
    unknown = set(formats) - set(FORMATS)
    if unknown or not formats:
        raise ValueError(f"formats must be some of {sorted(FORMATS)}, got {sorted(formats)}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        write_tables(connection, folder, facts, formats=formats)
        _write_documents(connection, folder, facts, formats=formats, keyid=keyid)
    except OSError as error:
        raise PublicFolderUnusable(error.strerror) from error
    except duckdb.IOException as error:
        # DuckDB's message names the path, so it is left behind.
        raise PublicFolderUnusable("a table could not be written") from error
    except duckdb.OutOfMemoryException as error:
        raise NotEnoughMemory from error


def _write_documents(
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    facts: BundleFacts,
    *,
    formats: Sequence[str],
    keyid: str | None,
) -> None:
    simulation = facts.simulation
    write_json(folder / PRIVACY, privacy_document(facts), simulation=simulation)
    write_json(folder / CHECKS, checks_document(facts), simulation=simulation)
    page = _page(connection, facts, formats=formats, keyid=keyid)
    (folder / REPORT).write_text(page, encoding="utf-8", newline="\n")
    # Last, because it holds the checksum of every other file.
    package = datapackage_document(folder, facts, formats=formats)
    write_json(folder / DATAPACKAGE, package, simulation=simulation)


def _page(
    connection: duckdb.DuckDBPyConnection,
    facts: BundleFacts,
    *,
    formats: Sequence[str],
    keyid: str | None,
) -> str:
    """The report; where it cannot be made, for whatever reason, the plain page."""
    try:
        tables = read_report_tables(connection, facts)
        return render_report(facts, tables, formats=formats, keyid=keyid)
    except Exception as error:
        # Measurements are paid for by now: no picture is worth stopping the release.
        logger.warning(
            "%s has no charts and tables: the report could not be made (%s); all other files of "
            "the bundle are complete",
            REPORT,
            type(error).__name__,
        )
        return outline_plain_report(facts, formats=formats, keyid=keyid).filled()


def refuse_failed_checks(facts: BundleFacts) -> None:
    """Refuse a release unless checks ran and every one passed.

    Raises:
        GateNotPassed: with the names of the failed checks, none if there was no check.
    """
    failed = tuple(
        check.name for check in facts.checks if not check.passed or check.expectations < 1
    )
    if failed or not facts.checks:
        raise GateNotPassed(failed)
