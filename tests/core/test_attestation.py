"""Keys, envelopes and statements: what is signed, in one spelling, and nothing else passes."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsr_core.attestation.dsse import (
    EnvelopeRejected,
    pre_authentication_encoding,
    seal,
    unseal,
)
from pgsr_core.attestation.keys import (
    PassphraseNeeded,
    PrivateKey,
    PublicKey,
    UnusableKey,
    WrongPassphrase,
)
from pgsr_core.attestation.provenance import (
    PREDICATE_TYPE,
    PROVENANCE_FILE,
    LedgerHead,
    NotSignable,
    Provenance,
    claimed_ledger_head,
    exact_fraction,
    open_release,
    sign_release,
)
from pgsr_core.attestation.statement import PAYLOAD_TYPE, Statement
from pgsr_core.attestation.strict_json import NotStrictJson, read_canonical_object, read_object
from pgsr_core.canonical import canonical_json
from pgsr_core.sensitivity import Neighbours

KEY, OTHER = PrivateKey.generate(), PrivateKey.generate()
FILES = {"group_sizes.csv": "a" * 64, "datapackage.json": "b" * 64}
PROVENANCE = Provenance(
    product="household-sizes",
    release="2026-Q3",
    configuration_digest="1" * 64,
    code_version="0.1.0",
    lock_digest="2" * 64,
    measurement_digest="3" * 64,
    table_digests={"measurements": "3" * 64, "group_sizes": "4" * 64},
    population="residents-2026",
    epsilon=Fraction(1, 6),
    spent=Fraction(1, 2),
    budget=Fraction(4),
    neighbours=Neighbours.ADD_REMOVE,
    mechanism="cumulative",
    sampler="opendp",
    checks={"totals": True},
    ledger_head=LedgerHead(7, "5" * 64),
)
ENVELOPE = sign_release(FILES, PROVENANCE, key=KEY)


def test_the_signed_bytes_are_those_of_the_dsse_standard() -> None:
    # The example of the DSSE v1 protocol document.
    assert (
        pre_authentication_encoding("http://example.com/HelloWorld", b"hello world")
        == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
    assert pre_authentication_encoding("ü", b"") == b"DSSEv1 2 \xc3\xbc 0 "


@given(st.text(max_size=12), st.binary(max_size=12), st.text(max_size=12), st.binary(max_size=12))
@settings(max_examples=80)
def test_different_payloads_or_types_never_give_the_same_signed_bytes(
    one_type: str, one: bytes, other_type: str, other: bytes
) -> None:
    same = (one_type, one) == (other_type, other)
    encoded = pre_authentication_encoding(one_type, one)
    assert (encoded == pre_authentication_encoding(other_type, other)) is same


def test_an_envelope_can_be_checked_by_hand_with_nothing_but_the_standards() -> None:
    envelope = json.loads(ENVELOPE)
    assert set(envelope) == {"payload", "payloadType", "signatures"}
    payload = base64.b64decode(envelope["payload"])
    kind = b"application/vnd.in-toto+json"
    assert envelope["payloadType"].encode() == kind
    [signature] = envelope["signatures"]
    pae = b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload])
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    public = load_pem_public_key(KEY.public.to_pem())
    assert isinstance(public, ed25519.Ed25519PublicKey)
    public.verify(base64.b64decode(signature["sig"]), pae)
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert signature["keyid"] == hashlib.sha256(der).hexdigest()
    statement = json.loads(payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert {subject["name"]: subject["digest"] for subject in statement["subject"]} == {
        name: {"sha256": digest} for name, digest in FILES.items()
    }
    assert statement["predicateType"] == PREDICATE_TYPE
    assert statement["predicate"]["charge"]["epsilon"] == "1/6"
    assert statement["predicate"]["simulation"] is False


def test_what_was_signed_is_read_back_exactly_and_signing_is_deterministic() -> None:
    signed = open_release(ENVELOPE, key=KEY.public)
    assert signed.provenance == PROVENANCE
    assert signed.checksums == FILES
    assert sign_release(dict(reversed(FILES.items())), PROVENANCE, key=KEY) == ENVELOPE
    bare = replace(PROVENANCE, lock_digest=None, ledger_head=None)
    reread = open_release(sign_release(FILES, bare, key=KEY), key=KEY.public)
    assert reread.provenance == bare


def test_no_changed_byte_of_an_envelope_is_accepted() -> None:
    chance = random.Random(5)  # noqa: S311 (which bits to flip)
    for position in range(len(ENVELOPE)):
        damaged = bytearray(ENVELOPE)
        damaged[position] ^= 1 << chance.randrange(8)
        with pytest.raises(EnvelopeRejected):
            open_release(bytes(damaged), key=KEY.public)


@pytest.mark.parametrize(
    "respell",
    [
        lambda text: text + b"\n",
        lambda text: text.replace(b'":', b'": ', 1),
        lambda text: json.dumps(json.loads(text), indent=1).encode(),
        lambda text: text.replace(b"payloadType", b"payload\\u0054ype"),
        lambda text: text.replace(b'{"payload":', b'{"payload":"","payload":', 1),
        lambda text: text[:-1] + b',"more":1}',
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text[: len(text) // 2],
        lambda _: b"",
        lambda _: b"[" * 100_000,
        lambda _: b'{"a":' * 100_000,
        lambda _: b"\xff\xfe",
    ],
)
def test_an_envelope_has_one_spelling_only(respell: Callable[[bytes], bytes]) -> None:
    changed = respell(ENVELOPE)
    assert changed != ENVELOPE
    with pytest.raises(EnvelopeRejected):
        open_release(changed, key=KEY.public)


def rewrapped(**changes: Any) -> bytes:
    return canonical_json({**json.loads(ENVELOPE), **changes})


def test_unused_bits_of_base64_cannot_carry_another_spelling() -> None:
    sealed = seal(b"ab", payload_type="t", key=KEY)  # "YWI=": two unused bits
    assert unseal(sealed, payload_type="t", key=KEY.public) == b"ab"
    assert sealed.count(b'"YWI="') == 1
    with pytest.raises(EnvelopeRejected):
        unseal(sealed.replace(b'"YWI="', b'"YWJ="'), payload_type="t", key=KEY.public)


def test_wrong_key_second_signature_and_swapped_type_are_refused_and_say_so() -> None:
    [signature] = json.loads(ENVELOPE)["signatures"]
    [foreign] = json.loads(sign_release(FILES, PROVENANCE, key=OTHER))["signatures"]
    cases = {
        "another key": (ENVELOPE, OTHER.public),
        "another key ": (rewrapped(signatures=[foreign]), KEY.public),
        "does not fit": (
            rewrapped(signatures=[{**foreign, "keyid": KEY.public.keyid}]),
            KEY.public,
        ),
        "more than one": (rewrapped(signatures=[signature, foreign]), KEY.public),
        "more than one ": (rewrapped(signatures=[signature, signature]), KEY.public),
        "one signature": (rewrapped(signatures=[]), KEY.public),
        "another type": (rewrapped(payloadType="text/plain"), KEY.public),
    }
    for reason, (envelope, key) in cases.items():
        with pytest.raises(EnvelopeRejected, match=reason.strip()):
            open_release(envelope, key=key)


def test_a_payload_that_was_signed_as_another_type_is_not_taken_for_a_statement() -> None:
    payload = base64.b64decode(json.loads(ENVELOPE)["payload"])
    as_text = json.loads(seal(payload, payload_type="text/plain", key=KEY))
    swapped = canonical_json({**as_text, "payloadType": PAYLOAD_TYPE})
    with pytest.raises(EnvelopeRejected, match="does not fit"):
        open_release(swapped, key=KEY.public)


def resigned(change: Callable[[dict[str, Any]], object]) -> bytes:
    """The statement changed by the key's own holder, and signed again."""
    statement = json.loads(base64.b64decode(json.loads(ENVELOPE)["payload"]))
    change(statement)
    return seal(canonical_json(statement), payload_type=PAYLOAD_TYPE, key=KEY)


