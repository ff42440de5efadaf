"""The provenance of a release: what its publisher signs together with the files' checksums."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from pgsr_core.attestation.dsse import EnvelopeRejected, claimed_payload
from pgsr_core.attestation.keys import PrivateKey, PublicKey
from pgsr_core.attestation.statement import Statement, is_digest
from pgsr_core.attestation.strict_json import NotStrictJson, read_canonical_object
from pgsr_core.errors import Refused
from pgsr_core.lineage import Lineage
from pgsr_core.sensitivity import Neighbours

PROVENANCE_FILE = "provenance.dsse.json"
PREDICATE_TYPE = "urn:pgsr:release-provenance:1"
MEASUREMENTS = "measurements"
_FRACTION = re.compile(r"[0-9]{1,500}(/[0-9]{1,500})?")
_LARGEST_EXACT = 2**53 - 1  # what canonical JSON can say of an integer


class NotSignable(Refused):
    """A release whose provenance does not allow a signature; nothing was signed."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"the release is not signed: {what}. Remedy: nothing was published; only a release "
            "with every check passed is signed, and a simulation never is."
        )


@dataclass(frozen=True)
class LedgerHead:
    """The last event of the ledger's chain when the release was signed."""

    sequence: int
    hash: str

    def __post_init__(self) -> None:
        if not 0 <= self.sequence <= _LARGEST_EXACT or not is_digest(self.hash):
            raise ValueError("a ledger's head is a number and a SHA-256")


@dataclass(frozen=True)
class Provenance:
    """Where a release comes from and what it cost. Nothing in it depends on the true data.

    Attributes:
        product: name of the product.
        release: name of the release.
        configuration_digest: SHA-256 of the decided configuration.
        code_version: version of the software.
        lock_digest: SHA-256 of the lock of its dependencies; None where it ran without one.
        measurement_digest: canonical digest of the committed measurements.
        table_digests: canonical digest of each released table, measurements included, and of
            the tables between them.
        population: whom the charge belongs to.
        epsilon: the charge.
        spent: on the population so far, this release included.
        budget: that may ever be spent on it.
        neighbours: which change of one record the charge covers.
        mechanism: its name in a configuration.
        sampler: the name of what drew the noise.
        checks: whether each gate passed, by name.
        ledger_head: the ledger's last event, or None where the ledger has no chain.
        simulation: whether the noise gives no privacy; never true of anything signed.
        lineage: the releases that it replaces, or whose measurements and charge it rests on.
    """

    product: str
    release: str
    configuration_digest: str
    code_version: str
    lock_digest: str | None
    measurement_digest: str
    table_digests: Mapping[str, str]
    population: str
    epsilon: Fraction
    spent: Fraction
    budget: Fraction
    neighbours: Neighbours
    mechanism: str
    sampler: str
    checks: Mapping[str, bool]
    ledger_head: LedgerHead | None
    simulation: bool = False
    lineage: Lineage = field(default_factory=Lineage)

    def __post_init__(self) -> None:
        digests = [self.configuration_digest, self.measurement_digest, *self.table_digests.values()]
        if self.lock_digest is not None:
            digests.append(self.lock_digest)
        if not all(is_digest(digest) for digest in digests):
            raise ValueError("a digest of the provenance is no SHA-256 in hexadecimal digits")
        if not 0 <= self.epsilon <= self.spent <= self.budget:
            raise ValueError("charge, spend and budget must rise in this order from 0")
        if self.table_digests.get(MEASUREMENTS) != self.measurement_digest:
            raise ValueError("the table of measurements has another digest than the measurements")
        if self.release in self.lineage.named:
            raise ValueError("a release cannot go back to itself")

    def refuse_unsignable(self) -> None:
        """Refuse what must never carry a signature.

        Raises:
            NotSignable: a simulation, or a release with no check or a failed one.
        """
        if self.simulation:
            raise NotSignable("it is a simulation, which is not private")
        failed = sorted(name for name, passed in self.checks.items() if passed is not True)
        if failed or not self.checks:
            raise NotSignable(f"failed checks: {', '.join(failed)}" if failed else "no check ran")

    def to_json(self) -> dict[str, Any]:
        """Return the predicate; fractions are p/q, as JSON has no exact ones."""
        head = self.ledger_head
        return {
            "product": self.product,
            "release": self.release,
            "simulation": self.simulation,
            "configuration_digest": self.configuration_digest,
            "code": {"version": self.code_version, "lock_digest": self.lock_digest},
            "measurement_digest": self.measurement_digest,
            "table_digests": dict(self.table_digests),
            "mechanism": self.mechanism,
            "sampler": self.sampler,
            "charge": {
                "population": self.population,
                "neighbours": str(self.neighbours),
                "epsilon": str(self.epsilon),
                "spent": str(self.spent),
                "budget": str(self.budget),
            },
            "checks": dict(self.checks),
            "ledger_head": None if head is None else {"sequence": head.sequence, "hash": head.hash},
            # Said only where there is something to say, as in bundles from before corrections.
            **({"lineage": self.lineage.to_json()} if self.lineage.named else {}),
        }

    @classmethod
    def from_json(cls, predicate: Mapping[str, Any]) -> Provenance:
        """Read a predicate; unknown, missing and mistyped fields are refused.

        Raises:
            ValueError: with the rule that is broken; no value is quoted.
        """
        match predicate:
            case {
                "product": str(product),
                "release": str(release),
                "simulation": bool(simulation),
                "configuration_digest": str(configuration_digest),
                "code": {"version": str(version), "lock_digest": str() | None as lock, **more_code},
                "measurement_digest": str(measurement_digest),
                "table_digests": dict(table_digests),
                "mechanism": str(mechanism),
                "sampler": str(sampler),
                "charge": {
                    "population": str(population),
                    "neighbours": str(neighbours),
                    "epsilon": str(epsilon),
                    "spent": str(spent),
                    "budget": str(budget),
                    **more_charge,
                },
                "checks": dict(checks),
                "ledger_head": head,
                **others,
            } if not (more_code or more_charge or others.keys() - {"lineage"}):
                return cls(
                    product=product,
                    release=release,
                    configuration_digest=configuration_digest,
                    code_version=version,
                    lock_digest=lock,
                    measurement_digest=measurement_digest,
                    table_digests=_all_of(str, table_digests),
                    population=population,
                    epsilon=exact_fraction(epsilon),
                    spent=exact_fraction(spent),
                    budget=exact_fraction(budget),
                    neighbours=Neighbours(neighbours),
                    mechanism=mechanism,
                    sampler=sampler,
                    checks=_all_of(bool, checks),
                    ledger_head=_ledger_head(head),
                    simulation=simulation,
                    lineage=_lineage(others),
                )
            case _:
                raise ValueError("the provenance has a missing, unknown or mistyped field")


