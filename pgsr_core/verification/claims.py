"""Whether the documents' claims follow from one another and from what was signed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from pgsr_core.attestation.provenance import PROVENANCE_FILE, Provenance
from pgsr_core.budget import show
from pgsr_core.documents.names import CHECKS_FILE, PACKAGE_FILE, PRIVACY_FILE
from pgsr_core.mechanisms import MECHANISMS
from pgsr_core.scales import expected_absolute_noise
from pgsr_core.sensitivity import l1_sensitivity
from pgsr_core.verification.documents import ChecksDocument, PackageDocument, PrivacyStatement
from pgsr_core.verification.files import BundleFiles, is_as_expected
from pgsr_core.verification.report import Report, listing

_UNLISTED = frozenset({PACKAGE_FILE, PROVENANCE_FILE})


def check_listing(report: Report, files: BundleFiles, package: PackageDocument) -> None:
    """The data package lists every other file, once, with its size and checksum."""
    names = [listed.name for listed in package.files]
    wrong = sorted(set(names) ^ (files.names - _UNLISTED))
    wrong += [
        listed.name
        for listed in package.files
        if listed.name in files.names
        and not (
            is_as_expected(files, listed.name, listed.sha256)
            and files.checksum(listed.name).size == listed.size
        )
    ]
    report.say(
        "data-package",
        not wrong and len(set(names)) == len(names),
        holds=f"{PACKAGE_FILE} lists the {len(names)} other files with size and SHA-256.",
        else_=f"{PACKAGE_FILE} and the files disagree: {listing(wrong) or 'one is listed twice'}.",
    )


def check_documents_agree(
    report: Report, privacy: PrivacyStatement, checks: ChecksDocument, package: PackageDocument
) -> None:
    """All documents speak of one release, and none of a simulation."""
    headings = (privacy.heading, checks.heading, package.heading)
    report.say(
        "documents-agree",
        len(set(headings)) == 1 and privacy.product == checks.product,
        holds="All documents name the same product, release and date.",
        else_="The documents name different products, releases or dates.",
    )
    report.say(
        "no-simulation",
        not any(heading.simulation for heading in headings),
        holds="The release is not a simulation.",
        else_="NOT PRIVATE: a document says that this is a simulation.",
    )


def check_privacy_arithmetic(report: Report, privacy: PrivacyStatement) -> None:
    """The claim ε follows from the levels' noise.

    Guarantee. Noise of scale b gives one level Δ/b-differential privacy (Ghosh, Roughgarden and
    Sundararajan 2012), and levels compose by adding up (Dwork and Roth 2014, Theorem 3.16): the
    claim needs Δ ≤ b_l ε_l at every level and Σ ε_l = ε.
    """
    levels, epsilon = privacy.levels, privacy.epsilon
    numbered = [level.level for level in levels] == list(range(1, len(levels) + 1))
    shares: Fraction = sum((level.epsilon for level in levels), start=Fraction(0))
    report.say(
        "epsilon-adds-up",
        bool(levels) and numbered and shares == epsilon > 0,
        holds=f"The shares of {len(levels)} levels add up to epsilon {show(epsilon)} exactly.",
        else_="The levels' shares do not add up to epsilon.",
    )
    sensitivity = l1_sensitivity(
        privacy.query,
        neighbours=privacy.neighbours,
        largest_contribution=privacy.largest_contribution,
        largest_size=privacy.largest_size,
        units_from_data=not privacy.units_are_public,
    )
    report.say(
        "sensitivity",
        sensitivity == privacy.sensitivity and privacy.top_coded_at == privacy.largest_size,
        holds=f"The sensitivity {sensitivity} follows from the query and its neighbours.",
        else_=f"The sensitivity should be {sensitivity}.",
    )
    report.say(
        "noise-suffices",
        all(level.scale * level.epsilon >= sensitivity for level in levels),
        holds="At every level scale times epsilon is at least the sensitivity.",
        else_="A level's noise is too small for its share of epsilon.",
    )
    report.say(
        "expected-noise",
        all(_noise_as_claimed(level.scale, level.expected_absolute_noise) for level in levels),
        holds="The expected noise of each level follows from its scale.",
        else_="A level's expected noise does not follow from its scale.",
    )


def _noise_as_claimed(scale: Fraction, claimed: float) -> bool:
    try:
        return math.isclose(expected_absolute_noise(scale), claimed, rel_tol=1e-9)
    except (ArithmeticError, ValueError):
        return False


def check_privacy_terms(report: Report, privacy: PrivacyStatement) -> None:
    """Spending, mechanism and proviso are consistent."""
    report.say(
        "spending",
        privacy.epsilon <= privacy.spent <= privacy.budget
        and privacy.population == privacy.budget_population,
        holds=f"Of the population's budget {show(privacy.budget)}, {show(privacy.spent)} is "
        f"spent, {_charge(privacy)}.",
        else_="The spending does not cover this release, or passes the budget.",
    )
    known = MECHANISMS.get(privacy.mechanism)
    report.say(
        "mechanism",
        known is not None
        and (known.query, known.keeps_region_totals)
        == (privacy.query, privacy.keeps_region_totals),
        holds="The mechanism measures and keeps what the statement says.",
        else_="The mechanism is unknown to this version of pgsr, or does something else.",
    )
    public = privacy.units_are_public
    report.say(
        "invariants",
        privacy.has_proviso is not public and privacy.smallest_size == (0 if public else 1),
        holds="The number of groups is public."
        if public
        else "That the number of groups comes from the data is declared as a proviso.",
        else_="Sizes or proviso do not fit where the number of groups comes from.",
    )


def _charge(privacy: PrivacyStatement) -> str:
    origin = privacy.lineage.reposted_from
    if origin is None:
        return "this release included"
    return f"the measurements included, which release {origin} paid for; this one adds nothing"


def check_gates(report: Report, checks: ChecksDocument) -> None:
    """Every gate of the release passed, by its own account."""
    failed = [c.name for c in checks.checks if not c.passed or c.expectations < 1]
    unique = len({check.name for check in checks.checks}) == len(checks.checks)
    which = listing(failed) or f"see {CHECKS_FILE}"
    report.say(
        "gates",
        checks.passed and bool(checks.checks) and not failed and unique,
        holds=f"{len(checks.checks)} checks of the publisher passed.",
        else_=f"Checks failed, are missing or stand twice: {which}.",
    )
    report.say(
        "certificates",
        not checks.failed_certificates,
        holds="No certificate of a post-processing step says no.",
        else_=f"Certificates say no: {listing(list(checks.failed_certificates))}.",
    )


def check_privacy_as_signed(
    report: Report, privacy: PrivacyStatement, signed: Provenance | None
) -> None:
    """The privacy statement says what the provenance says."""
    claims = {
        "product": (privacy.product, "product"),
        "release": (privacy.heading.release, "release"),
        "population": (privacy.population, "population"),
        "neighbours": (privacy.neighbours, "neighbours"),
        "mechanism": (privacy.mechanism, "mechanism"),
        "sampler": (privacy.sampler, "sampler"),
        "epsilon": (privacy.epsilon, "epsilon"),
        "spent": (privacy.spent, "spent"),
        "budget": (privacy.budget, "budget"),
        "lineage": (privacy.lineage, "lineage"),
    }
    _compare(report, "privacy-as-signed", PRIVACY_FILE, claims, signed)


def check_gates_as_signed(
    report: Report, checks: ChecksDocument, signed: Provenance | None
) -> None:
    """The account of the gates says what the provenance says."""
    claims = {
        "product": (checks.product, "product"),
        "release": (checks.heading.release, "release"),
        "checks": ({check.name: check.passed for check in checks.checks}, "checks"),
        "digests of tables": (dict(checks.table_digests), "table_digests"),
    }
    _compare(report, "checks-as-signed", CHECKS_FILE, claims, signed)


def check_software_as_signed(
    report: Report, package: PackageDocument, signed: Provenance | None
) -> None:
    """The data package names the software that the provenance names."""
    version = package.generator.removeprefix("pgsr ")
    claims = {"version of the software": (version, "code_version")}
    _compare(report, "software-as-signed", PACKAGE_FILE, claims, signed)


def _compare(
    report: Report,
    item: str,
    file: str,
    claims: Mapping[str, tuple[Any, str]],
    signed: Provenance | None,
) -> None:
    if signed is None:
        report.fail(item, f"{file} cannot be compared: nothing was validly signed.")
        return
    different = [name for name, (claim, field) in claims.items() if claim != getattr(signed, field)]
    report.say(
        item,
        not different,
        holds=f"{file} agrees with what was signed ({', '.join(claims)}).",
        else_=f"{file} disagrees with what was signed: {', '.join(different)}.",
    )
