"""What was not validated is not published: a check that is missing, broken or cut short fails."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import duckdb
import numpy as np
import pandas as pd
import pytest

from expectations import CheckOutcome, GateReport, Promises, Suite, frames, run_gates, suites
from expectations.examiner import COULD_NOT_RUN, ROWS, Examiner, Verdict
from expectations.required import must_run
from tests.expectations.gate_releases import failed_checks, ragged_release, rows_of, store

FACTS, VALUES = ragged_release()
PROMISES = Promises(FACTS, keeps_region_totals=True)
MOST_ASSERTIONS = max(len(check.assertions) for check in suites.checks_for(PROMISES))


@pytest.fixture(scope="module")
def sound():
    connection = store(FACTS, rows_of(FACTS, VALUES))
    yield connection
    connection.close()


@pytest.mark.parametrize(
    "promises",
    [
        PROMISES,
        Promises(FACTS),
        Promises(FACTS, states_margins=True),
        Promises(replace(FACTS, groups_by_region=None)),
        Promises(replace(FACTS, groups_by_region=None), keeps_region_totals=True),
    ],
)
def test_the_suites_hold_every_expectation_that_must_run_and_cover_every_property(promises):
    checks = suites.checks_for(promises)
    assert {
        check.name: frozenset({a.name for a in check.assertions} | {ROWS}) for check in checks
    } == must_run(promises)
    stated = set() if promises.states_margins else {Suite.MARGINS}
    assert {check.suite for check in checks} == set(Suite) - stated


def test_a_report_says_how_many_expectations_ran_and_what_they_show(sound):
    report = run_gates(sound, PROMISES)
    assert report.passed
    assert {o.name: o.expectations for o in report.outcomes} == {
        name: len(names) for name, names in must_run(PROMISES).items()
    }
    assert all(outcome.statement.endswith(".") for outcome in report.outcomes)
    assert not report.missing


@pytest.mark.parametrize("position", range(MOST_ASSERTIONS))
def test_dropping_any_single_expectation_fails_its_check(monkeypatch, sound, position):
    def without_one(promises):
        return tuple(
            replace(
                check, assertions=check.assertions[:position] + check.assertions[position + 1 :]
            )
            for check in complete(promises)
        )

    complete = suites.checks_for
    monkeypatch.setattr(suites, "checks_for", without_one)
    report = run_gates(sound, PROMISES)
    shortened = {c.name for c in complete(PROMISES) if len(c.assertions) > position}
    assert shortened
    assert failed_checks(report) == shortened
    assert not report.passed


def test_dropping_the_expectation_on_the_number_of_rows_fails_every_check(monkeypatch, sound):
    monkeypatch.setattr("expectations.examiner.ROWS", "another name")
    assert failed_checks(run_gates(sound, PROMISES)) == set(must_run(PROMISES))


def test_an_empty_suite_is_a_failure(monkeypatch, sound):
    complete = suites.checks_for(PROMISES)
    emptied = (replace(complete[0], assertions=()), *complete[1:])
    monkeypatch.setattr(suites, "checks_for", lambda _: emptied)
    assert failed_checks(run_gates(sound, PROMISES)) == {complete[0].name}


def test_a_run_without_any_check_is_a_failure(monkeypatch, sound):
    monkeypatch.setattr(suites, "checks_for", lambda _: ())
    report = run_gates(sound, PROMISES)
    assert not report.passed
    assert report.missing == set(must_run(PROMISES))


@pytest.mark.parametrize("dropped", sorted(must_run(PROMISES)))
def test_a_report_without_one_of_its_checks_does_not_pass(dropped):
    outcomes = _outcomes_that_passed()
    required = frozenset(must_run(PROMISES))
    assert GateReport(outcomes, required).passed
    rest = tuple(outcome for outcome in outcomes if outcome.name != dropped)
    shortened = GateReport(rest, required)
    assert not shortened.passed
    assert shortened.missing == {dropped}
    failed = tuple(replace(o, passed=o.name != dropped) for o in outcomes)
    assert not GateReport(failed, required).passed
    assert not GateReport((*outcomes, outcomes[0]), required).passed
    assert not GateReport(outcomes, required - {dropped}).passed


def test_a_report_that_requires_nothing_does_not_pass():
    assert not GateReport((), frozenset()).passed


def _outcomes_that_passed() -> tuple[CheckOutcome, ...]:
    return tuple(
        CheckOutcome(check.name, check.suite, check.statement, passed=True, expectations=1)
        for check in suites.checks_for(PROMISES)
    )


@pytest.mark.parametrize("table", ["group_sizes", "regions"])
def test_a_missing_table_fails_the_checks_that_read_it(table):
    connection = store(FACTS, rows_of(FACTS, VALUES))
    connection.execute(f"DROP TABLE {table}")
    report = run_gates(connection, PROMISES)
    of_regions = {"regions-as-public", "region-groups-as-public"}
    everything = set(must_run(PROMISES))
    expected = of_regions if table == "regions" else everything - of_regions
    assert failed_checks(report) == expected


def test_an_empty_table_fails():
    report = run_gates(store(FACTS, []), PROMISES)
    assert "every-cell-once" in failed_checks(report)
    assert "levels-sum-to-groups" in failed_checks(report)


def test_a_closed_connection_fails_every_check_without_an_exception():
    connection = duckdb.connect()
    connection.close()
    assert failed_checks(run_gates(connection, PROMISES)) == set(must_run(PROMISES))


@pytest.mark.parametrize(
    "broken",
    [
        {"largest_size": FACTS.smallest_size - 1},
        {"groups": 2**64},
        {"groups_by_region": np.zeros(1, dtype=np.int64)},
    ],
)
def test_public_facts_that_make_no_sense_fail_without_an_exception(sound, broken):
    assert not run_gates(sound, Promises(replace(FACTS, **broken))).passed


def test_an_exception_in_great_expectations_fails_every_check(monkeypatch, sound):
    def explode(*_, **__):
        raise RuntimeError("a value")

    monkeypatch.setattr(Examiner, "examine", explode)
    assert failed_checks(run_gates(sound, PROMISES)) == set(must_run(PROMISES))
    monkeypatch.setattr(Examiner, "__init__", explode)
    assert failed_checks(run_gates(sound, PROMISES)) == set(must_run(PROMISES))


def test_an_expectation_that_great_expectations_cannot_evaluate_fails_its_check(monkeypatch, sound):
    complete = suites.checks_for(PROMISES)
    first = complete[0].assertions[0]
    astray = replace(first, arguments={"column": "no such column"})
    broken = replace(complete[0], assertions=(astray, *complete[0].assertions[1:]))
    monkeypatch.setattr(suites, "checks_for", lambda _: (broken, *complete[1:]))
    report = run_gates(sound, PROMISES)
    assert failed_checks(report) == {complete[0].name}
    (outcome,) = report.failed
    assert outcome.expectations == len(must_run(PROMISES)[outcome.name]) - 1


def test_a_success_that_names_no_expectation_is_a_failure(monkeypatch, sound):
    claims = Verdict(ran=frozenset(), held=True)
    monkeypatch.setattr(
        Examiner, "examine", lambda _self, _frame, checks, **_: (claims,) * len(checks)
    )
    assert failed_checks(run_gates(sound, PROMISES)) == set(must_run(PROMISES))


def test_one_slice_that_could_not_be_read_fails_its_checks(monkeypatch, sound):
    monkeypatch.setattr(frames, "ROWS_AT_ONCE", FACTS.tree.regions)
    read, seen = frames.read, []

    def read_all_but_the_second_slice(connection, part):
        seen.append(part)
        if len(seen) == 2:
            raise MemoryError
        return read(connection, part)

    monkeypatch.setattr(frames, "read", read_all_but_the_second_slice)
    report = run_gates(sound, PROMISES)
    assert failed_checks(report) == {
        *("children-sum-to-parent", "no-negative-count", "counts-are-whole", "every-cell-once"),
    }


def test_a_frame_of_floats_fails_even_where_floats_compare_as_equal():
    frame = pd.DataFrame({"value": np.array([2**60]), "children_total": np.array([2.0**60 + 1])})
    (consistency,) = (c for c in suites.checks_for(PROMISES) if c.suite is Suite.CONSISTENCY)
    examiner = Examiner()
    pair = replace(consistency, assertions=consistency.assertions[-1:])
    blind, sharp = examiner.examine(frame, (pair, consistency), rows=1)
    assert blind.held, "the hazard: the comparison alone sees no difference"
    assert not sharp.held
    exact = frame.assign(children_total=np.array([2**60 + 1]))
    assert [v.held for v in examiner.examine(exact, (pair, consistency), rows=1)] == [False] * 2


def test_a_frame_with_fewer_rows_than_it_must_have_fails():
    frame = pd.DataFrame({"value": np.array([1, 2])})
    (check,) = (c for c in suites.checks_for(PROMISES) if c.suite is Suite.NON_NEGATIVITY)
    examiner = Examiner()
    assert examiner.examine(frame, (check,), rows=2)[0].held
    assert not examiner.examine(frame, (check,), rows=3)[0].held
    assert not examiner.examine(frame[:0], (check,), rows=2)[0].held


def test_two_expectations_of_one_name_do_not_count_as_run():
    from expectations.examiner import _validate

    (check,) = (c for c in suites.checks_for(PROMISES) if c.suite is Suite.NON_NEGATIVITY)
    results = [
        SimpleNamespace(
            expectation_config=SimpleNamespace(meta={"assertion": "count known"}),
            exception_info={"raised_exception": False},
            success=True,
        )
    ] * 2
    batch = SimpleNamespace(
        validate=lambda _suite, **_: SimpleNamespace(results=results, success=True)
    )
    assert _validate(batch, check, rows=1) == COULD_NOT_RUN


def test_the_store_needs_to_be_open_for_reading_only_and_is_left_as_it_was(tmp_path):
    database = str(tmp_path / "safe.duckdb")
    store(FACTS, rows_of(FACTS, VALUES), database=database).close()
    with duckdb.connect(database, read_only=True) as connection:
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        assert run_gates(connection, PROMISES).passed
        left = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal")
        assert left.fetchall() == []
    assert [path.name for path in tmp_path.iterdir()] == ["safe.duckdb"]
