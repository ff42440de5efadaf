"""Whether every word of a bundle's documents follows from its numbers.

The documents are derived again, as their publisher derives them, and compared whole: a word that
was changed, left out or added is found, in a field that nobody looks at as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pgsr_core.documents.checks import RequiredCheck, checks_document, required_checks
from pgsr_core.documents.names import CHECKS_FILE, PACKAGE_FILE, PRIVACY_FILE
from pgsr_core.documents.package import datapackage_document
from pgsr_core.documents.stated import Stated
from pgsr_core.documents.tables import published_tables
from pgsr_core.documents.wordings import CURRENT, WORDINGS, marked, privacy_document
from pgsr_core.documents.words import PRIVATE_SAMPLERS
from pgsr_core.margins import MARGINS, MARGINS_BY_LEVEL
from pgsr_core.mechanisms import MECHANISMS, Mechanism
from pgsr_core.verification.documents import (
    ChecksDocument,
    PackageDocument,
    PrivacyStatement,
)
from pgsr_core.verification.files import FORMS
from pgsr_core.verification.report import Report, listing

_GENERATOR = re.compile(r"pgsr [0-9A-Za-z.+!-]{1,64}")
_FACT_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_FACT_TEXT = re.compile(r"-?[0-9]{1,400}(/[0-9]{1,400})?")


def claimed(
    privacy: PrivacyStatement, *, code_version: str = "", margin_repetitions: int = 0
) -> Stated | None:
    """Return what the documents state; None for a mechanism that this version does not know.

    Args:
        privacy: the numbers.
        code_version: from datapackage.json; privacy.json does not use it.
        margin_repetitions: from checks.json; likewise.
    """
    mechanism = MECHANISMS.get(privacy.mechanism)
    if mechanism is None:
        return None
    return Stated(
        product=privacy.product,
        release=privacy.heading.release,
        published_on=privacy.heading.published_on,
        code_version=code_version,
        simulation=privacy.heading.simulation,
        population=privacy.population,
        unit_of_privacy=privacy.unit_of_privacy,
        epsilon=privacy.epsilon,
        levels=privacy.levels,
        neighbours=privacy.neighbours,
        sensitivity=privacy.sensitivity,
        query=privacy.query,
        mechanism=privacy.mechanism,
        notation=mechanism.notation,
        sampler=privacy.sampler,
        units_from_data=not privacy.units_are_public,
        groups=privacy.groups,
        smallest_size=privacy.smallest_size,
        largest_size=privacy.largest_size,
        largest_contribution=privacy.largest_contribution,
        keeps_region_totals=privacy.keeps_region_totals,
        spent_on_population=privacy.spent,
        budget=privacy.budget,
        lineage=privacy.lineage,
        margin_repetitions=margin_repetitions,
    )


def check_words(report: Report, privacy: PrivacyStatement) -> None:
    """Every sentence and field of privacy.json follows from its numbers, and none is added."""
    facts, wording = claimed(privacy), WORDINGS.get(privacy.wording)
    if facts is None or wording is None:
        report.fail("words", f"{PRIVACY_FILE} is written in words that this version cannot derive.")
        return
    # Without a level there is nothing to say of them, and nothing is promised.
    derived = privacy_document(facts, wording) if facts.levels else {}
    if "lineage" not in privacy.document:  # as in bundles from before corrections
        derived.pop("lineage", None)
    wrong = differing(privacy.document, marked(derived, simulation=facts.simulation))
    newer = "" if wording is CURRENT else f", in an earlier wording (number {wording.version})"
    report.say(
        "words",
        not wrong,
        holds=f"Every word of {PRIVACY_FILE} follows from its numbers{newer}.",
        else_=f"{PRIVACY_FILE} says what does not follow from its numbers: {listing(wrong)}.",
    )


def check_sampler(report: Report, privacy: PrivacyStatement) -> None:
    """The noise of a release comes from a sampler that is known to be private."""
    report.say(
        "sampler",
        privacy.sampler in PRIVATE_SAMPLERS and not privacy.heading.simulation,
        holds=f"The sampler {privacy.sampler} is one that a release may use.",
        else_="The sampler is not one that a release may use, or this is a simulation.",
    )


def check_required(report: Report, privacy: PrivacyStatement, checks: ChecksDocument) -> None:
    """The checks are those that the promises call for, with their sentences, and no other."""
    mechanism = MECHANISMS.get(privacy.mechanism)
    if mechanism is None:
        report.fail("required-checks", "Which checks must be there is not known: see mechanism.")
        return
    required = _required(privacy, checks)
    derived = checks_document(
        product=privacy.product,
        release=privacy.heading.release,
        published_on=privacy.heading.published_on,
        checks=[check.passed() for check in required],
        certificates=checks.document["certificates"],
        digests=checks.table_digests,
    )
    wrong = differing(checks.document, marked(derived, simulation=privacy.heading.simulation))
    names = {check.name for check in required} ^ {check.name for check in checks.checks}
    report.say(
        "required-checks",
        not wrong,
        holds=f"The {len(required)} checks are those that the promises call for, each with its "
        "sentence and its number of expectations.",
        else_=f"{CHECKS_FILE} does not say exactly what the promises call for: "
        f"{listing(sorted(names) or wrong)}.",
    )
    _check_accounts(report, mechanism, checks)


def _required(privacy: PrivacyStatement, checks: ChecksDocument) -> tuple[RequiredCheck, ...]:
    public = privacy.units_are_public
    return required_checks(
        region_groups_are_public=public,
        region_totals_are_promised=public and privacy.keeps_region_totals,
        states_margins=checks.margin_repetitions > 0,
    )


def _check_accounts(report: Report, mechanism: Mechanism, checks: ChecksDocument) -> None:
    """Certificates and digests are those of the mechanism's stages: names, and plain facts."""
    stages = [step.name for step in mechanism.steps]
    margins = checks.margin_repetitions > 0
    tables = {"measurements", "group_sizes", *stages[:-1]}
    tables |= {MARGINS, MARGINS_BY_LEVEL} if margins else set()
    certificates = checks.document["certificates"]
    report.say(
        "accounts",
        set(certificates) == {*stages, *([MARGINS] if margins else [])}
        and set(checks.table_digests) == tables
        and all(
            _is_plain(name, fact) for facts in certificates.values() for name, fact in facts.items()
        ),
        holds=f"{CHECKS_FILE} has the certificates and digests of this mechanism's stages.",
        else_=f"{CHECKS_FILE} has other certificates or digests than this mechanism's stages.",
    )


