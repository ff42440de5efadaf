"""Replay: every post-processing stage again, from the measurements and public facts alone.

Right of the privacy barrier a release is a pure function of its measurements, so whoever holds
those can compute it again and compare. Tables are compared by canonical digest (canonical.py):
neither the order of rows nor the version of a Parquet writer matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pgsr_core.canonical import table_digest
from pgsr_core.documents.names import CHECKS_FILE, PACKAGE_FILE, PRIVACY_FILE
from pgsr_core.errors import PgsrError
from pgsr_core.hierarchy import RegionTree, TreeError
from pgsr_core.margins import MARGINS, MARGINS_BY_LEVEL
from pgsr_core.margins.release import margins_of
from pgsr_core.margins.tables import bounds_hold
from pgsr_core.mechanisms import MECHANISMS, Mechanism
from pgsr_core.postprocessing.protocol import Fact, PublicFacts
from pgsr_core.verification.documents import (
    Malformed,
    PrivacyStatement,
    read_checks,
    read_package,
    read_privacy,
)
from pgsr_core.verification.files import FORMS, BundleFiles, BundleReader, FileProblem
from pgsr_core.verification.numbers import COUNTS, MEASUREMENTS, REGIONS
from pgsr_core.verification.report import Item, Report
from pgsr_core.verification.tables import (
    MARGIN_READERS,
    Grid,
    Reader,
    RegionRows,
    TableProblem,
    read_counts,
    read_measurements,
    read_region_rows,
)

Int = NDArray[np.int64]
Witnesses = Mapping[str, Mapping[str, str | None]]
"""Table → who says something of it, in words → the digest; None where it is damaged."""

_SHOWN_DIGITS = 12


class NotReplayable(PgsrError):
    """What a replay starts from cannot be read; nothing was compared."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"the release cannot be replayed: {what}. Remedy: see what pgsr audit verify says of "
            "the bundle, and fetch it again from its publisher."
        )


@dataclass(frozen=True)
class Origin:
    """What a replay starts from.

    Attributes:
        mechanism: its steps are the stages.
        facts: all that the steps may know besides the measurements.
        measurements: regions × measured sizes.
        margin_repetitions: how often the release is simulated for its margins; 0: it has none.
    """

    mechanism: Mechanism
    facts: PublicFacts
    measurements: Int
    margin_repetitions: int = 0

    @property
    def digest(self) -> str:
        """The canonical digest of the measurements."""
        return table_digest(
            self.measurements,
            table=MEASUREMENTS,
            tree_digest=self.facts.tree.digest,
            sizes=self.facts.measured_sizes(self.mechanism.query),
        )

    def differs(self, other: Origin) -> tuple[str, ...]:
        """Name what two origins do not have in common."""
        ours, theirs = self.facts, other.facts
        pairs = {
            "mechanism": (self.mechanism.name, other.mechanism.name),
            "region tree": (ours.tree.digest, theirs.tree.digest),
            "sizes": (ours.sizes, theirs.sizes),
            "number of groups": (ours.groups, theirs.groups),
            "groups of each region": (_plain(ours), _plain(theirs)),
            "scales": (ours.scales, theirs.scales),
            "measurements": (self.digest, other.digest),
            "repetitions for margins": (self.margin_repetitions, other.margin_repetitions),
        }
        return tuple(name for name, (mine, yours) in pairs.items() if mine != yours)


@dataclass(frozen=True)
class PublishedOrigin:
    """A bundle as a replay sees it.

    Attributes:
        product: name of the product.
        release: name of the release.
        generator: the software that made it, by its own account.
        origin: what the release was computed from.
        witnesses: what the bundle's files say of the tables.
    """

    product: str
    release: str
    generator: str
    origin: Origin
    witnesses: Witnesses


@dataclass(frozen=True)
class Recomputed:
    """One stage's table, computed again.

    Attributes:
        stage: the step.
        table: the name of its table.
        digest: the table's canonical digest.
        refuted: facts of the step's certificate that say no.
        certificate: all of its facts.
    """

    stage: str
    table: str
    digest: str
    refuted: tuple[str, ...]
    certificate: Mapping[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True)
class Replay:
    """What was recomputed and compared, line by line; and the certificate of each stage."""

    items: tuple[Item, ...]
    certificates: Mapping[str, Mapping[str, Fact]] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """Whether everything that was compared is equal; nothing compared is not."""
        return bool(self.items) and all(item.passed for item in self.items)


