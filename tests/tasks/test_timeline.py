"""The timeline says what the log says, finds what is broken, and exports valid lineage."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from pgsr_core.chain import GENESIS, Event, append
from tasks.doctor import examine
from tasks.ledger.inspection import check_ledger
from tasks.ledger.ledger import Ledger
from tasks.storage.zones import Home
from tasks.timeline import Filter, checks, describe, open_lineage, read_log, spent

MARGINS = "a" * 64
DIGESTS = {name: name[0] * 64 for name in ("measurements", "isotonic", "cpwl")}


def story(*, passed: bool = True) -> list[Event]:
    """The events of one release, and one of nobody's."""
    told: list[tuple[str, dict[str, Any]]] = [
        ("population", {"population": "people", "budget": "4"}),
        ("reserved", {"key": "k" * 64}),
        ("measured", {"key": "k" * 64, "digest": DIGESTS["measurements"], "epsilon": "1/2"}),
        ("computed", {"stage": "isotonic", "digest": DIGESTS["isotonic"], "inputs": "x" * 64}),
        ("computed", {"stage": "cpwl", "digest": DIGESTS["cpwl"], "inputs": "y" * 64}),
        ("computed", {"stage": "margins", "digest": MARGINS, "inputs": "z" * 64}),
        (
            "validated",
            {
                "passed": passed,
                "digest": DIGESTS["cpwl"],
                "margins": {"margins": MARGINS},
                "checks": {"totals": passed, "whole": True},
            },
        ),
    ]
    if passed:
        told.append(("published", {"digests": DIGESTS, "files": {"checks.json": "f" * 64}}))
    events: list[Event] = []
    for number, (kind, facts) in enumerate(told, start=1):
        events.append(
            append(
                events[-1].head if events else GENESIS,
                at=f"2026-10-0{number}T12:00:00.000+00:00",
                actor="ann@office",
                kind=kind,
                product="households",
                release="q3",
                facts=facts,
            )
        )
    return events


def test_each_filter_takes_what_it_says_and_nothing_else() -> None:
    events = story()

    def numbers(**wanted: Any) -> list[int]:
        return [event.sequence for event in events if Filter(**wanted).takes(event)]

    assert numbers() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert numbers(kinds=("computed", "measured")) == [3, 4, 5, 6]
    assert numbers(since=date(2026, 10, 7)) == [7, 8]
    assert numbers(until=date(2026, 10, 2)) == [1, 2]
    assert numbers(since=date(2026, 10, 3), until=date(2026, 10, 3)) == [3]
    assert numbers(product="households", release="q3") == numbers()
    assert numbers(product="taxis") == numbers(release="q4") == []


def test_a_raised_budget_is_told_in_a_sentence() -> None:
    facts = {"population": "people", "before": "4", "budget": "13/3", "reason": "the board, 3 May"}
    raised = append(
        GENESIS,
        at="2026-10-01T12:00:00.000+00:00",
        actor="ann@office",
        kind="budget-raised",
        product=None,
        release=None,
        facts=facts,
    )
    assert describe(raised) == (
        "budget of population people raised from 4 to 13/3: the board, 3 May"
    )


def test_an_event_says_what_was_spent_and_checked_and_shortens_digests() -> None:
    events = {event.kind: event for event in story()}
    assert spent(events["measured"]) == "1/2"
    assert spent(events["reserved"]) == ""
    assert checks(events["validated"]) == "2 of 2 passed"
    assert checks({e.kind: e for e in story(passed=False)}["validated"]) == (
        "1 of 2 passed; failed: totals"
    )
    assert describe(events["measured"]) == "digest mmmmmmmmmmmm…"
    assert (
        describe(events["published"])
        == "digests of cpwl, isotonic, measurements, files of checks.json"
    )


def require_run_event(event: dict[str, Any]) -> None:
    """What OpenLineage 2-0-2 requires of a RunEvent."""
    assert event["eventType"] in {"START", "COMPLETE", "FAIL"}
    assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
    assert event["schemaURL"].endswith("/spec/2-0-2/OpenLineage.json#/$defs/RunEvent")
    assert event["producer"].startswith("urn:pgsr:")
    uuid.UUID(event["run"]["runId"])
    assert event["job"]["namespace"]
    assert event["job"]["name"]
    facets = list(event["run"]["facets"].values())
    for dataset in [*event["inputs"], *event["outputs"]]:
        assert dataset["namespace"]
        assert dataset["name"]
        facets += [*dataset["facets"].values(), *dataset.get("inputFacets", {}).values()]
    assert all({"_producer", "_schemaURL"} <= facet.keys() for facet in facets)


