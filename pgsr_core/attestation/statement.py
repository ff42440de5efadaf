"""In-toto v1 statements: which files (by SHA-256), and what is said of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pgsr_core.attestation.dsse import EnvelopeRejected, seal, unseal
from pgsr_core.attestation.keys import PrivateKey, PublicKey
from pgsr_core.attestation.strict_json import NotStrictJson, read_canonical_object
from pgsr_core.canonical import canonical_json

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"  # a name; nothing is fetched from it
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class Statement:
    """What is signed.

    Attributes:
        subjects: SHA-256 of each file, by its name in the folder it is published in.
        predicate_type: names the kind and version of the predicate.
        predicate: what is said of the files.
    """

    subjects: Mapping[str, str]
    predicate_type: str
    predicate: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not self.subjects:
            raise ValueError("a statement must be about at least one file")
        for name, digest in self.subjects.items():
            if not is_file_name(name):
                raise ValueError("a subject must be the plain name of a file")
            if not is_digest(digest):
                raise ValueError("a subject's digest must be SHA-256 in hexadecimal digits")

    def seal(self, key: PrivateKey) -> bytes:
        """Sign it, as a DSSE envelope; one statement and key give the same bytes."""
        statement = {
            "_type": STATEMENT_TYPE,
            "subject": [
                {"name": name, "digest": {"sha256": digest}}
                for name, digest in sorted(self.subjects.items())
            ],
            "predicateType": self.predicate_type,
            "predicate": dict(self.predicate),
        }
        return seal(canonical_json(statement), payload_type=PAYLOAD_TYPE, key=key)

    @classmethod
    def unseal(cls, envelope: bytes, *, predicate_type: str, key: PublicKey) -> Statement:
        """Read a statement that the key's holder signed.

        Raises:
            EnvelopeRejected: the signature does not hold, or what it covers is no statement of
                this type about files by plain names.
        """
        payload = unseal(envelope, payload_type=PAYLOAD_TYPE, key=key)
        try:
            fields = read_canonical_object(payload)
        except NotStrictJson as error:
            raise EnvelopeRejected(f"what was signed cannot be read, {error}") from None
        match fields:
            case {
                "_type": str(kind),
                "subject": list(subjects),
                "predicateType": str(found_type),
                "predicate": dict(predicate),
                **others,
            } if kind == STATEMENT_TYPE and not others:
                pass
            case _:
                raise EnvelopeRejected("what was signed is no in-toto v1 statement")
        if found_type != predicate_type:
            raise EnvelopeRejected("what was signed is another kind of statement")
        try:
            return cls(_subjects(subjects), found_type, predicate)
        except ValueError as error:
            raise EnvelopeRejected(f"what was signed breaks a rule: {error}") from None


def _subjects(listed: list[Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for subject in listed:
        match subject:
            case {"name": str(name), "digest": {"sha256": str(digest), **more}, **others} if (
                not more and not others and name not in found
            ):
                found[name] = digest
            case _:
                raise ValueError("each subject must be one file's name and SHA-256, once")
    if list(found) != sorted(found):
        raise ValueError("subjects must be in order of their names")
    return found


def is_file_name(name: str) -> bool:
    """Say whether a name can stand for one file of a bundle, and cannot lead out of it."""
    return _FILE_NAME.fullmatch(name) is not None


def is_digest(text: str) -> bool:
    """Say whether a text is a SHA-256 in hexadecimal digits."""
    return _DIGEST.fullmatch(text) is not None