def _is_plain(name: str, fact: object) -> bool:
    """A certificate has room for numbers, not for sentences."""
    plain = _FACT_TEXT.fullmatch(fact) if isinstance(fact, str) else isinstance(fact, int | float)
    return bool(plain and _FACT_NAME.fullmatch(name))


def check_package_words(
    report: Report, privacy: PrivacyStatement, checks: ChecksDocument, package: PackageDocument
) -> None:
    """Titles, descriptions, schemas and listing of datapackage.json follow from the numbers."""
    facts = claimed(
        privacy,
        code_version=package.generator.removeprefix("pgsr "),
        margin_repetitions=checks.margin_repetitions,
    )
    if facts is None:
        report.fail("data-package-words", "What the tables mean is not known: see mechanism.")
        return
    listed = {file.name: file for file in package.files}
    first = published_tables(facts)[0].name
    formats = [
        form
        for name in listed
        for form in [name.removeprefix(f"{first}.")]
        if name.startswith(f"{first}.") and form in FORMS
    ]
    try:
        derived = datapackage_document(listed, facts, formats=formats)
    except KeyError:  # a file that belongs to a bundle is not listed
        derived = {}
    wrong = differing(package.document, marked(derived, simulation=facts.simulation))
    if not _GENERATOR.fullmatch(package.generator):
        wrong.append("generator")
    report.say(
        "data-package-words",
        not wrong,
        holds=f"Every word of {PACKAGE_FILE} follows from what the release states.",
        else_=f"{PACKAGE_FILE} says what does not follow from the release: {listing(wrong)}.",
    )


def differing(found: Mapping[str, Any], derived: Mapping[str, Any]) -> list[str]:
    """Name the fields that differ; 1, 1.0 and true do."""
    return sorted(
        name
        for name in {*found, *derived}
        if name not in found or name not in derived or _text(found[name]) != _text(derived[name])
    )


def _text(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True)
    except RecursionError:
        return ""  # nothing that is derived is nested so deeply