def test_the_claimed_head_is_read_without_the_key_and_is_none_where_there_is_none() -> None:
    assert claimed_ledger_head(ENVELOPE) == PROVENANCE.ledger_head
    for wrong in ({"sequence": -1, "hash": "5" * 64}, {"sequence": 1}, 7):
        forged = resigned(lambda s, wrong=wrong: s["predicate"].update(ledger_head=wrong))
        assert claimed_ledger_head(forged) is None
    assert claimed_ledger_head(resigned(lambda s: s.pop("predicate"))) is None
    assert claimed_ledger_head(b"{}") is None


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.update(_type="https://in-toto.io/Statement/v0.1"),
        lambda s: s.update(predicateType="urn:pgsr:withdrawal:1"),
        lambda s: s.update(more=1),
        lambda s: s.update(subject=[]),
        lambda s: s["subject"].reverse(),
        lambda s: s["subject"].append(s["subject"][0]),
        lambda s: s["subject"][0].update(name="../group_sizes.csv"),
        lambda s: s["subject"][0].update(name="a/b.csv"),
        lambda s: s["subject"][0].update(name="a\\b.csv"),
        lambda s: s["subject"][0].update(name=".."),
        lambda s: s["subject"][0].update(name=""),
        lambda s: s["subject"][0].update(name="a\nb"),
        lambda s: s["subject"][0].update(digest={"sha256": "A" * 64}),
        lambda s: s["subject"][0].update(digest={"sha1": "a" * 40}),
        lambda s: s["subject"][0].update(digest={"sha256": "a" * 64, "sha1": "a" * 40}),
        lambda s: s["subject"].append({"name": PROVENANCE_FILE, "digest": {"sha256": "a" * 64}}),
        lambda s: s["predicate"].update(simulation=True),
        lambda s: s["predicate"].update(simulation=0),
        lambda s: s["predicate"].update(more=1),
        lambda s: s["predicate"].pop("checks"),
        lambda s: s["predicate"].update(checks={}),
        lambda s: s["predicate"].update(checks={"totals": False}),
        lambda s: s["predicate"].update(checks={"totals": 1}),
        lambda s: s["predicate"].update(measurement_digest="9" * 64),
        lambda s: s["predicate"]["charge"].update(epsilon="2/12"),
        lambda s: s["predicate"]["charge"].update(epsilon="0.5"),
        lambda s: s["predicate"]["charge"].update(epsilon="1/0"),
        lambda s: s["predicate"]["charge"].update(epsilon="-1/6"),
        lambda s: s["predicate"]["charge"].update(epsilon="9" * 10_000),
        lambda s: s["predicate"]["charge"].update(spent="5"),
        lambda s: s["predicate"]["charge"].update(neighbours="both"),
        lambda s: s["predicate"].update(ledger_head={"sequence": True, "hash": "5" * 64}),
        lambda s: s["predicate"].update(ledger_head={"sequence": -1, "hash": "5" * 64}),
        lambda s: s["predicate"].update(ledger_head={"sequence": 1, "hash": "5"}),
    ],
)
def test_a_validly_signed_statement_that_breaks_a_rule_is_refused(
    change: Callable[[dict[str, Any]], object],
) -> None:
    assert resigned(lambda _: None) == ENVELOPE
    with pytest.raises(EnvelopeRejected):
        open_release(resigned(change), key=KEY.public)


