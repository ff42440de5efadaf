"""Notices of withdrawal and the lineage of a release: strict to read, bound to their key."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from pgsr_core.attestation.dsse import EnvelopeRejected, claimed_keyid
from pgsr_core.attestation.keys import PrivateKey
from pgsr_core.attestation.provenance import LedgerHead, Provenance
from pgsr_core.attestation.statement import Statement
from pgsr_core.attestation.withdrawal import (
    PREDICATE_TYPE,
    Withdrawal,
    open_withdrawal,
    sign_withdrawal,
)
from pgsr_core.documents.wordings import privacy_document
from pgsr_core.lineage import Lineage
from pgsr_core.verification import verify_bundle
from tests.core.example_bundle import KEY, example

FILES = {"datapackage.json": "a" * 64}
WITHDRAWAL = Withdrawal(
    "household-sizes", "2026-Q3", "Swapped.", date(2026, 11, 2), LedgerHead(9, "b" * 64)
)


def test_a_notice_says_to_the_keys_holders_what_was_signed_and_nothing_to_others() -> None:
    notice = sign_withdrawal(FILES, WITHDRAWAL, key=KEY)
    opened = open_withdrawal(notice, key=KEY.public)
    assert (opened.withdrawal, opened.checksums) == (WITHDRAWAL, FILES)
    assert claimed_keyid(notice) == KEY.public.keyid
    assert claimed_keyid(b"{}") is None
    with pytest.raises(EnvelopeRejected):
        open_withdrawal(notice, key=PrivateKey.generate().public)
    with pytest.raises(EnvelopeRejected):
        open_withdrawal(notice.replace(b"A", b"B", 1), key=KEY.public)


def test_the_provenance_of_a_release_is_no_notice() -> None:
    provenance = example().signed()["provenance.dsse.json"]
    with pytest.raises(EnvelopeRejected, match="another kind"):
        open_withdrawal(provenance, key=KEY.public)


@pytest.mark.parametrize(
    "change",
    [
        {"reason": ""},
        {"reason": "two\nlines"},
        {"reason": None},
        {"withdrawn_on": "yesterday"},
        {"ledger_head": {"sequence": True, "hash": "b" * 64}},
        {"ledger_head": {"sequence": 9, "hash": "b"}},
        {"more": 1},
    ],
)
def test_a_notice_with_another_field_or_value_is_refused(change: dict[str, Any]) -> None:
    predicate = {**WITHDRAWAL.to_json(), **change}
    with pytest.raises(EnvelopeRejected, match="no notice"):
        open_withdrawal(Statement(FILES, PREDICATE_TYPE, predicate).seal(KEY), key=KEY.public)


def test_a_lineage_is_told_and_signed_alike_or_the_bundle_is_not_verified() -> None:
    lineage = Lineage(replaces="2026-Q2", reposted_from="2026-Q2")
    draft = example()
    draft.facts = replace(draft.facts, lineage=lineage)
    draft.documents["privacy.json"] = {"simulation": False, **privacy_document(draft.facts)}
    found = verify_bundle(draft.signed(), KEY.public)
    assert [item.name for item in found.failed] == ["privacy-as-signed"]
    draft.provenance["lineage"] = lineage
    assert verify_bundle(draft.signed(), KEY.public).verified


def test_a_release_without_corrections_is_signed_as_before() -> None:
    provenance = Provenance(**example().provenance)
    assert "lineage" not in provenance.to_json()
    assert Provenance.from_json(provenance.to_json()) == provenance
    without = {k: v for k, v in privacy_document(example().facts).items() if k != "lineage"}
    draft = example()
    draft.documents["privacy.json"] = {"simulation": False, **without}
    assert verify_bundle(draft.signed(), KEY.public).verified  # as older bundles are


@pytest.mark.parametrize(
    "lineage",
    [
        None,
        [],
        {"replaces": "2026-Q2"},
        {"replaces": "../x", "reposted_from": None},
        {"replaces": "2026-Q3", "reposted_from": None},
        {"replaces": None, "reposted_from": None, "more": 1},
    ],
)
def test_a_signed_lineage_is_read_strictly(lineage: object) -> None:
    predicate = {**Provenance(**example().provenance).to_json(), "lineage": lineage}
    with pytest.raises(ValueError, match=r"lineage|plain name|itself"):
        Provenance.from_json(json.loads(json.dumps(predicate)))
