"""The JSON documents of a bundle: how they are written, and checks.json."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pgsr_core.documents import checks, package
from pgsr_core.documents.names import CHECKS_FILE, PACKAGE_FILE, PRIVACY_FILE, REPORT_FILE
from pgsr_core.documents.wordings import marked
from tasks.publication.facts import BundleFacts

CHECKS = CHECKS_FILE
DATAPACKAGE = PACKAGE_FILE
PRIVACY = PRIVACY_FILE
REPORT = REPORT_FILE


def write_json(path: Path, document: Mapping[str, Any], *, simulation: bool) -> None:
    """Write a document; a simulation says so in its first field."""
    whole = marked(document, simulation=simulation)
    text = json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def file_digest(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def checks_document(facts: BundleFacts) -> dict[str, Any]:
    """Return checks.json: every gate, the solvers' certificates and the tables' digests."""
    return checks.checks_document(
        product=facts.product,
        release=facts.release,
        published_on=facts.published_on,
        checks=[asdict(check) for check in facts.checks],
        certificates=facts.certificates,
        digests=facts.digests,
    )


def datapackage_document(
    folder: Path, facts: BundleFacts, *, formats: Sequence[str]
) -> dict[str, Any]:
    """Return datapackage.json for the files of a folder."""
    files = {path.name: _File(file_digest(path), path.stat().st_size) for path in folder.iterdir()}
    return package.datapackage_document(files, facts, formats=formats)


@dataclass(frozen=True)
class _File:
    sha256: str
    size: int
