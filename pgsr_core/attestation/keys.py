"""Ed25519 keys: making, writing and reading them as PEM, signing and checking.

Neither text nor representation of a private key shows anything but its key id.
"""

from __future__ import annotations

import hashlib
from functools import cached_property

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from pgsr_core.errors import PgsrError

_ENCRYPTED = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"
_PRIVATE = b"PRIVATE KEY-----"


class UnusableKey(PgsrError):
    """A key that is no Ed25519 key in PEM, or the wrong half of one."""

    def __init__(self, what: str, *, remedy: str) -> None:
        self.what = what
        super().__init__(f"the key cannot be used: {what}. Remedy: {remedy}.")


class PassphraseNeeded(UnusableKey):
    """The private key is protected and no passphrase was given."""

    def __init__(self) -> None:
        super().__init__(
            "it is protected by a passphrase, and none was given",
            remedy="name the environment variable that holds it, or run this on a terminal",
        )


class WrongPassphrase(UnusableKey):
    """The passphrase does not open the private key."""

    def __init__(self) -> None:
        super().__init__(
            "the passphrase does not open it", remedy="give the one that it was made with"
        )


class PublicKey:
    """The half of a key that everyone may have: it checks signatures."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key

    @classmethod
    def from_pem(cls, data: bytes) -> PublicKey:
        """Read a public key.

        Raises:
            UnusableKey: it is something else, a private key for instance.
        """
        if _PRIVATE in data:
            raise UnusableKey(
                "it is a private key where a public one is needed",
                remedy="keep it secret, and take what pgsr keys public prints",
            )
        try:
            key = load_pem_public_key(data)
        except (ValueError, UnsupportedAlgorithm):
            raise _not_ed25519("public") from None
        if not isinstance(key, Ed25519PublicKey):
            raise _not_ed25519("public")
        return cls(key)

    def to_pem(self) -> bytes:
        """Write it as PEM (SubjectPublicKeyInfo)."""
        return self._key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    @cached_property
    def keyid(self) -> str:
        """SHA-256 of the key's DER, in hexadecimal digits: what people compare."""
        der = self._key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(der).hexdigest()

    def accepts(self, signature: bytes, message: bytes) -> bool:
        """Say whether the signature is this key's, of this message."""
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and self.keyid == other.keyid

    def __hash__(self) -> int:
        return hash(self.keyid)

    def __repr__(self) -> str:
        return f"PublicKey({self.keyid})"


class PrivateKey:
    """The secret half of a key: it signs."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def generate(cls) -> PrivateKey:
        """Make a new key from the operating system's entropy."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, data: bytes, *, passphrase: bytes | None = None) -> PrivateKey:
        """Read a private key.

        Raises:
            PassphraseNeeded: it is protected and no passphrase was given.
            WrongPassphrase: the passphrase does not open it.
            UnusableKey: it is something else.
        """
        protected = is_protected(data)
        if protected and not passphrase:
            raise PassphraseNeeded
        if passphrase and not protected and _PRIVATE in data:
            raise UnusableKey(
                "a passphrase was given, but nothing protects it",
                remedy="give no passphrase, or make a new key with one",
            )
        try:
            key = load_pem_private_key(data, password=passphrase if protected else None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            # The library does not tell a wrong passphrase from a damaged file.
            raise (WrongPassphrase() if protected else _not_ed25519("private")) from None
        if not isinstance(key, Ed25519PrivateKey):
            raise _not_ed25519("private")
        return cls(key)

    def to_pem(self, *, passphrase: bytes | None = None) -> bytes:
        """Write it as PEM (PKCS #8), encrypted where there is a passphrase."""
        protection: KeySerializationEncryption = NoEncryption()
        if passphrase is not None:
            if not passphrase:
                raise ValueError("an empty passphrase protects nothing")
            protection = BestAvailableEncryption(passphrase)
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)

    @cached_property
    def public(self) -> PublicKey:
        """The other half."""
        return PublicKey(self._key.public_key())

    def sign(self, message: bytes) -> bytes:
        """Sign (Ed25519, RFC 8032; deterministic)."""
        return self._key.sign(message)

    def __repr__(self) -> str:
        return f"PrivateKey(keyid={self.public.keyid})"


def is_protected(data: bytes) -> bool:
    """Say whether a private key in PEM needs a passphrase."""
    return _ENCRYPTED in data


def _not_ed25519(half: str) -> UnusableKey:
    return UnusableKey(
        f"it is no Ed25519 {half} key in PEM", remedy="make a pair of keys with pgsr keys new"
    )