def recompute(origin: Origin) -> Iterator[Recomputed]:
    """Run the mechanism's steps on the measurements; two tables are held at a time.

    Raises:
        PgsrError: a solver does not take the numbers.
    """
    facts, steps = origin.facts, origin.mechanism.steps
    values = origin.measurements
    for step in steps:
        last = step is steps[-1]
        result = step(values, facts)
        values = result.values
        table = COUNTS if last else step.name
        sizes = facts.sizes if last else facts.measured_sizes(origin.mechanism.query)
        yield Recomputed(
            stage=step.name,
            table=table,
            digest=table_digest(values, table=table, tree_digest=facts.tree.digest, sizes=sizes),
            refuted=tuple(name for name, fact in result.certificate.items() if fact is False),
            certificate=result.certificate,
        )
    if origin.margin_repetitions > 0:
        yield from _recompute_margins(origin, values)


def _recompute_margins(origin: Origin, counts: Int) -> Iterator[Recomputed]:
    facts = origin.facts
    margins = margins_of(
        origin.mechanism,
        facts,
        origin.measurements,
        counts,
        repetitions=origin.margin_repetitions,
    )
    holds = bounds_hold(counts, margins.bounds)
    for table, values in ((MARGINS, margins.bounds), (MARGINS_BY_LEVEL, margins.half_widths)):
        digest = table_digest(values, table=table, tree_digest=facts.tree.digest, sizes=facts.sizes)
        refuted = () if holds else ("counts lie within their margins",)
        yield Recomputed(stage=table, table=table, digest=digest, refuted=refuted)


def replay(origin: Origin, witnesses: Witnesses, *, notes: Sequence[Item] = ()) -> Replay:
    """Compute every stage again and compare it with what each witness says of its table.

    Measurements that a witness disowns are not computed with: what came of it would say nothing
    about the release.

    Args:
        origin: what the stages start from.
        witnesses: of the measurements and of the stages' tables.
        notes: what was found out before; it goes first.
    """
    report = Report()
    certificates = {}
    if _say_measurements(report, origin, witnesses.get(MEASUREMENTS, {})):
        try:
            for done in recompute(origin):
                certificates[done.stage] = done.certificate
                _say_stage(report, done, witnesses.get(done.table, {}))
        except PgsrError as error:
            report.fail("recomputed", f"The stages cannot be recomputed: {error}")
    return Replay((*notes, *report.items), certificates)


def replay_bundle(bundle: Mapping[str, bytes] | BundleReader) -> Replay:
    """Replay a bundle from its own files: no key, no network, no ledger.

    Raises:
        NotReplayable: a document or table cannot be read.
    """
    published = read_published(bundle)
    return replay(published.origin, published.witnesses)


def _say_measurements(report: Report, origin: Origin, said: Mapping[str, str | None]) -> bool:
    wrong = [who for who, digest in said.items() if digest != origin.digest]
    return report.say(
        MEASUREMENTS,
        bool(said) and not wrong,
        holds=f"The measurements ({_short(origin.digest)}) are those of {_all(said)}.",
        else_=f"The measurements are not those of {_all(wrong)}; nothing is computed from them."
        if wrong
        else "Nobody says which measurements these are; nothing is computed from them.",
    )


def _say_stage(report: Report, done: Recomputed, said: Mapping[str, str | None]) -> None:
    wrong = [who for who, digest in said.items() if digest != done.digest]
    alike = f"equal to that of {_all(said)}" if said else "of which no digest was published"
    published = done.table in {COUNTS, MARGINS, MARGINS_BY_LEVEL}
    report.say(
        f"recomputed:{done.table}",
        not wrong and (bool(said) or not published),
        holds=f"Stage {done.stage} again gives {done.table} ({_short(done.digest)}), {alike}.",
        else_=f"Stage {done.stage} again gives another {done.table} than {_all(wrong)}."
        if wrong
        else f"Nobody says what {done.table} should be.",
    )
    report.say(
        f"certificate:{done.stage}",
        not done.refuted,
        holds=f"Stage {done.stage} proves its result.",
        else_=f"Stage {done.stage} cannot prove its result: {', '.join(done.refuted)}.",
    )


