"""Published bundles as the event log vouches for them: whole, and with the recorded checksums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgsr_core.attestation.dsse import claimed_keyid
from pgsr_core.attestation.provenance import PROVENANCE_FILE, claimed_ledger_head
from pgsr_core.chain import Head
from pgsr_core.errors import PgsrError
from tasks.publication.documents import CHECKS, DATAPACKAGE, PRIVACY, REPORT
from tasks.publication.errors import NotABundle
from tasks.publication.place import read_json, verified_checksums
from tasks.publication.tables import FORMATS
from tasks.run import RunRef
from tasks.site.history import ReleaseHistory
from tasks.storage.zones import Home

NOT_PUBLISHED = "It was not published, so there is no bundle."
NOT_HERE = "Its bundle is not where this site was made, so it is not shown here."
NOT_THE_SAME = (
    "The bundle that was found is not the one that was published: its files have other checksums "
    "than the log recorded. It is not shown here."
)


class NoBundle(Exception):
    """There is nothing to show of a release; says why, in words for a page."""


@dataclass(frozen=True)
class Signature:
    """What a signed bundle says of itself; `pgsr audit verify` asks whether the signature fits.

    Attributes:
        keyid: of the key that it names.
        head: of the ledger when it was signed.
    """

    keyid: str
    head: Head | None


@dataclass(frozen=True)
class Bundle:
    """A published bundle.

    Attributes:
        folder: where it is; never shown.
        privacy: privacy.json.
        checks: checks.json.
        package: datapackage.json.
        files: SHA-256 of every file.
    """

    folder: Path
    privacy: Mapping[str, Any]
    checks: Mapping[str, Any]
    package: Mapping[str, Any]
    files: Mapping[str, str]

    @property
    def report(self) -> Path | None:
        """The page for people."""
        return self.folder / REPORT if REPORT in self.files else None

    @property
    def signature(self) -> Signature | None:
        """Who signed it, and when in the ledger's history; None where nobody did."""
        if PROVENANCE_FILE not in self.files:
            return None
        envelope = (self.folder / PROVENANCE_FILE).read_bytes()
        keyid, head = claimed_keyid(envelope), claimed_ledger_head(envelope)
        if keyid is None:
            return None
        return Signature(keyid, None if head is None else Head(head.sequence, head.hash))

    def table(self, name: str) -> Path | None:
        """The file of a table, in the first format that it is published in."""
        names = (f"{name}.{form}" for form in FORMATS)
        return next((self.folder / name for name in names if name in self.files), None)


def find_bundle(home: Home, release: ReleaseHistory) -> Bundle:
    """Find the bundle of a release, and see that it is what was published.

    Raises:
        NoBundle: it was not published, is elsewhere, or is something else.
    """
    if not release.published_on:
        raise NoBundle(NOT_PUBLISHED)
    try:
        plan = RunRef(str(home.root), release.product, release.release).open().plan
    except PgsrError:
        raise NoBundle(NOT_HERE) from None
    folder = plan.destination
    if not folder.is_dir():
        raise NoBundle(NOT_HERE)
    try:
        files = verified_checksums(folder)
        privacy, checks, package = (
            read_json(folder / name) for name in (PRIVACY, CHECKS, DATAPACKAGE)
        )
    except (NotABundle, OSError):
        raise NoBundle(NOT_THE_SAME) from None
    if files != dict(release.published_files):
        raise NoBundle(NOT_THE_SAME)
    return Bundle(folder, privacy, checks, package, files)
