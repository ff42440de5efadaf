"""Notices of withdrawal: a signed statement beside a bundle, which itself is never touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from pgsr_core.attestation.dsse import EnvelopeRejected
from pgsr_core.attestation.keys import PrivateKey, PublicKey
from pgsr_core.attestation.provenance import LedgerHead
from pgsr_core.attestation.statement import Statement

PREDICATE_TYPE = "urn:pgsr:release-withdrawal:1"
LONGEST_REASON = 1000
NOTICE_SUFFIX = ".withdrawn.dsse.json"


@dataclass(frozen=True)
class Withdrawal:
    """That a published release must not be used any more, and why.

    Attributes:
        product: name of the product.
        release: name of the release.
        reason: in words, for those who have used it.
        withdrawn_on: the day.
        ledger_head: the ledger's own event of the withdrawal.
    """

    product: str
    release: str
    reason: str
    withdrawn_on: date
    ledger_head: LedgerHead

    def __post_init__(self) -> None:
        if not 0 < len(self.reason) <= LONGEST_REASON or not self.reason.isprintable():
            raise ValueError(f"a reason is one line of at most {LONGEST_REASON} characters")

    def to_json(self) -> dict[str, Any]:
        """Return the predicate."""
        return {
            "product": self.product,
            "release": self.release,
            "reason": self.reason,
            "withdrawn_on": self.withdrawn_on.isoformat(),
            "ledger_head": vars(self.ledger_head),
        }

    @classmethod
    def from_json(cls, predicate: Mapping[str, Any]) -> Withdrawal:
        """Read a predicate; unknown, missing and mistyped fields are refused.

        Raises:
            ValueError: with the rule that is broken; no value is quoted.
        """
        match predicate:
            case {
                "product": str(product),
                "release": str(release),
                "reason": str(reason),
                "withdrawn_on": str(day),
                "ledger_head": {"sequence": int(sequence), "hash": str(hash_), **more},
                **others,
            } if not (more or others or isinstance(sequence, bool)):
                head = LedgerHead(sequence, hash_)
                return cls(product, release, reason, date.fromisoformat(day), head)
            case _:
                raise ValueError("the notice has a missing, unknown or mistyped field")


@dataclass(frozen=True)
class SignedWithdrawal:
    """What a valid signature vouches for: the withdrawal, and files of the withdrawn bundle."""

    checksums: Mapping[str, str]
    withdrawal: Withdrawal


def notice_name(release: str) -> str:
    """The name of a release's notice, in the folder that holds the release's."""
    return f"{release}{NOTICE_SUFFIX}"


def sign_withdrawal(
    checksums: Mapping[str, str], withdrawal: Withdrawal, *, key: PrivateKey
) -> bytes:
    """Return the content of a notice; the same withdrawal and key give the same bytes.

    Args:
        checksums: SHA-256 of files that tell which bundle is meant, by name.
        withdrawal: what is said of it.
        key: the publisher's.
    """
    return Statement(checksums, PREDICATE_TYPE, withdrawal.to_json()).seal(key)


def open_withdrawal(envelope: bytes, *, key: PublicKey) -> SignedWithdrawal:
    """Read a notice.

    Raises:
        EnvelopeRejected: the key's holder did not sign this as a notice of withdrawal.
    """
    statement = Statement.unseal(envelope, predicate_type=PREDICATE_TYPE, key=key)
    try:
        withdrawal = Withdrawal.from_json(statement.predicate)
    except ValueError as error:
        raise EnvelopeRejected(f"what was signed is no notice of withdrawal: {error}") from None
    return SignedWithdrawal(statement.subjects, withdrawal)