def read_published(bundle: Mapping[str, bytes] | BundleReader) -> PublishedOrigin:
    """Read what a replay needs from a bundle, every table in every format.

    Raises:
        NotReplayable: a document or table is missing or cannot be read.
    """
    files = BundleFiles(bundle)
    try:
        privacy = read_privacy(files.document(PRIVACY_FILE))
        checks = read_checks(files.document(CHECKS_FILE))
        package = read_package(files.document(PACKAGE_FILE))
        mechanism = _mechanism(privacy)
        facts = _facts(files, privacy)
        measured, noisy = _read_measurements(files, facts, mechanism)
        grid = Grid(facts.tree, facts.sizes)
        released = _digests_of(files, COUNTS, grid, read_counts)
        margins: dict[str, dict[str, str | None]] = {}
        if checks.margin_repetitions > 0:
            margins = {
                table: {
                    CHECKS_FILE: checks.table_digests.get(table),
                    **_digests_of(files, table, grid, read),
                }
                for table, read in MARGIN_READERS.items()
            }
    except (Malformed, FileProblem, TableProblem) as problem:
        raise NotReplayable(str(problem)) from None
    except TreeError as error:
        raise NotReplayable(f"the regions are no tree: {error.rule}") from None
    recorded = checks.table_digests
    between = [step.name for step in mechanism.steps[:-1] if step.name in recorded]
    return PublishedOrigin(
        product=privacy.product,
        release=privacy.heading.release,
        generator=package.generator,
        origin=Origin(mechanism, facts, noisy, checks.margin_repetitions),
        witnesses={
            MEASUREMENTS: {CHECKS_FILE: recorded.get(MEASUREMENTS), **measured},
            COUNTS: {CHECKS_FILE: recorded.get(COUNTS), **released},
            **{stage: {CHECKS_FILE: recorded[stage]} for stage in between},
            **margins,
        },
    )


def _mechanism(privacy: PrivacyStatement) -> Mechanism:
    known = MECHANISMS.get(privacy.mechanism)
    if known is None or known.query is not privacy.query:
        raise Malformed(f"{PRIVACY_FILE}: this version of pgsr has no such mechanism")
    return known


def _facts(files: BundleFiles, privacy: PrivacyStatement) -> PublicFacts:
    file = _forms_of(files, REGIONS)[0]
    with files.open(file) as stream:
        rows = read_region_rows(stream, regions=privacy.regions, file=file)
    if not all(rows.regions):
        raise Malformed(f"{file}: a region has no name")
    tree = RegionTree.from_table([name or "" for name in rows.regions], rows.parents)
    if [level.regions for level in privacy.levels] != np.diff(tree.level_start).tolist():
        raise Malformed(f"{PRIVACY_FILE} describes other levels than the regions have")
    if privacy.smallest_size != (0 if privacy.units_are_public else 1):
        raise Malformed(f"{PRIVACY_FILE}: the smallest size does not fit the units")
    return PublicFacts(
        tree=tree,
        smallest_size=privacy.smallest_size,
        largest_size=privacy.largest_size,
        groups=privacy.groups,
        groups_by_region=_groups(rows, tree, file) if privacy.units_are_public else None,
        scales=tuple(level.scale for level in privacy.levels),
    )


def _groups(rows: RegionRows, tree: RegionTree, file: str) -> Int:
    """The public number of groups of each region, in tree order."""
    given = [number for number in rows.groups if number is not None]
    if len(given) < tree.regions:
        raise Malformed(f"{file}: a region's public number of groups is missing")
    groups = np.empty(tree.regions, dtype=np.int64)
    groups[[tree.index[name or ""] for name in rows.regions]] = given
    return groups


def _read_measurements(
    files: BundleFiles, facts: PublicFacts, mechanism: Mechanism
) -> tuple[dict[str, str], Int]:
    grid = Grid(facts.tree, facts.measured_sizes(mechanism.query))
    digests: dict[str, str] = {}
    for file in _forms_of(files, MEASUREMENTS):
        with files.open(file) as stream:
            values = read_measurements(stream, grid, facts.scales, file=file)
        digests[file] = _digest(values, MEASUREMENTS, grid)
    # All formats must agree, or the replay stops: any of them will do.
    return digests, values


def _digests_of(files: BundleFiles, table: str, grid: Grid, read: Reader) -> dict[str, str]:
    """The digest of each file that a table is published in."""
    digests: dict[str, str] = {}
    for file in _forms_of(files, table):
        with files.open(file) as stream:
            digests[file] = _digest(read(stream, grid, file=file), table, grid)
    return digests


def _digest(values: Int, table: str, grid: Grid) -> str:
    return table_digest(values, table=table, tree_digest=grid.tree.digest, sizes=grid.sizes)


def _forms_of(files: BundleFiles, table: str) -> list[str]:
    """The files that a table is published in; at least one."""
    found = [file for form in FORMS if (file := f"{table}.{form}") in files.names]
    if not found:
        raise FileProblem(f"the table {table} is missing")
    return found


def _plain(facts: PublicFacts) -> list[int] | None:
    return None if facts.groups_by_region is None else facts.groups_by_region.tolist()


def _short(digest: str) -> str:
    return f"sha256 {digest[:_SHOWN_DIGITS]}…"


def _all(names: Mapping[str, str | None] | Sequence[str]) -> str:
    return ", ".join(names)
