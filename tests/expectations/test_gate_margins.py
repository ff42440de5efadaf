"""Margins of error go through gates, too: one for every count, around it, in whole numbers."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from expectations import Promises, run_gates, suites
from expectations.required import must_run
from pgsr_core.margins import MARGINS, MARGINS_BY_LEVEL
from pgsr_core.margins.tables import bounds_hold, half_widths_hold
from tasks.storage.tables import MatrixStore
from tests.expectations.gate_releases import RAGGED, failed_checks, ragged_release, rows_of, store

FACTS, VALUES = ragged_release()
PROMISES = Promises(FACTS, states_margins=True)
BEFORE = set(must_run(Promises(FACTS)))
OF_MARGINS = set(must_run(PROMISES)) - BEFORE


def margins_of(values: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(1)
    narrow, wide = np.sort(rng.integers(0, 9, (2, *values.shape)), axis=0)
    lower = [np.maximum(values - reach, 0) for reach in (narrow, wide)]
    return np.stack([lower[0], values + narrow, lower[1], values + wide])


def store_with_margins() -> duckdb.DuckDBPyConnection:
    connection = store(FACTS, rows_of(FACTS, VALUES))
    tables = MatrixStore(connection, RAGGED)
    bounds = margins_of(VALUES)
    assert bounds_hold(VALUES, bounds)
    half_widths = np.arange(2 * RAGGED.levels * len(FACTS.sizes)).reshape(2, RAGGED.levels, -1)
    assert half_widths_hold(half_widths)
    for table, values in ((MARGINS, bounds), (MARGINS_BY_LEVEL, half_widths)):
        tables.write(table, table, values, sizes=FACTS.sizes, inputs="")
    return connection


def margin(column: str, value: str) -> str:
    return f"UPDATE margins SET {column} = {value} WHERE region_index = 4 AND size = 1"


EVERY, HOLD, EXTRA = "every-cell-has-margins", "margins-hold-the-count", "no-extra-margins"
TYPICAL, EXTRA_TYPICAL = "typical-margins-in-order", "no-extra-typical-margins"
CORRUPTIONS = {
    "a lower margin above the count": ([margin("lower_90", "upper_90 + 90")], {HOLD}),
    "an upper margin below the count": ([margin("upper_90", "lower_90 - 90")], {HOLD}),
    "95% within 90%": ([margin("upper_95", "upper_90 - 1")], {HOLD}),
    "a negative margin": ([margin("lower_95", "-1")], {HOLD}),
    "no margin": (
        ["ALTER TABLE margins ALTER lower_90 DROP NOT NULL", margin("lower_90", "NULL")],
        {EVERY, HOLD},
    ),
    "a margin that is not whole": (
        ["ALTER TABLE margins ALTER upper_95 TYPE DOUBLE", margin("upper_95", "upper_95 + 0.5")],
        {EVERY, HOLD},
    ),
    "a row missing": (
        ["DELETE FROM margins WHERE region_index = 4 AND size = 1"],
        {EVERY, HOLD, EXTRA},
    ),
    "a row twice": (
        ["INSERT INTO margins SELECT * FROM margins WHERE region_index = 4 AND size = 1"],
        {EVERY, EXTRA},
    ),
    "a row of no region": (["INSERT INTO margins VALUES (10, 0, 0, 0, 0, 0)"], {EXTRA}),
    "a typical margin of 95% below the one of 90%": (
        ["UPDATE margins_by_level SET half_width_95 = half_width_90 - 1 WHERE level_index = 3"],
        {TYPICAL},
    ),
    "a negative typical margin": (
        ["UPDATE margins_by_level SET half_width_90 = -1 WHERE level_index = 0 AND size = 0"],
        {TYPICAL},
    ),
    "a typical margin missing": (
        ["DELETE FROM margins_by_level WHERE level_index = 2 AND size = 0"],
        {TYPICAL, EXTRA_TYPICAL},
    ),
    "a typical margin of no level": (
        ["INSERT INTO margins_by_level VALUES (4, 0, 0, 0)"],
        {EXTRA_TYPICAL},
    ),
    "no margins at all": (["DROP TABLE margins"], {EVERY, HOLD, EXTRA}),
}


def test_a_release_with_sound_margins_passes():
    report = run_gates(store_with_margins(), PROMISES)
    assert report.passed, failed_checks(report)
    assert {check.name for check in report.outcomes} == BEFORE | OF_MARGINS


@pytest.mark.parametrize("what", CORRUPTIONS)
def test_corrupted_margins_fail_exactly_the_checks_that_they_break(what, monkeypatch):
    checks = [check for check in suites.checks_for(PROMISES) if check.name in OF_MARGINS]
    monkeypatch.setattr(suites, "checks_for", lambda _: checks)  # the others cost time
    statements, expected = CORRUPTIONS[what]
    connection = store_with_margins()
    for statement in statements:
        connection.execute(statement)
    report = run_gates(connection, PROMISES)
    assert failed_checks(report) == expected


def test_every_check_of_margins_is_broken_by_some_corruption():
    assert set().union(*(names for _, names in CORRUPTIONS.values())) == OF_MARGINS
