"""Digests: one for one value, another for every change, and nothing to learn without the key."""

from __future__ import annotations

import hashlib
import hmac
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgsr_core.canonical import canonical_json, json_digest, table_digest

VALUES = np.arange(-6, 6, dtype=np.int64).reshape(3, 4)
FACTS = {"table": "measurements", "tree_digest": "a" * 64, "sizes": range(1, 5)}


def digest(values=VALUES, **changes):
    return table_digest(values, **{**FACTS, **changes})


def test_the_digest_is_the_sha_256_of_a_header_and_the_cells():
    """Written out, so that an auditor can compute it without this code."""
    header = (
        '{"first_size":1,"format":"pgsr-table-1","last_size":4,"shape":[3,4],'
        f'"table":"measurements","tree":"{"a" * 64}"}}\n'
    ).encode()
    cells = b"".join(int(cell).to_bytes(8, "little", signed=True) for cell in VALUES.ravel())
    assert digest() == hashlib.sha256(header + cells).hexdigest()
    assert digest(key=b"k" * 32) == hmac.new(b"k" * 32, header + cells, "sha256").hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        {"table": "isotonic"},
        {"tree_digest": "b" * 64},
        {"sizes": range(0, 4)},
        {"sizes": range(1, 6)},
        {"key": b"k" * 32},
        {"values": VALUES.reshape(4, 3)},
        {"values": VALUES.ravel()},
        {"values": VALUES[:, ::-1]},
        {"values": VALUES[::-1]},
        {"values": VALUES[:2]},
    ],
)
def test_every_change_of_what_a_table_is_changes_its_digest(change):
    assert digest(**change) != digest()


@given(
    row=st.integers(0, 2),
    column=st.integers(0, 3),
    value=st.integers(-(2**63), 2**63 - 1),
    key=st.none() | st.binary(min_size=32, max_size=32),
)
def test_any_other_value_in_any_cell_changes_the_digest(row, column, value, key):
    changed = VALUES.copy()
    changed[row, column] = value
    same = value == VALUES[row, column]
    assert (digest(changed, key=key) == digest(key=key)) == same


def test_two_keys_give_two_digests():
    assert digest(key=b"a" * 32) != digest(key=b"b" * 32)


def test_memory_layout_and_byte_order_do_not_matter():
    assert digest(np.asfortranarray(VALUES)) == digest()
    assert digest(VALUES.astype(">i8")) == digest()
    wide = np.zeros((3, 8), dtype=np.int64)
    wide[:, ::2] = VALUES
    assert digest(wide[:, ::2]) == digest()


def test_the_digest_leaves_its_argument_alone_and_reads_what_is_read_only():
    values = VALUES.copy()
    values.setflags(write=False)
    assert digest(values) == digest()
    assert (values == VALUES).all()


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(value=st.dictionaries(st.text(max_size=3), JSON_VALUES, max_size=4))
def test_canonical_json_reads_back_and_does_not_depend_on_the_order_of_keys(value):
    encoded = canonical_json(value)
    assert json.loads(encoded) == value
    assert canonical_json(dict(reversed(value.items()))) == encoded


def test_json_digests_tell_values_apart_that_look_alike():
    alike = [{"a": 1}, {"a": "1"}, {"a": True}, {"a": [1]}, {"a": None}, {"A": 1}, {}]
    assert len({json_digest(value) for value in alike}) == len(alike)