def test_a_simulation_or_a_failed_check_is_never_signed() -> None:
    for change in ({"simulation": True}, {"checks": {}}, {"checks": {"a": True, "b": False}}):
        with pytest.raises(NotSignable):
            sign_release(FILES, replace(PROVENANCE, **change), key=KEY)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a\\b", "a b", "-a", ".hidden", "ü"])
def test_only_plain_file_names_can_be_signed(name: str) -> None:
    with pytest.raises(ValueError, match="plain name"):
        sign_release({**FILES, name: "a" * 64}, PROVENANCE, key=KEY)


def test_a_signature_cannot_cover_itself() -> None:
    with pytest.raises(ValueError, match="cover itself"):
        sign_release({**FILES, PROVENANCE_FILE: "a" * 64}, PROVENANCE, key=KEY)


def test_statements_of_other_kinds_can_be_signed_as_well() -> None:
    notice = Statement({"datapackage.json": "a" * 64}, "urn:pgsr:withdrawal:1", {"reason": "x"})
    sealed = notice.seal(KEY)
    kind = notice.predicate_type
    assert Statement.unseal(sealed, predicate_type=kind, key=KEY.public) == notice
    with pytest.raises(EnvelopeRejected, match="another kind"):
        open_release(sealed, key=KEY.public)


