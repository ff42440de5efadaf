"""Runs that stop on their input leave the same traces outside, whatever rule the records break."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pgsr_core.errors import InputError
from tasks.ingestion import errors, persons
from tasks.ledger.ledger import Ledger
from tasks.metrics import render
from tasks.outside import INPUT_STOPPED
from tasks.site.build import build_site
from tasks.storage.zones import Home
from tests.tasks.inbox import Inbox, open_inbox

HEADER = "bird,nest,tree,eggs\n"
SOUND = "b1,n1,oak,1\nb2,n2,elm,2\n"
BROKEN = {
    "a person twice": "b1,n1,oak,1\nb1,n2,elm,2\n",
    "a quantity above Z": "b1,n1,oak,1\nb2,n2,elm,7\n",
    "a unit that is not listed": "b1,n1,oak,1\nb2,n9,elm,2\n",
    "a unit in another region": "b1,n1,oak,1\nb2,n2,oak,2\n",
    "an empty cell": "b1,n1,oak,1\nb2,,elm,2\n",
    "a ragged row": "b1,n1,oak,1\nb2,n2,elm\n",
    "too much for the memory": SOUND,
    "a bug": SOUND,
}
CONFIGURATION = """\
product: nests
release: first
population: {name: birds, budget: "4", unit_of_privacy: bird}
source:
  persons: persons.csv
  columns: {person: bird, unit: nest, region: tree, quantity: eggs}
regions: regions.csv
units: units.csv
sizes: {max: 6, largest_contribution: 3}
privacy: {epsilon: "2"}
publish: {to: public}
alerts: {webhook: $OFFICE_WEBHOOK}
"""
VARIABLE = [  # what differs between any two runs
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z| UTC)?", "TIME"),
    (r'("?(peak_bytes|peak_memory_bytes)"?:) ?\d+', r"\1 BYTES"),
    (r"(pgsr_stage_(peak|duration|ended)[^ ]* ).*", r"\1NUMBER"),
    (r'(?<=\.\d</td><td class="number">)[\d,]+', "MEGABYTES"),
    (r"\d+\.\d+(e[+-]?\d+)?", "NUMBER"),
    (r"\b([0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{16})\b", "DIGEST"),
]
SECONDS = 30


@dataclass
class Attempt:
    """What a run left outside of the confidential zone, by place."""

    traces: dict[str, str]
    told: str


def class_names() -> set[str]:
    def below(kind: type[InputError]) -> Iterator[type[InputError]]:
        yield kind
        for each in kind.__subclasses__():
            yield from below(each)

    others = {"OutOfMemory", "SourceChanged", "MemoryError", "RuntimeError"}
    return {kind.__name__ for kind in below(InputError)} | others


def plain(text: str, folder: Path) -> str:
    text = text.replace(str(folder), "FOLDER").replace(folder.name, "FOLDER")
    for pattern, word in VARIABLE:
        text = re.sub(pattern, word, text)
    # Prefect writes from several threads, and a row more or less of the same tells nothing.
    return "\n".join(sorted(set(text.splitlines())))


def rows_of(database: Path, where: str = "", *values: str) -> Iterator[tuple[str, Any]]:
    """Every cell of every table; of tables that have the column, rows with the value only."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in tables.fetchall():
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info('{table}')")]
            condition, bound = "", ()
            if where:
                if where not in columns:
                    continue
                condition, bound = f" WHERE {where} = ?", values
            for row in connection.execute(f'SELECT * FROM "{table}"{condition}', bound):
                for column, cell in zip(columns, row, strict=True):
                    if isinstance(cell, str) or column in {"run_count", "attempts"}:
                        yield f"{table}.{column}", cell


def prefect_of(server: dict[str, str], flow_run: str) -> str:
    """What Prefect's tables hold of a flow run, its tasks and their states, once all is in."""
    database = Path(server["PREFECT_HOME"]) / "prefect.db"
    deadline = time.monotonic() + SECONDS
    while True:
        cells = list(rows_of(database, "flow_run_id", flow_run))
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            cells += [
                ("flow_run", str(row))
                for row in connection.execute(
                    "SELECT name, state_type, state_name, run_count FROM flow_run WHERE id = ?",
                    (flow_run,),
                )
            ]
            cells += [
                ("task_state", str(row))
                for row in connection.execute(
                    "SELECT s.type, s.name, s.message, s.data, t.run_count FROM task_run_state s "
                    "JOIN task_run t ON t.id = s.task_run_id WHERE t.flow_run_id = ?",
                    (flow_run,),
                )
            ]
        logged = [str(cell) for place, cell in cells if place == "log.message"]
        if any("Flow run encountered" in message for message in logged):  # the last of all
            return "\n".join(f"{place} {cell}" for place, cell in cells)
        assert time.monotonic() < deadline, logged
        time.sleep(0.2)


