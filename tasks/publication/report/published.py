"""A bundle read back: the facts and the tables that its report was made from.

Everything comes from the bundle's own files. Sums are taken here again, not as the publisher's
SQL takes them; and the isotonic stage, which is in no file, is computed from the measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pgsr_core.documents.names import CHECKS_FILE, PACKAGE_FILE, PRIVACY_FILE
from pgsr_core.hierarchy import RegionTree
from pgsr_core.margins import MARGINS, MARGINS_BY_LEVEL
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.verification.derived import claimed
from pgsr_core.verification.documents import (
    Fields,
    Malformed,
    read_checks,
    read_package,
    read_privacy,
)
from pgsr_core.verification.files import FORMS, BundleFiles, FileProblem
from pgsr_core.verification.tables import (
    Grid,
    RegionRows,
    read_counts,
    read_margins,
    read_measurements,
    read_region_rows,
    read_typical_margins,
)
from tasks.publication.facts import BundleFacts, CheckFacts
from tasks.publication.report.bins import size_bins
from tasks.publication.report.reading import (
    FITTED,
    MEASURED,
    Int,
    LevelSizes,
    ReportTables,
    regions_to_hold,
)

GENERATOR = "pgsr "


@dataclass(frozen=True)
class PublishedFacts:
    """What the documents of a bundle say, and in which formats its tables are, in order."""

    facts: BundleFacts
    formats: tuple[str, ...]


def read_facts(files: BundleFiles) -> PublishedFacts:
    """Read what the report says besides the tables.

    Raises:
        Malformed, FileProblem: a document is missing or does not say what it must.
        InconsistentFacts: they contradict one another.
    """
    checks = read_checks(files.document(CHECKS_FILE))
    package = read_package(files.document(PACKAGE_FILE))
    stated = claimed(
        read_privacy(files.document(PRIVACY_FILE)),
        code_version=package.generator.removeprefix(GENERATOR),
        margin_repetitions=checks.margin_repetitions,
    )
    if stated is None:
        raise Malformed(f"{PRIVACY_FILE}: this version of pgsr has no such mechanism")
    facts = BundleFacts(
        **vars(stated),
        checks=tuple(
            CheckFacts(
                name=check.text("name"),
                suite=check.text("suite"),
                statement=check.text("statement"),
                passed=check.flag("passed"),
                expectations=check.whole("expectations"),
            )
            for check in Fields(CHECKS_FILE, checks.document).each("checks")
        ),
        certificates=checks.document["certificates"],
        digests=checks.table_digests,
    )
    listed = [file.name for file in package.files]
    formats = [name.removeprefix("regions.") for name in listed if name.startswith("regions.")]
    return PublishedFacts(facts, tuple(form for form in formats if form in FORMS))


def read_tables(files: BundleFiles, facts: BundleFacts) -> ReportTables:
    """Read the tables of a bundle as its report shows them.

    Raises:
        FileProblem, TableProblem, TreeError: a table is missing or cannot be read.
        Malformed: the tables are not of the shape that the documents state.
    """
    with files.open(file := _file_of(files, "regions")) as stream:
        rows = read_region_rows(stream, regions=facts.regions, file=file)
    if None in rows.regions:
        raise Malformed("a region has no id")
    tree = RegionTree.from_table(list(map(str, rows.regions)), list(rows.parents))
    if np.diff(tree.level_start).tolist() != [level.regions for level in facts.levels]:
        raise Malformed("the region tree has other levels than the documents state")
    held = regions_to_hold(facts)
    names, groups = _in_order(rows, tree, held)
    grid, measured_grid = Grid(tree, facts.sizes), Grid(tree, facts.measured_sizes)
    with files.open(file := _file_of(files, "group_sizes")) as stream:
        counts = read_counts(stream, grid, file=file)
    with files.open(file := _file_of(files, MEASURED)) as stream:
        scales = [level.scale for level in facts.levels]
        measured = read_measurements(stream, measured_grid, scales, file=file)[:held]
    bounds = None
    if facts.states_margins and size_bins(facts.sizes) is None:
        with files.open(file := _file_of(files, MARGINS)) as stream:
            bounds = read_margins(stream, grid, file=file)[:, :held]
    fitted = _fitted(facts, measured, groups) if FITTED in facts.certificates else None
    return ReportTables(
        ids=tree.names[:held],
        names=names,
        parents=tree.parent[:held],
        region_levels=tree.level[:held] + 1,
        public_groups=groups,
        released=_in_ranges(counts[:held], facts),
        measured=_measured(measured, facts),
        fitted=None if fitted is None else _measured(fitted, facts),
        bounds=bounds,
        levels=_levels(counts, tree, facts, _half_widths(files, grid, facts)),
    )


def _file_of(files: BundleFiles, table: str) -> str:
    for form in FORMS:
        if f"{table}.{form}" in files.names:
            return f"{table}.{form}"
    raise FileProblem(f"the table {table} is missing")


def _in_order(
    rows: RegionRows, tree: RegionTree, held: int
) -> tuple[tuple[str | None, ...], tuple[int | None, ...]]:
    """Names (none where it is the id) and public numbers of groups, in the order of the tree."""
    found = dict(zip(rows.regions, zip(rows.names, rows.groups, strict=True), strict=True))
    known = [(region, *found[region]) for region in tree.names[:held]]
    names = tuple(None if name == region else name for region, name, _ in known)
    return names, tuple(groups for _, _, groups in known)


def _fitted(facts: BundleFacts, measured: Int, groups: Sequence[int | None]) -> Int:
    """The isotonic stage of each region by itself, as LocalIsotonicFix computes it."""
    from pgsr_core.solvers.isotonic import isotonic_integers

    # Without public numbers of groups there is but the one in all.
    upper = [facts.groups if number is None else number for number in groups]
    return isotonic_integers(np.ascontiguousarray(measured), upper=np.array(upper, dtype=np.int64))


def _starts(sizes: range) -> list[int] | None:
    bins = size_bins(sizes)
    return None if bins is None else [first - sizes.start for first, _ in bins]


def _in_ranges(counts: Int, facts: BundleFacts) -> Int:
    starts = _starts(facts.sizes)
    return counts if starts is None else np.add.reduceat(counts, starts, axis=1)


def _measured(values: Int, facts: BundleFacts) -> Int:
    starts = _starts(facts.measured_sizes)
    if starts is None:
        return values
    if facts.query == Query.CUMULATIVE:
        return values[:, starts]
    return np.add.reduceat(values, starts, axis=1)


def _half_widths(files: BundleFiles, grid: Grid, facts: BundleFacts) -> Int | None:
    if not facts.states_margins:
        return None
    with files.open(file := _file_of(files, MARGINS_BY_LEVEL)) as stream:
        widths = read_typical_margins(stream, grid, file=file)
    starts = _starts(facts.sizes)
    return widths if starts is None else np.maximum.reduceat(widths, starts, axis=2)


def _levels(
    counts: Int, tree: RegionTree, facts: BundleFacts, half_widths: Int | None
) -> tuple[LevelSizes, ...]:
    found = []
    ended_above = 0
    is_leaf = np.diff(tree.first_child) == 0
    for index, level in enumerate(facts.levels):
        here = slice(int(tree.level_start[index]), int(tree.level_start[index + 1]))
        by_size = counts[here].sum(axis=0)
        found.append(
            LevelSizes(
                level=level.level,
                regions=level.regions,
                counts=tuple(_in_ranges(by_size[np.newaxis], facts)[0].tolist()),
                groups=int(by_size.sum()) + ended_above,
                half_widths=None if half_widths is None else half_widths[:, index],
            )
        )
        ended_above += int(counts[here][is_leaf[here]].sum())
    return tuple(found)