def test_a_key_is_read_back_with_its_passphrase_only() -> None:
    protected = KEY.to_pem(passphrase=b"open sesame")
    assert b"ENCRYPTED" in protected
    assert PrivateKey.from_pem(protected, passphrase=b"open sesame").public == KEY.public
    with pytest.raises(PassphraseNeeded):
        PrivateKey.from_pem(protected)
    with pytest.raises(WrongPassphrase):
        PrivateKey.from_pem(protected, passphrase=b"open barley")
    plain = KEY.to_pem()
    assert PrivateKey.from_pem(plain).public == KEY.public
    with pytest.raises(UnusableKey, match="nothing protects it"):
        PrivateKey.from_pem(plain, passphrase=b"open sesame")
    with pytest.raises(ValueError, match="protects nothing"):
        KEY.to_pem(passphrase=b"")


def test_keys_of_other_kinds_and_halves_are_refused() -> None:
    foreign = ec.generate_private_key(ec.SECP256R1())
    curve_public = foreign.public_key().public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )
    curve_private = foreign.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for pem in (b"", b"nonsense", curve_public, KEY.to_pem(), KEY.to_pem(passphrase=b"x")):
        with pytest.raises(UnusableKey):
            PublicKey.from_pem(pem)
    for pem in (b"", b"nonsense", curve_private, KEY.public.to_pem()):
        with pytest.raises(UnusableKey):
            PrivateKey.from_pem(pem)


def test_neither_text_nor_errors_show_a_secret() -> None:
    pem = KEY.to_pem()
    secret = pem.splitlines()[1]
    assert secret.decode() not in f"{KEY!r} {KEY}"
    assert KEY.public.keyid in repr(KEY)
    broken = pem.replace(secret, secret[:-8])
    with pytest.raises(UnusableKey) as caught:
        PrivateKey.from_pem(broken)
    assert secret[:8].decode() not in str(caught.value)
    assert caught.value.__cause__ is None
    protected = KEY.to_pem(passphrase=b"open sesame")
    with pytest.raises(UnusableKey) as caught:
        PrivateKey.from_pem(protected, passphrase=b"a guess")
    assert "a guess" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"b":2}}',
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b"[1]",
        b"1",
        b"",
        b'{"a":1} x',
        b'{"a":"\xff"}',
        b'{"a":' + b"9" * 5000 + b"}",
        b"[" * 100_000,
    ],
)
def test_ambiguous_or_malformed_json_is_refused(text: bytes) -> None:
    with pytest.raises(NotStrictJson):
        read_object(text)


def test_json_that_is_too_large_is_not_even_parsed() -> None:
    assert read_object(b'{"a":1}', at_most=7) == {"a": 1}
    with pytest.raises(NotStrictJson, match="larger"):
        read_object(b'{"a":1}', at_most=6)


@pytest.mark.parametrize("text", [b'{"a":"\\ud800"}', b'{"a":1e400}', b'{"a":9007199254740993}'])
def test_values_without_a_canonical_form_are_refused(text: bytes) -> None:
    assert read_object(text)
    with pytest.raises(NotStrictJson):
        read_canonical_object(text)


@given(st.fractions(min_value=0))
@settings(max_examples=60)
def test_fractions_are_read_back_exactly(value: Fraction) -> None:
    assert exact_fraction(str(value)) == value