@dataclass(frozen=True)
class SignedRelease:
    """What a valid signature vouches for: the bundle's files and their provenance."""

    checksums: Mapping[str, str]
    provenance: Provenance


def sign_release(checksums: Mapping[str, str], provenance: Provenance, *, key: PrivateKey) -> bytes:
    """Return the content of a bundle's provenance.dsse.json.

    Args:
        checksums: SHA-256 of every other file of the bundle, by name.
        provenance: of the release.
        key: the publisher's.

    Raises:
        NotSignable: a simulation, or a release with no check or a failed one.
    """
    provenance.refuse_unsignable()
    if PROVENANCE_FILE in checksums:
        raise ValueError("a signature cannot cover itself")
    return Statement(checksums, PREDICATE_TYPE, provenance.to_json()).seal(key)


def open_release(envelope: bytes, *, key: PublicKey) -> SignedRelease:
    """Read a bundle's provenance.dsse.json.

    Raises:
        EnvelopeRejected: the key's holder did not sign this as the provenance of a release.
    """
    statement = Statement.unseal(envelope, predicate_type=PREDICATE_TYPE, key=key)
    try:
        provenance = Provenance.from_json(statement.predicate)
        provenance.refuse_unsignable()
    except (ValueError, NotSignable) as error:
        what = error.what if isinstance(error, NotSignable) else error
        raise EnvelopeRejected(f"what was signed is no provenance of a release: {what}") from None
    if PROVENANCE_FILE in statement.subjects:
        raise EnvelopeRejected("what was signed claims to cover its own signature")
    return SignedRelease(statement.subjects, provenance)


def claimed_ledger_head(envelope: bytes) -> LedgerHead | None:
    """Where in the ledger's history a provenance.dsse.json claims to be from, unverified."""
    try:
        statement = read_canonical_object(claimed_payload(envelope) or b"")
        return _ledger_head(statement["predicate"]["ledger_head"])
    except (NotStrictJson, KeyError, TypeError, ValueError):
        return None


def exact_fraction(text: str) -> Fraction:
    """Read p/q in lowest terms, the one way in which it is written.

    Raises:
        ValueError: any other text.
    """
    if _FRACTION.fullmatch(text):
        try:
            value = Fraction(text)
        except ZeroDivisionError:
            value = None
        if value is not None and str(value) == text:
            return value
    raise ValueError("a fraction is not written as p/q in lowest terms")


def _all_of(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    if not all(isinstance(value, kind) for value in values.values()):
        raise ValueError("the provenance has a missing, unknown or mistyped field")
    return dict(values)


def _lineage(fields: Mapping[str, Any]) -> Lineage:
    if "lineage" not in fields:
        return Lineage()
    if not isinstance(fields["lineage"], dict):
        raise ValueError("the lineage is no object")
    return Lineage.from_json(fields["lineage"])


def _ledger_head(head: Any) -> LedgerHead | None:
    match head:
        case None:
            return None
        case {"sequence": int(sequence), "hash": str(hash_), **others} if (
            not others and not isinstance(sequence, bool)
        ):
            return LedgerHead(sequence, hash_)
        case _:
            raise ValueError("a ledger's head is a number and a SHA-256")
