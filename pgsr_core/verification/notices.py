"""Whether a notice of withdrawal that stands beside a bundle is about that bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pgsr_core.attestation.dsse import EnvelopeRejected
from pgsr_core.attestation.keys import PublicKey
from pgsr_core.attestation.provenance import Provenance
from pgsr_core.attestation.withdrawal import Withdrawal, open_withdrawal
from pgsr_core.verification.files import BundleFiles, BundleReader, is_as_expected


@dataclass(frozen=True)
class Notice:
    """What was found beside a bundle.

    Attributes:
        withdrawal: what the key's holder says; None if the notice is not accepted.
        problem: why it is not.
    """

    withdrawal: Withdrawal | None
    problem: str | None = None


def examine_notice(
    notice: bytes,
    bundle: Mapping[str, bytes] | BundleReader,
    provenance: Provenance | None,
    key: PublicKey,
) -> Notice:
    """Judge a notice with the key that the bundle is verified with.

    It is about the bundle if it names one of its files by checksum, or the release that the same
    key signed: a bundle that was damaged or built again is withdrawn with its release.

    Args:
        notice: the file's content.
        bundle: the files beside which it stands.
        provenance: what the key's holder signed of the bundle; None without a valid signature.
        key: the publisher's public key.
    """
    try:
        signed = open_withdrawal(notice, key=key)
    except EnvelopeRejected as error:
        return Notice(None, error.reason)
    withdrawal, files = signed.withdrawal, BundleFiles(bundle)
    same_release = provenance is not None and (
        (withdrawal.product, withdrawal.release) == (provenance.product, provenance.release)
    )
    if same_release or any(is_as_expected(files, *entry) for entry in signed.checksums.items()):
        return Notice(withdrawal)
    return Notice(None, "it is about another release")