@pytest.fixture
def inbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Inbox]:
    with open_inbox() as inbox:
        monkeypatch.setenv("OFFICE_WEBHOOK", inbox.address)
        yield inbox


@pytest.fixture
def stopped(
    tmp_path: Path,
    inbox: Inbox,
    prefect_server: dict[str, str],
    release_in_process: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Callable[[str], Attempt]:
    """Release a broken input and collect what it left where others may look."""
    count_sizes = persons._Stage.count_sizes

    def attempt(name: str) -> Attempt:
        folder = tmp_path / f"attempt-{list(BROKEN).index(name)}"
        folder.mkdir()
        (folder / "persons.csv").write_text(HEADER + BROKEN[name])
        (folder / "regions.csv").write_text("region,parent\nwood,\noak,wood\nelm,wood\n")
        (folder / "units.csv").write_text("unit,region\nn1,oak\nn2,elm\n")
        (folder / "product.yaml").write_text(CONFIGURATION)
        home = Home(folder / "home")
        monkeypatch.setenv("PGSR_HOME", str(home.root))
        monkeypatch.setenv("PGSR_LOG", "json")
        error: Exception | None = None
        if BROKEN[name] == SOUND:
            error = errors.OutOfMemory() if "memory" in name else RuntimeError("row 2")

        def count(*args: Any) -> Any:
            if error is not None:
                raise error
            return count_sizes(*args)

        monkeypatch.setattr(persons._Stage, "count_sizes", count)
        inbox.posts.clear()
        capfd.readouterr()
        release_in_process(folder / "product.yaml")
        printed = capfd.readouterr()
        [post] = inbox.posts
        build_site(home, folder / "site")
        inside = build_site(home, home.root / "confidential" / "site", internal=True).folder
        traces = {
            "Prefect": prefect_of(prefect_server, post["flow_run"]),
            "alert": json.dumps(post),
            "log": printed.err,
            "output": printed.out,
            "metrics": render(home, Ledger(home.ledger_url, witness=home.witness)).decode(),
            "ledger": "\n".join(
                f"{place} {cell}" for place, cell in rows_of(home.root / "ledger.sqlite")
            ),
            "operators' site": (inside / "operations.html").read_text(),
        }
        for path in sorted(folder.rglob("*")):
            kept = path.is_relative_to(home.root / "confidential") or path.suffix in {
                *(".csv", ".yaml", ".sqlite", ".sqlite-wal", ".sqlite-shm", ".duckdb")
            }
            if path.is_file() and not kept:
                traces[str(path.relative_to(folder))] = path.read_text(errors="replace")
        log = home.run("nests", "first").operator_log.read_text()
        return Attempt({place: plain(text, folder) for place, text in traces.items()}, log)

    return attempt


def test_inputs_that_break_different_rules_leave_the_same_traces_outside(
    stopped: Callable[[str], Attempt],
) -> None:
    attempts = {name: stopped(name) for name in BROKEN}
    names = class_names()
    assert len(names) > 30
    causes = set()
    for attempt in attempts.values():
        [cause] = {name for name in names if re.search(rf"ingest {name}\n", attempt.told)}
        causes.add(cause)  # the operator's log says it
    assert len(causes) == len(BROKEN)
    first = attempts["a person twice"]
    assert INPUT_STOPPED in first.traces["Prefect"]
    assert INPUT_STOPPED in first.traces["alert"]
    assert INPUT_STOPPED in first.traces["log"]
    assert INPUT_STOPPED in first.traces["ledger"]
    for broken, attempt in attempts.items():
        assert attempt.traces.keys() == first.traces.keys()
        for place, text in attempt.traces.items():
            assert not [name for name in names if re.search(rf"\b{name}\b", text)], (broken, place)
            assert text == first.traces[place], (broken, place)
