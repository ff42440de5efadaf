"""The public site shows releases, not attempts: when and how often a run stopped may be data."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tasks.alerts.occasions import EVENT as ALERTED
from tasks.boundary import StageFailed
from tasks.outside import IN_WORDS, INPUT_STOPPED
from tasks.run import RunRef
from tasks.site.build import build_site
from tasks.site.history import budgets_of, products_of
from tasks.site.released import released
from tasks.site.views import budget_views, event_rows
from tasks.stages import noise
from tasks.stages.prepare import prepare
from tasks.storage.zones import Home
from tests.pages.example_log import budget, charged, log, raised, scheduled
from tests.pages.test_site import files, text_of
from tests.tasks.in_process import run_stages

CONFIGURATION = """\
product: PRODUCT
release: first
population: {name: POPULATION, budget: "4", unit_of_privacy: bird}
source:
  persons: persons.csv
  columns: {person: bird, unit: nest, region: tree, quantity: null}
regions: regions.csv
units: units.csv
sizes: {max: 3, largest_contribution: 1}
privacy: {epsilon: "1/2"}
publish: {to: public}
"""
AFTER = "2025-03-0{}T06:00:00.000+00:00"


def told(day: int, kind: str, release: str = "2025-Q1", **facts: Any) -> Any:
    return (AFTER.format(day), kind, "sizes", release, facts)


def computed(day: int) -> list[Any]:
    return [told(day, "computed", stage=stage, digest=stage) for stage in ("isotonic", "cpwl")]


def passed(day: int) -> Any:
    return told(day, "validated", digest="d", passed=True, checks={"one": True})


PUBLIC = [
    budget("2025-03-02", "2"),
    scheduled("2025-01-01", "0 6 1 1,4,7,10 *", "{date:%Y}-Q{quarter}"),
    charged("2025-03-02", "2025-Q1", "1/2"),
    *computed(4),
    passed(4),
    told(4, "published", digests={"group_sizes": "d"}, files={}),
    raised("2025-03-05", "3"),
    told(6, "withdrawn", reason="A mistake.", withdrawn_on="2025-03-06"),
]


def with_attempts() -> list[Any]:
    """The same history with all that may come to nothing on its way."""
    entered, schedule, measured, *rest = PUBLIC
    failed = told(3, "validated", digest="d", passed=False, checks={"one": False})
    return [
        (AFTER.format(1), *entered[1:]),  # by the first attempt, which came to nothing
        told(1, "reserved", key="k"),
        told(1, "given-back", key="k"),
        schedule,
        told(1, "alerted", alert="failure", sent={"webhook": "delivered"}),
        told(2, "reserved", key="k"),
        measured,
        *computed(2),
        passed(2),
        failed,
        *computed(3),
        *rest[:4],
        told(5, "alerted", alert="missed", sent={}),
        passed(5),  # resumed although it is out
        *rest[4:],
        told(7, "reserved", release="2025-Q2", key="l"),
        told(7, "given-back", release="2025-Q2", key="l"),
        (AFTER.format(7), "population", "other", "x", {"population": "others", "budget": "1"}),
        told(8, "alerted", release="2025-Q2", alert="failure", sent={}),
        told(8, "purged", release="2025-Q2", files=[]),
        told(9, "measured", release="trial", population="residents", epsilon="0", simulation=True),
    ]


def shown(history: Sequence[Any]) -> object:
    events = released(log(history))
    products = products_of(events)
    views = budget_views(budgets_of(events), products, events)
    rows = event_rows(events, {}, heads=(), internal=False)
    releases = [r.name for p in products if p.is_public for r in p.releases if r.is_out]
    return rows, [(view.rows, view.forecast, view.svg) for view in views], releases


def test_a_log_with_attempts_is_shown_as_if_there_had_been_none() -> None:
    schedule_first = [PUBLIC[1], PUBLIC[0], *PUBLIC[2:]]
    assert shown(with_attempts()) == shown(schedule_first)
    numbers = [event.sequence for event in released(log(with_attempts()))]
    assert numbers == list(range(1, len(PUBLIC) + 1))


def test_what_was_charged_is_shown_even_if_its_release_is_not_out() -> None:
    events = released(log([*PUBLIC, charged("2025-04-01", "2025-Q2", "1"), *computed(9)]))
    [history] = budgets_of(events)
    assert (history.now.what, history.now.spent) == ("sizes/2025-Q2", 1.5)
    [product] = products_of(events)
    assert [release.release for release in product.releases if release.is_out] == ["2025-Q1"]


@pytest.fixture
def elsewhere(office: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A copy of the office's state, for attempts that come to nothing."""
    home = Home(Path(shutil.copytree(office.root, tmp_path / ".pgsr")))
    monkeypatch.setenv("PGSR_HOME", str(home.root))
    return home


def attempt(folder: Path, *, product: str, population: str, rows: str) -> RunRef:
    """Start a release that stops on its way."""
    folder.mkdir()
    (folder / "regions.csv").write_text("region,parent\nwood,\noak,wood\nelm,wood\n")
    (folder / "units.csv").write_text("unit,region\nn1,oak\nn2,elm\n")
    (folder / "persons.csv").write_text(f"bird,nest,tree\n{rows}")
    configuration = CONFIGURATION.replace("PRODUCT", product).replace("POPULATION", population)
    (folder / "product.yaml").write_text(configuration)
    ref = prepare(folder / "product.yaml", slot=date(2026, 1, 1))
    with pytest.raises(StageFailed, match=INPUT_STOPPED):
        run_stages(ref)
    ref.ledger().record(ALERTED, ref.product, ref.release, alert="failure", sent={})
    return ref


def test_attempts_leave_the_public_site_as_it_was_byte_for_byte(
    elsewhere: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_site(elsewhere, tmp_path / "before")
    facts = {"population": "virginia-2000"}
    attempt(tmp_path / "a", product="household-sizes", rows="b1,n1,oak\nb1,n1,oak\n", **facts)
    attempt(tmp_path / "b", product="nests", rows="b1,n3,oak\n", population="birds")

    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(noise, "_draw", no_memory)  # after the reservation
    last = attempt(tmp_path / "c", product="nests-again", rows="b1,n1,oak\n", population="bees")
    kinds = {event.kind for event in last.ledger().timeline(last.product, last.release)}
    assert kinds == {"population", "reserved", "given-back", "alerted"}
    build_site(elsewhere, tmp_path / "after")
    assert files(tmp_path / "after") == files(tmp_path / "before")

    inside = build_site(elsewhere, elsewhere.root / "confidential" / "site", internal=True).folder
    operations = text_of(inside / "operations.html")
    assert operations.count(IN_WORDS) >= 3
    assert "given-back" in text_of(inside / "timeline.html")


def test_the_operators_site_does_not_show_classes_that_an_earlier_version_recorded(
    elsewhere: Home,
) -> None:
    ref = RunRef(str(elsewhere.root), "household-sizes", "synthetic-9")
    for stage, error in (("ingest", "DuplicatePerson"), ("noise", "MemoryError")):
        old = replace(ref, release=f"{ref.release}-{stage}")
        old.note(state="failed", stage=stage, error=error)
    inside = build_site(elsewhere, elsewhere.root / "confidential" / "site", internal=True).folder
    for page, content in files(inside).items():
        assert b"DuplicatePerson" not in content, page
        assert b"MemoryError" not in content, page
    assert IN_WORDS in text_of(inside / "operations.html")
