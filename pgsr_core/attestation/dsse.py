"""DSSE v1 envelopes (Dead Simple Signing Envelope): one payload, one signature, one spelling.

The standard allows white space, several signatures and two alphabets of base64 around what is
signed. Here an envelope has exactly one form, and anything else is refused: what surrounds the
payload is not covered by the signature, so it must leave no choice.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from pgsr_core.attestation.keys import PrivateKey, PublicKey
from pgsr_core.attestation.strict_json import NotStrictJson, read_canonical_object
from pgsr_core.canonical import canonical_json
from pgsr_core.errors import Refused


class EnvelopeRejected(Refused):
    """An envelope that does not prove that the key's holder signed its payload."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"the signature is not accepted: {reason}. Remedy: get the file again from where it "
            "was published, and the public key from someone you trust."
        )


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """What is signed: "DSSEv1", then type and payload, each behind its length in bytes (PAE)."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def seal(payload: bytes, *, payload_type: str, key: PrivateKey) -> bytes:
    """Sign a payload; the same payload and key give the same bytes."""
    signature = key.sign(pre_authentication_encoding(payload_type, payload))
    return _envelope(payload, payload_type, key.public.keyid, signature)


def unseal(envelope: bytes, *, payload_type: str, key: PublicKey) -> bytes:
    """Return the payload that the key's holder signed.

    Raises:
        EnvelopeRejected: wrong form, type or key, or a signature that does not fit.
    """
    try:
        fields = read_canonical_object(envelope)
    except NotStrictJson as error:
        raise EnvelopeRejected(f"the envelope cannot be read, {error}") from None
    payload, found_type, keyid, signature = _fields(fields)
    if found_type != payload_type:
        raise EnvelopeRejected("the envelope holds another type of payload")
    if keyid != key.keyid:
        raise EnvelopeRejected(f"it was made with another key than {key.keyid}")
    if not key.accepts(signature, pre_authentication_encoding(payload_type, payload)):
        raise EnvelopeRejected("it does not fit the payload")
    # Base64 has unused bits, so two texts may stand for the same bytes; only one is accepted.
    if _envelope(payload, payload_type, keyid, signature) != envelope:
        raise EnvelopeRejected("the envelope is not in its only form")
    return payload


def claimed_keyid(envelope: bytes) -> str | None:
    """The key that an envelope claims to be signed with, unverified; None if it is none."""
    try:
        return _fields(read_canonical_object(envelope))[2]
    except (NotStrictJson, EnvelopeRejected):
        return None


def claimed_payload(envelope: bytes) -> bytes | None:
    """What an envelope claims was signed, unverified; None if it is none."""
    try:
        return _fields(read_canonical_object(envelope))[0]
    except (NotStrictJson, EnvelopeRejected):
        return None


def _envelope(payload: bytes, payload_type: str, keyid: str, signature: bytes) -> bytes:
    return canonical_json(
        {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": payload_type,
            "signatures": [{"keyid": keyid, "sig": base64.b64encode(signature).decode()}],
        }
    )


def _fields(fields: dict[str, Any]) -> tuple[bytes, str, str, bytes]:
    match fields:
        case {
            "payload": str(payload),
            "payloadType": str(payload_type),
            "signatures": [{"keyid": str(keyid), "sig": str(signature), **more}],
            **others,
        } if not more and not others:
            return _decoded(payload), payload_type, keyid, _decoded(signature)
        case {"signatures": [_, _, *_]}:
            raise EnvelopeRejected("the envelope has more than one signature")
        case _:
            raise EnvelopeRejected("the envelope is no DSSE envelope with one signature")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise EnvelopeRejected("the envelope holds no base64 where it must") from None
