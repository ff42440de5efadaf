"""Offline verification of a bundle: from file names, bytes and a public key, nothing else."""

from pgsr_core.verification.files import BundleReader
from pgsr_core.verification.notices import Notice, examine_notice
from pgsr_core.verification.report import Item, NotChecked, Verification
from pgsr_core.verification.verify import verify_bundle

__all__ = [
    "BundleReader",
    "Item",
    "NotChecked",
    "Notice",
    "Verification",
    "examine_notice",
    "verify_bundle",
]
