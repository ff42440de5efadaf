"""The gates say yes or no: no count reaches a report, a log, a stream, a file or the network."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from expectations import Promises, run_gates
from tests.expectations.gate_releases import failed_checks, ragged_release, rows_of, store

CANARY = 918273645
AS_TEXT = "ALTER TABLE group_sizes ALTER value TYPE VARCHAR"
PLANTED = {
    "a count": [f"UPDATE group_sizes SET value = {CANARY} WHERE region_index = 4 AND size = 1"],
    "a negative count": [
        f"UPDATE group_sizes SET value = -{CANARY} WHERE region_index = 4 AND size = 1"
    ],
    "text in place of a count": [
        AS_TEXT,
        f"UPDATE group_sizes SET value = 'about {CANARY}' WHERE region_index = 4 AND size = 1",
    ],
    "a region's name": [f"UPDATE regions SET region = '{CANARY}' WHERE region_index = 4"],
    "a region without number": [f"INSERT INTO group_sizes VALUES ({CANARY}, {CANARY}, NULL)"],
    "a region's number as text": [
        "ALTER TABLE regions ALTER region_index TYPE VARCHAR",
        f"UPDATE regions SET region_index = 'about {CANARY}' WHERE region_index = '4'",
    ],
    "another type altogether": [
        f"ALTER TABLE group_sizes ALTER value TYPE INTEGER[] USING [value, {CANARY}]"
    ],
}


@pytest.mark.parametrize("what", PLANTED)
def test_no_offending_value_is_found_in_results_logs_or_streams(what, monkeypatch, caplog, capfd):
    from great_expectations.datasource.fluent.interfaces import Batch

    results = []
    validate = Batch.validate

    def keep_the_result(self, *args, **kwargs):
        result = validate(self, *args, **kwargs)
        results.append(result)
        return result

    monkeypatch.setattr(Batch, "validate", keep_the_result)
    caplog.set_level(logging.DEBUG)
    facts, values = ragged_release()
    connection = store(facts, rows_of(facts, values))
    for statement in PLANTED[what]:
        connection.execute(statement)
    report = run_gates(connection, Promises(facts, keeps_region_totals=True))
    streams = capfd.readouterr()

    assert failed_checks(report)
    assert results
    assert all(one.result == {} for result in results for one in result.results)
    kept = json.dumps([result.to_json_dict() for result in results], default=str)
    for text in (repr(report), kept, caplog.text, streams.out, streams.err):
        assert str(CANARY) not in text
    assert streams.out == streams.err == ""
    assert all(record.name.startswith("expectations") for record in caplog.records)
    assert all(record.exc_info is None for record in caplog.records)


def test_the_gates_write_no_file_open_no_socket_and_load_nothing_before_they_run(tmp_path):
    program = """
        import socket, sys

        calls = []
        sys.addaudithook(
            lambda event, args: calls.append(event)
            if event in ("socket.connect", "socket.getaddrinfo")
            else None
        )
        import expectations

        heavy = {"great_expectations", "pandas", "duckdb", "pyarrow", "numba", "prefect"}
        print(sorted(heavy & set(sys.modules)))
        from tests.expectations.gate_releases import ragged_release, rows_of, store

        facts, values = ragged_release()
        report = expectations.run_gates(
            store(facts, rows_of(facts, values)), expectations.Promises(facts)
        )
        print(report.passed, calls)
    """
    folders = {name: tmp_path / name for name in ("home", "work", "temporary")}
    for folder in folders.values():
        folder.mkdir()
    here = Path(__file__).parent
    environment = os.environ | {
        "HOME": str(folders["home"]),
        "TMPDIR": str(folders["temporary"]),
        "PYTHONPATH": os.pathsep.join([str(here), str(here.parent.parent)]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=folders["work"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["[]", "True []"]
    assert done.stderr == ""
    assert [path for folder in folders.values() for path in folder.rglob("*")] == []
