"""Whether the tables of a bundle are complete, agree with their digests and meet the promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import BinaryIO

import numpy as np

from pgsr_core.canonical import table_digest
from pgsr_core.documents.names import PRIVACY_FILE
from pgsr_core.hierarchy import RegionTree, TreeError
from pgsr_core.margins import MARGINS, MARGINS_BY_LEVEL
from pgsr_core.margins.tables import bounds_hold, half_widths_hold
from pgsr_core.verification.conditions import (
    Int,
    adds_up_in_64_bits,
    check_conditions,
    check_region_totals,
)
from pgsr_core.verification.documents import PrivacyStatement
from pgsr_core.verification.files import FileProblem, VouchedFiles
from pgsr_core.verification.plausibility import Judged, judge, residuals
from pgsr_core.verification.report import NotChecked, Report
from pgsr_core.verification.tables import (
    Grid,
    RegionRows,
    TableProblem,
    read_counts,
    read_margins,
    read_measurements,
    read_region_rows,
    read_typical_margins,
)

COUNTS, MEASUREMENTS, REGIONS = "group_sizes", "measurements", "regions"
Digests = Mapping[str, Mapping[str, str]]
"""Who recorded digests of tables, in words → table → digest."""


@dataclass(frozen=True)
class _Regions:
    """The public tree, and the public number of groups of each region where there is one."""

    tree: RegionTree
    groups: Int | None


def check_tables(
    report: Report, files: VouchedFiles, privacy: PrivacyStatement, recorded: Digests
) -> None:
    """Read every table in every format and hold it against claims, digests and conditions."""
    regions = _check_regions(report, files, privacy)
    if regions is None or not _check_levels(report, privacy, regions.tree):
        report.fail("tables", "Measurements and counts are not examined without their tree.")
        return
    _check_measurements(report, files, privacy, regions.tree, recorded)
    grid = Grid(regions.tree, privacy.sizes)

    def read(stream: BinaryIO, file: str) -> Int:
        return read_counts(stream, grid, file=file)

    counts = _check_matrix(report, files, COUNTS, grid, recorded, read)
    if counts is None:
        report.fail("conditions", "The counts are not examined further: they cannot be read.")
        return
    _check_margins(report, files, grid, counts, recorded)
    check_conditions(report, regions.tree, counts, groups=privacy.groups)
    if privacy.keeps_region_totals and privacy.units_are_public:
        check_region_totals(report, counts, regions.groups)


def _check_margins(
    report: Report, files: VouchedFiles, grid: Grid, counts: Int, recorded: Digests
) -> None:
    """Hold the margins of error, where the release states any, against the counts."""
    tables = (MARGINS, MARGINS_BY_LEVEL)
    if not any(files.forms_of(t) or t in known for t in tables for known in recorded.values()):
        report.hold("margins", "The release states no margins of error.")
        return

    def read(stream: BinaryIO, file: str) -> Int:
        return read_margins(stream, grid, file=file)

    def read_typical(stream: BinaryIO, file: str) -> Int:
        return read_typical_margins(stream, grid, file=file)

    bounds = _check_matrix(report, files, MARGINS, grid, recorded, read)
    typical = _check_matrix(report, files, MARGINS_BY_LEVEL, grid, recorded, read_typical)
    report.say(
        "margins",
        bounds is not None and bounds_hold(counts, bounds),
        holds="Every count lies within its 90% margins, and those within the 95% margins.",
        else_="A count lies outside of its margins, or margins are missing or below zero.",
    )
    report.say(
        "typical-margins",
        typical is not None and half_widths_hold(typical),
        holds="Every level and size has typical half-widths, the 95% one no smaller.",
        else_="Typical half-widths are missing, below zero or smaller at 95% than at 90%.",
    )


def _check_measurements(
    report: Report,
    files: VouchedFiles,
    privacy: PrivacyStatement,
    tree: RegionTree,
    recorded: Digests,
) -> None:
    grid = Grid(tree, privacy.measured_sizes)
    scales = [level.scale for level in privacy.levels]

    def read(stream: BinaryIO, file: str) -> Int:
        return read_measurements(stream, grid, scales, file=file)

    measured = _check_matrix(report, files, MEASUREMENTS, grid, recorded, read)
    if measured is not None:
        report.hold(
            "scales",
            f"Every measurement has the scale that {PRIVACY_FILE} gives its level.",
        )
        _check_noise(report, tree, measured, scales)


def _check_noise(
    report: Report, tree: RegionTree, measured: Int, scales: Sequence[Fraction]
) -> None:
    """Tell whether the measurements can have the noise that is stated; see plausibility.py."""
    item = "noise-as-stated"
    try:
        found = residuals(tree, measured, scales)
    except OverflowError:
        report.fail(item, "The measurements are too large to be held against their noise.")
        return
    if not found:
        what = "that the measurements have noise: with one level it cannot be told"
        report.hold(item, "Cannot be told: with one level there is no sum to compare with.")
        report.leave(NotChecked(what))
        return
    number = sum(part.number for part in found)
    mean = sum(part.squares for part in found) / number
    figure = f"Mean squared standardised residual {mean:.3f} over {number:,} residuals"
    judged = judge(found)
    wrong = [part for part in judged if not part.plausible]
    if all(part.lowest == 0 for part in judged):
        report.leave(NotChecked("that the measurements have noise: there are too few to tell"))
    report.say(
        item,
        not wrong,
        holds=f"{figure} (parent minus children; 1 is expected): {_how_telling(judged)}.",
        else_=f"{figure}: not the noise that is stated. {_how_far(wrong[0]) if wrong else ''}",
    )


def _how_telling(judged: Sequence[Judged]) -> str:
    if all(part.lowest == 0 for part in judged):
        return "too few to tell too little noise from the noise that is stated"
    narrow = min(judged, key=lambda part: part.highest - part.lowest)
    return (
        "every level has what the stated noise can give, "
        f"{narrow.lowest:.3g} to {narrow.highest:.3g} where it is told best"
    )


def _how_far(part: Judged) -> str:
    levels = " and ".join(map(str, part.levels))
    return (
        f"Below level {levels} it is {part.mean:.3g}, where that noise gives "
        f"{part.lowest:.3g} to {part.highest:.3g}."
    )


def _check_matrix(
    report: Report,
    files: VouchedFiles,
    table: str,
    grid: Grid,
    recorded: Digests,
    read: Callable[[BinaryIO, str], Int],
) -> Int | None:
    """Read a table in every format; None unless all of them can be read.

    One matrix is held at a time, besides the first: a table of 50 million cells takes 400 MB.
    """
    names = files.forms_of(table)
    if not names:
        report.fail(f"completeness:{table}", f"The table {table} is missing.")
    first: Int | None = None
    digests: dict[str, str] = {}
    for file in names:
        try:
            with files.open(file) as stream:
                values = read(stream, file)
        except FileProblem as problem:
            report.fail(f"integrality:{file}", f"{problem}.")
            continue
        except TableProblem as problem:
            report.fail(f"{problem.rule}:{file}", f"{problem}.")
            continue
        _say_complete(report, file, grid)
        digests[file] = table_digest(
            values, table=table, tree_digest=grid.tree.digest, sizes=grid.sizes
        )
        first = values if first is None else first
        del values
    _check_digests(report, table, digests, recorded)
    return first if len(digests) == len(names) else None


def _say_complete(report: Report, file: str, grid: Grid) -> None:
    levels = file.startswith(MARGINS_BY_LEVEL)
    rows = f"{grid.tree.levels} levels" if levels else f"{grid.tree.regions} regions"
    report.hold(
        f"integrality:{file}",
        f"{file} has the published columns, with whole numbers where they belong.",
    )
    report.hold(
        f"completeness:{file}",
        f"{file} has one row for each of {rows} and {len(grid.sizes)} sizes, and no other.",
    )


def _check_digests(
    report: Report, table: str, digests: Mapping[str, str], recorded: Digests
) -> None:
    """All formats have one canonical digest, the recorded one: they say the same."""
    found = set(digests.values())
    wrong = [where for where, known in recorded.items() if found != {known.get(table)}]
    report.say(
        f"digest:{table}",
        not wrong,
        holds=f"{' and '.join(digests)} hold the table whose digest is in "
        f"{' and in '.join(recorded)}.",
        else_=f"{table} does not have the one digest given in {' and in '.join(wrong)}.",
    )


def _check_regions(
    report: Report, files: VouchedFiles, privacy: PrivacyStatement
) -> _Regions | None:
    names = files.forms_of(REGIONS)
    if not names:
        report.fail("regions", "The table regions is missing.")
        return None
    found: list[RegionRows] = []
    for file in names:
        try:
            with files.open(file) as stream:
                found.append(read_region_rows(stream, regions=privacy.regions, file=file))
        except (FileProblem, TableProblem) as problem:
            report.fail("regions", f"{problem}.")
            return None
    report.say(
        "regions-in-all-formats",
        all(rows == found[0] for rows in found),
        holds=f"{' and '.join(names)} say the same.",
        else_=f"{' and '.join(names)} say different things.",
    )
    tree = _check_tree(report, found[0])
    if tree is None:
        return None
    return _Regions(tree, _check_groups(report, found[0], tree, privacy))


def _check_tree(report: Report, rows: RegionRows) -> RegionTree | None:
    try:
        named = [region for region in rows.regions if region]
        if len(named) < len(rows.regions):
            raise ValueError("a region has no name")
        tree = RegionTree.from_table(named, rows.parents)
    except TreeError as error:
        report.fail("regions", f"The regions are no tree: {error.rule}.")
        return None
    except ValueError as error:
        report.fail("regions", f"The regions are no tree: {error}.")
        return None
    levels = [int(tree.level[tree.index[region]]) + 1 for region in named]
    report.say(
        "regions",
        levels == list(rows.levels),
        holds=f"The {tree.regions} regions form one tree of {tree.levels} levels.",
        else_="A region is at another level than the tree puts it.",
    )
    return tree


def _check_groups(
    report: Report, rows: RegionRows, tree: RegionTree, privacy: PrivacyStatement
) -> Int | None:
    """Public numbers of groups add up to G; where they are not public, none is given."""
    given = [number for number in rows.groups if number is not None]
    if not privacy.units_are_public:
        report.say(
            "public-groups",
            not given,
            holds="No region's number of groups is given, as none is public.",
            else_="A region's number of groups is given, although none is public.",
        )
        return None
    if len(given) < tree.regions:
        report.fail("public-groups", "A region's public number of groups is missing.")
        return None
    order = [tree.index[region or ""] for region in rows.regions]
    groups = np.empty(tree.regions, dtype=np.int64)
    groups[order] = given
    report.say(
        "public-groups",
        bool(groups.min() >= 0)
        and adds_up_in_64_bits(groups)
        and np.array_equal(tree.children_sums(groups), groups)
        and int(groups[0]) == privacy.groups,
        holds=f"The regions' public numbers of groups add up to {privacy.groups}.",
        else_=f"The regions' public numbers of groups do not add up to {privacy.groups}.",
    )
    return groups


def _check_levels(report: Report, privacy: PrivacyStatement, tree: RegionTree) -> bool:
    claimed = [(level.regions, level.cells) for level in privacy.levels]
    sizes = len(privacy.measured_sizes)
    found = [(int(regions), int(regions) * sizes) for regions in np.diff(tree.level_start)]
    return report.say(
        "levels",
        claimed == found,
        holds=f"{PRIVACY_FILE} describes the levels of this tree.",
        else_=f"{PRIVACY_FILE} describes other levels, or other cells, than the tree has.",
    )
