"""Signing a bundle before it is moved into place: the files' checksums and their provenance."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from pgsr_core.attestation.keys import PrivateKey
from pgsr_core.attestation.provenance import PROVENANCE_FILE, LedgerHead, Provenance, sign_release
from tasks.configuration.plan import ReleasePlan
from tasks.keys import own_key, read_private_key
from tasks.publication.errors import PublicFolderUnusable
from tasks.publication.facts import BundleFacts
from tasks.publication.place import verified_checksums
from tasks.storage.zones import Home

PASSPHRASE_VARIABLE = "PGSR_SIGNING_PASSPHRASE"  # noqa: S105  (the name of a variable)
# In a checkout the lock stands beside the packages; in a wheel, inside this one.
LOCKS = (
    Path(__file__).parents[2] / "requirements.lock",
    Path(__file__).parents[1] / "requirements.lock",
)


def named_key(plan: ReleasePlan) -> PrivateKey | None:
    """The key that a plan names; None where it names none.

    Raises:
        PgsrError: the key cannot be read, is open to others, or needs another passphrase.
    """
    name = plan.configuration.publish.signing_key
    if name is None:
        return None
    return read_private_key(Path(plan.folder) / name, passphrase=passphrase())


def signing_key(plan: ReleasePlan, home: Home) -> PrivateKey | None:
    """The key that signs a release: the one its plan names, else the installation's own.

    None for a simulation, which is never signed. So every release carries the ledger's head
    under a signature, whatever its configuration forgot.

    Raises:
        PgsrError: the key cannot be read or made, is open to others, or needs another passphrase.
    """
    if plan.configuration.simulate:
        return None
    return named_key(plan) or own_key(home.signing_key)


def passphrase() -> bytes | None:
    """What opens a protected signing key, from the environment."""
    said = os.environ.get(PASSPHRASE_VARIABLE)
    return said.encode() if said else None


def sign_bundle(
    bundle: Path,
    facts: BundleFacts,
    plan: ReleasePlan,
    *,
    key: PrivateKey,
    ledger_head: LedgerHead | None,
) -> None:
    """Add the signed provenance to a built bundle.

    Raises:
        NotSignable: a simulation, or a release whose checks did not all pass.
        PublicFolderUnusable: the signature cannot be written.
    """
    provenance = Provenance(
        product=facts.product,
        release=facts.release,
        configuration_digest=plan.configuration_digest,
        code_version=facts.code_version,
        lock_digest=lock_digest(),
        measurement_digest=facts.digests["measurements"],
        table_digests=facts.digests,
        population=facts.population,
        epsilon=facts.epsilon,
        spent=facts.spent_on_population,
        budget=facts.budget,
        neighbours=facts.neighbours,
        mechanism=facts.mechanism,
        sampler=facts.sampler,
        checks={check.name: check.passed for check in facts.checks},
        ledger_head=ledger_head,
        simulation=facts.simulation,
        lineage=facts.lineage,
    )
    envelope = sign_release(verified_checksums(bundle), provenance, key=key)
    try:
        (bundle / PROVENANCE_FILE).write_bytes(envelope)
    except OSError as error:
        raise PublicFolderUnusable(error.strerror) from error


def lock_digest() -> str | None:
    """SHA-256 of the dependencies' lock; None where the software runs without one."""
    for lock in LOCKS:
        if lock.is_file():
            return hashlib.sha256(lock.read_bytes()).hexdigest()
    return None