def test_lineage_has_one_start_and_one_end_for_every_stage_with_digests() -> None:
    runs = list(open_lineage(story()))
    for run in runs:
        require_run_event(run)
    by_id: dict[str, list[str]] = {}
    for run in runs:
        by_id.setdefault(run["run"]["runId"], []).append(run["eventType"])
    assert list(by_id.values()) == [["START", "COMPLETE"]] * 6
    ends = {run["job"]["name"]: run for run in runs if run["eventType"] == "COMPLETE"}
    assert list(ends) == [
        f"households.{stage}"
        for stage in ("noise", "isotonic", "cpwl", "margins", "validate", "publish")
    ]
    cpwl = ends["households.cpwl"]
    assert versions(cpwl["inputs"]) == {"households/q3/isotonic": f"sha256:{DIGESTS['isotonic']}"}
    assert versions(cpwl["outputs"]) == {"households/q3/cpwl": f"sha256:{DIGESTS['cpwl']}"}
    judged = {"households/q3/cpwl": DIGESTS["cpwl"], "households/q3/margins": MARGINS}
    assert versions(ends["households.validate"]["inputs"]) == {
        table: f"sha256:{digest}" for table, digest in judged.items()
    }
    published = ends["households.publish"]
    named = {f"households/q3/{table}": f"sha256:{digest}" for table, digest in DIGESTS.items()}
    assert versions(published["inputs"]) == named
    assert versions(published["outputs"]) == {"households/q3/checks.json": f"sha256:{'f' * 64}"}
    noise = ends["households.noise"]
    assert noise["run"]["facets"]["pgsr_event"]["epsilon"] == "1/2"
    assert noise["inputs"] == []  # what is left of the barrier is not named
    assert "office" not in str(runs)


def versions(datasets: list[dict[str, Any]]) -> dict[str, str]:
    return {d["name"]: d["facets"]["version"]["datasetVersion"] for d in datasets}


def test_lineage_is_the_same_when_exported_twice_and_a_failed_gate_fails() -> None:
    assert list(open_lineage(story())) == list(open_lineage(story()))
    last = list(open_lineage(story(passed=False)))[-1]
    assert last["eventType"] == "FAIL"
    asserted = last["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert {"assertion": "totals", "success": False} in asserted


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A ledger with some events."""
    home = Home(tmp_path / "home")
    ledger = Ledger(home.ledger_url, witness=home.witness)
    for number in range(5):
        ledger.record("computed", "households", "q3", stage="cpwl", digest=str(number))
    return home


def problems(home: Home) -> tuple[str, ...]:
    found = read_log(home)
    assert found is not None
    return found.problems


def test_an_intact_log_has_no_problem_and_no_ledger_no_log(home: Home, tmp_path: Path) -> None:
    assert problems(home) == ()
    assert read_log(Home(tmp_path / "nowhere")) is None
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET actor = 'eve' WHERE sequence = 2",
        "UPDATE events SET facts = '{}' WHERE sequence = 5",
        "DELETE FROM events WHERE sequence = 3",
        "DELETE FROM events WHERE sequence = 5",
        "DELETE FROM events",
        "UPDATE events SET sequence = 7 - sequence WHERE sequence IN (3, 4)",
        "UPDATE head SET sequence = 4",
    ],
)
def test_a_changed_log_is_read_all_the_same_and_the_change_is_told(home: Home, change: str) -> None:
    with closing(sqlite3.connect(home.root / "ledger.sqlite")) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        if "7 - sequence" in change:
            connection.execute("UPDATE events SET sequence = -sequence WHERE sequence IN (3, 4)")
            change = "UPDATE events SET sequence = 7 + sequence WHERE sequence IN (-3, -4)"
        connection.execute(change)
        connection.commit()
    assert problems(home)


def test_a_cut_tail_and_a_missing_witness_are_told(home: Home) -> None:
    ledger = home.root / "ledger.sqlite"
    old = ledger.read_bytes()
    Ledger(home.ledger_url, witness=home.witness).record("computed", "households", "q3")
    for suffix in ("-wal", "-shm"):
        ledger.with_name(ledger.name + suffix).unlink(missing_ok=True)
    ledger.write_bytes(old)
    assert any("its witness saw event 6" in problem for problem in problems(home))
    home.witness.unlink()
    [problem] = problems(home)
    assert "there is none" in problem
    assert "Remedy:" in problem


def test_check_log_and_doctor_agree_that_a_lost_witness_is_suspicious(home: Home) -> None:
    home.witness.unlink()
    found = check_ledger(home.ledger_url, home.witness)
    [failed] = [item for item in found if not item.passed]
    assert problems(home) == (f"{failed.name}: {failed.detail}",)
    told = [item for item in examine(home, environment={}) if not item.ok]
    assert [item.area for item in told] == ["ledger"]
    assert told[0].remedy in failed.detail


def test_a_ledger_without_events_needs_no_witness_yet(tmp_path: Path) -> None:
    home = Home(tmp_path / "new")
    Ledger(home.ledger_url, witness=home.witness)
    assert not home.witness.exists()
    assert all(item.passed for item in check_ledger(home.ledger_url, home.witness))
    assert problems(home) == ()
