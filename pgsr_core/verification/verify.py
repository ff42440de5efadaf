"""The one function: everything that can be verified of a bundle with its publisher's key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from pgsr_core.attestation.keys import PublicKey
from pgsr_core.attestation.provenance import Provenance
from pgsr_core.documents.names import CHECKS_FILE, PACKAGE_FILE, PRIVACY_FILE
from pgsr_core.verification import claims, derived
from pgsr_core.verification.documents import (
    ChecksDocument,
    Malformed,
    PackageDocument,
    PrivacyStatement,
    read_checks,
    read_package,
    read_privacy,
)
from pgsr_core.verification.files import (
    BundleFiles,
    BundleReader,
    FileProblem,
    VouchedFiles,
    check_against_signature,
    check_signature,
)
from pgsr_core.verification.numbers import check_tables
from pgsr_core.verification.report import Report, Verification

T = TypeVar("T")


def verify_bundle(bundle: Mapping[str, bytes] | BundleReader, key: PublicKey) -> Verification:
    """Verify a bundle: signature, files, claims and the numbers themselves.

    Reads nothing but the bundle: no network, no clock, no ledger. A file that is not the one
    that was signed (or listed, in a bundle without a valid signature) is not looked into. What
    cannot be examined counts as failed.

    Args:
        bundle: the files' bytes by name, or a reader that opens them one at a time. Must not
            change meanwhile.
        key: the publisher's public key, from elsewhere than the bundle.
    """
    report, files = Report(), BundleFiles(bundle)
    signed = check_signature(report, files, key)
    check_against_signature(report, files, signed)
    package = _read(report, "data-package", PACKAGE_FILE, read_package, files.document)
    if package is not None:
        claims.check_listing(report, files, package)
    # Without a signature the data package is the only one to say what a file should be.
    listed = {} if package is None else {file.name: file.sha256 for file in package.files}
    vouched = VouchedFiles(files, signed.checksums if signed else listed)
    privacy = _read(report, "privacy-statement", PRIVACY_FILE, read_privacy, vouched.document)
    checks = _read(report, "account-of-checks", CHECKS_FILE, read_checks, vouched.document)
    provenance = signed.provenance if signed else None
    _check_claims(report, privacy, checks, package, provenance)
    if privacy is None:
        report.fail("tables", f"The tables are not examined without {PRIVACY_FILE}.")
    else:
        recorded = {CHECKS_FILE: checks.table_digests if checks else {}}
        if provenance is not None:
            recorded["what was signed"] = provenance.table_digests
        check_tables(report, vouched, privacy, recorded)
    return Verification(report.items, provenance, report.not_checked)


def _read(
    report: Report,
    item: str,
    file: str,
    read: Callable[[bytes], T],
    content: Callable[[str], bytes],
) -> T | None:
    try:
        return read(content(file))
    except (Malformed, FileProblem) as problem:
        report.fail(item, f"{problem}.")
        return None


def _check_claims(
    report: Report,
    privacy: PrivacyStatement | None,
    checks: ChecksDocument | None,
    package: PackageDocument | None,
    provenance: Provenance | None,
) -> None:
    """Check each claim whose documents could be read; the others failed already."""
    if privacy is not None and checks is not None and package is not None:
        claims.check_documents_agree(report, privacy, checks, package)
        derived.check_package_words(report, privacy, checks, package)
    if package is not None:
        claims.check_software_as_signed(report, package, provenance)
    if privacy is not None:
        claims.check_privacy_arithmetic(report, privacy)
        claims.check_privacy_terms(report, privacy)
        derived.check_sampler(report, privacy)
        derived.check_words(report, privacy)
        claims.check_privacy_as_signed(report, privacy, provenance)
    if privacy is not None and checks is not None:
        derived.check_required(report, privacy, checks)
    if checks is not None:
        claims.check_gates(report, checks)
        claims.check_gates_as_signed(report, checks, provenance)
