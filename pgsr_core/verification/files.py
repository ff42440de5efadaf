"""The files of a bundle: as bytes in memory or behind a reader; signed, listed, unchanged."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from pgsr_core.attestation.dsse import EnvelopeRejected
from pgsr_core.attestation.keys import PublicKey
from pgsr_core.attestation.provenance import PROVENANCE_FILE, SignedRelease, open_release
from pgsr_core.attestation.strict_json import MOST_BYTES
from pgsr_core.documents.names import CHECKS_FILE, PACKAGE_FILE, PRIVACY_FILE
from pgsr_core.verification.report import Report, listing, shown

DOCUMENTS = frozenset({CHECKS_FILE, PACKAGE_FILE, PRIVACY_FILE, PROVENANCE_FILE})
FORMS = ("parquet", "csv")
_CHUNK = 1 << 20


class BundleReader(Protocol):
    """A bundle that is too large to hold in memory, or that lies in a folder."""

    def names(self) -> Iterable[str]:
        """Every entry of the bundle, whatever it is."""
        ...

    def open(self, name: str) -> BinaryIO:
        """Open an entry from its start, seekable; OSError if it is no ordinary file."""
        ...


class FileProblem(Exception):
    """A file cannot be examined; the sentence says why."""


@dataclass(frozen=True)
class Checksum:
    """A file's SHA-256, in hexadecimal digits, and its size in bytes."""

    sha256: str
    size: int


class BundleFiles:
    """Reads each file when it is needed, and a document only once."""

    def __init__(self, bundle: Mapping[str, bytes] | BundleReader) -> None:
        self._bundle = bundle
        self.names = frozenset(bundle if isinstance(bundle, Mapping) else bundle.names())
        self._documents: dict[str, bytes] = {}
        self._checksums: dict[str, Checksum] = {}

    def open(self, name: str) -> BinaryIO:
        """Open a file.

        Raises:
            FileProblem: it is missing, or no ordinary file.
        """
        if name not in self.names:
            raise FileProblem(f"{shown(name)} is missing")
        if isinstance(self._bundle, Mapping):
            return io.BytesIO(self._bundle[name])
        try:
            return self._bundle.open(name)
        except OSError:
            raise FileProblem(f"{shown(name)} is not an ordinary file that can be read") from None

    def document(self, name: str) -> bytes:
        """Return a document; what is judged later is what was read, and hashed, here.

        Raises:
            FileProblem: it cannot be read, or is too large to be a document.
        """
        if name not in self._documents:
            try:
                with self.open(name) as stream:
                    content = stream.read(MOST_BYTES + 1)
            except OSError:
                raise FileProblem(f"{shown(name)} cannot be read") from None
            if len(content) > MOST_BYTES:
                raise FileProblem(f"{shown(name)} is larger than {MOST_BYTES} bytes")
            self._documents[name] = content
        return self._documents[name]

    def checksum(self, name: str) -> Checksum:
        """Return a file's checksum.

        Raises:
            FileProblem: it cannot be read.
        """
        if name not in self._checksums:
            self._checksums[name] = self._take_checksum(name)
        return self._checksums[name]

    def _take_checksum(self, name: str) -> Checksum:
        if name in DOCUMENTS:
            content = self.document(name)
            return Checksum(hashlib.sha256(content).hexdigest(), len(content))
        state, size = hashlib.sha256(), 0
        try:
            with self.open(name) as stream:
                while chunk := stream.read(_CHUNK):
                    state.update(chunk)
                    size += len(chunk)
        except OSError:
            raise FileProblem(f"{shown(name)} cannot be read") from None
        return Checksum(state.hexdigest(), size)


class VouchedFiles:
    """The files of a bundle that are the ones that somebody signed, or at least listed.

    Nothing else is parsed: a damaged file is a finding, not something to look into.
    """

    def __init__(self, files: BundleFiles, checksums: Mapping[str, str]) -> None:
        self._files = files
        self._checksums = checksums

    def document(self, name: str) -> bytes:
        """Return a document's content.

        Raises:
            FileProblem: it is missing, or not the one that it should be.
        """
        self._require(name)
        return self._files.document(name)

    def open(self, name: str) -> BinaryIO:
        """Open a file.

        Raises:
            FileProblem: it is missing, or not the one that it should be.
        """
        self._require(name)
        return self._files.open(name)

    def forms_of(self, table: str) -> list[str]:
        """The files that a table is published in."""
        return [file for form in FORMS if (file := f"{table}.{form}") in self._files.names]

    def _require(self, name: str) -> None:
        if name not in self._files.names:
            raise FileProblem(f"{shown(name)} is missing")
        if self._files.checksum(name).sha256 != self._checksums.get(name):
            raise FileProblem(f"{shown(name)} is not looked into: it is not what it should be")


def check_signature(report: Report, files: BundleFiles, key: PublicKey) -> SignedRelease | None:
    """Open the provenance with the key; None if it proves nothing."""
    if PROVENANCE_FILE not in files.names:
        report.fail("signature", f"The bundle is not signed: {PROVENANCE_FILE} is missing.")
        return None
    try:
        signed = open_release(files.document(PROVENANCE_FILE), key=key)
    except EnvelopeRejected as error:
        report.fail("signature", f"The signature is not accepted: {error.reason}.")
        return None
    except FileProblem as problem:
        report.fail("signature", f"The signature cannot be read: {problem}.")
        return None
    report.hold(
        "signature",
        f"{PROVENANCE_FILE} was signed with the key {key.keyid}.",
    )
    return signed


def check_against_signature(
    report: Report, files: BundleFiles, signed: SignedRelease | None
) -> None:
    """Compare the bundle's files with those that were signed, both ways."""
    if signed is None:
        for name in ("files-present", "files-unchanged", "nothing-extra"):
            report.fail(name, "Cannot be told: no valid signature says which files belong here.")
        return
    expected = set(signed.checksums)
    missing = sorted(expected - files.names)
    report.say(
        "files-present",
        not missing,
        holds=f"All {len(expected)} signed files are there.",
        else_=f"Signed files are missing or renamed: {listing(missing)}.",
    )
    there = sorted(expected & files.names)
    changed = [name for name in there if not is_as_expected(files, name, signed.checksums[name])]
    report.say(
        "files-unchanged",
        not changed,
        holds=f"{len(there)} files have the SHA-256 that was signed.",
        else_=f"Files are not those that were signed: {listing(changed)}.",
    )
    extra = sorted(files.names - expected - {PROVENANCE_FILE})
    report.say(
        "nothing-extra",
        not extra,
        holds="There is no file besides those that were signed.",
        else_=f"Files were not signed: {listing(extra)}.",
    )


def is_as_expected(files: BundleFiles, name: str, sha256: str) -> bool:
    """Say whether a file can be read and has this checksum."""
    try:
        return files.checksum(name).sha256 == sha256
    except FileProblem:
        return False
