"""Canonical bytes and their SHA-256: what digests in the ledger and in bundles are taken of."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import numpy as np
import rfc8785
from numpy.typing import NDArray

TABLE_FORMAT = "pgsr-table-1"


def canonical_json(value: Mapping[str, Any]) -> bytes:
    """Serialise to canonical JSON (RFC 8785): one byte string for one value."""
    encoded: bytes = rfc8785.dumps(dict(value))
    return encoded


def json_digest(value: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def table_digest(
    values: NDArray[np.int64],
    *,
    table: str,
    tree_digest: str,
    sizes: range,
    key: bytes | None = None,
) -> str:
    """SHA-256 of a (regions × sizes) table, whatever file or database it is kept in.

    The rows are in tree order and the columns in order of size, as 64-bit little-endian
    integers behind a header that says which table, tree and sizes they belong to. With a key
    it is an HMAC, which tells nothing to those without the key.
    """
    header = {
        "format": TABLE_FORMAT,
        "table": table,
        "tree": tree_digest,
        "first_size": sizes.start,
        "last_size": sizes.stop - 1,
        "shape": list(values.shape),
    }
    state = hashlib.sha256() if key is None else hmac.new(key, digestmod="sha256")
    state.update(canonical_json(header) + b"\n")
    state.update(np.ascontiguousarray(values, dtype="<i8").data)
    return state.hexdigest()
