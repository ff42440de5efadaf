"""Requests and draws for tests of the ledger, on SQLite files and on a PostgreSQL server."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from tasks.ledger import history
from tasks.ledger.ledger import Ledger, Measurement, MeasurementRequest, Reservation

PRODUCT = "household-sizes"
VALUES = np.array([[5, -3, 0, 2**62], [-(2**62), 1, 1, 1], [9, 8, 7, 6]], dtype=np.int64)


def ask(release: str = "2026-Q3", *, epsilon: str = "1/3", budget: str = "1") -> MeasurementRequest:
    return MeasurementRequest(
        key=f"key-{release}-{epsilon}",
        population="residents",
        budget=Fraction(budget),
        product=PRODUCT,
        release=release,
        epsilon=Fraction(epsilon),
        descriptor={"release": release, "epsilon": epsilon, "größe": [1, True, None, "ü"]},
    )


def commit(
    ledger: Ledger, reservation: Reservation, values: np.ndarray = VALUES, digest: str = "d" * 64
) -> Measurement:
    return ledger.commit(
        reservation,
        values,
        digest=digest,
        sizes=range(1, values.shape[1] + 1),
        groups=17,
        sampler="opendp",
        simulation=False,
    )


def measure(ledger: Ledger, request: MeasurementRequest) -> Measurement:
    reservation = ledger.reserve(request)
    assert isinstance(reservation, Reservation)
    return commit(ledger, reservation)


def reopened(url: str, **options: object) -> Ledger:
    """Open a ledger as a new process does, which has verified nothing yet."""
    history._verified.pop(url, None)
    return Ledger(url, **options)


@contextlib.contextmanager
def raw(url: str) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        yield connection
        connection.commit()
