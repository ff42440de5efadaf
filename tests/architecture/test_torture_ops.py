"""The judge of `make torture-ops`: it finds a sound release sound, and tells what is wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest

from benchmarks.torture_ops.__main__ import main
from benchmarks.torture_ops.evidence import wrong
from benchmarks.torture_ops.office import Office
from benchmarks.torture_ops.products import EPSILON, Day, due_releases, write_product
from tasks.ledger import history
from tasks.stages.prepare import prepare
from tests.tasks.in_process import run_stages

PRODUCT = "dwellings"
DUE = "20260101T000000"


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judged") / "office"
    configuration = write_product(folder / PRODUCT, PRODUCT, None)
    configuration.write_text(configuration.read_text() + "margins: {repetitions: 0}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGSR_HOME", str(folder / "home"))
        run_stages(prepare(configuration, slot=date(2026, 1, 1)))
    return folder


@pytest.fixture
def office(released: Path, tmp_path: Path) -> Iterator[Office]:
    folder = shutil.copytree(released, tmp_path / "office")
    url = f"sqlite:///{folder / 'home' / 'ledger.sqlite'}"
    nobody: Any = None
    yield Office(folder, nobody, nobody, (), "", url)
    history._verified.clear()


def judged(office: Office, *releases: str) -> list[str]:
    return list(wrong(office, {office.folder / PRODUCT / "product.yaml": set(releases)}))


def sql(statement: str) -> Callable[[Office], None]:
    def edit(office: Office) -> None:
        with closing(connect(office.home / "ledger.sqlite")) as connection:
            connection.execute(statement)
            connection.commit()

    return edit


def bundle(office: Office) -> Path:
    return office.public / PRODUCT / DUE


def test_a_sound_release_is_found_sound_and_a_missing_one_is_missed(office: Office) -> None:
    assert judged(office, DUE) == []
    assert f"{PRODUCT}: 20260201T000000 is missing" in judged(office, DUE, "20260201T000000")
    assert f"{PRODUCT}: {DUE} should not be there" in judged(office)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda office: (bundle(office).parent / ".staging-x-1").mkdir(), "should not be there"),
        (lambda office: (office.public / "other").mkdir(), "should not be there"),
        (lambda office: (bundle(office) / "extra").touch(), "audit verify says no"),
        (lambda office: shutil.rmtree(bundle(office)), "is missing"),
        (sql("UPDATE runs SET state = 'running'"), "is running"),
        (sql("INSERT INTO runs VALUES ('p', 'r', 'published', 's', 'o', 1, NULL)"), "run states"),
        (
            lambda office: office.ledger().record("published", PRODUCT, DUE, digests={}),
            "published 2 times",
        ),
    ],
)
def test_whatever_is_wrong_is_told(
    office: Office, spoil: Callable[[Office], None], told: str
) -> None:
    spoil(office)
    assert any(told in violation for violation in judged(office, DUE))


def test_an_open_reservation_and_a_second_charge_are_told(office: Office) -> None:
    from tests.tasks.ledger_requests import ask, commit

    ledger = office.ledger()
    reservation = ledger.reserve(ask("other", epsilon=str(EPSILON)))
    assert "residents: a reservation is still open" in judged(office, DUE)
    commit(ledger, reservation)
    assert any("measured events" in violation for violation in judged(office, DUE))


@pytest.mark.parametrize(
    "begins", [datetime(2026, 3, 1, 23, 58, tzinfo=UTC), datetime(2026, 3, 1, 12, 3, tzinfo=UTC)]
)
def test_a_day_has_the_slots_of_its_minutes_and_no_others(tmp_path: Path, begins: datetime) -> None:
    day = Day(begins, minutes=3, every=15)
    configuration = write_product(tmp_path / PRODUCT, PRODUCT, day.schedule(5))
    names = due_releases(configuration, day)
    assert len(names) == 12
    assert {name[-2:] for name in names} == {"05", "20", "35", "50"}


def test_a_pattern_that_matches_nothing_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    output = tmp_path / "torture-ops.json"
    assert main(["--only", "no-such-*", "--output", str(output)]) == 2
    assert not output.exists()
