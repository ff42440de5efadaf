"""One population, one ledger: of all that a user knows, one at most comes to hold it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest

from benchmarks.torture_ops.products import EPSILON, write_product
from pgsr_core.errors import PgsrError
from tasks.boundary import StageFailed
from tasks.doctor import examine
from tasks.ledger.holders import (
    FILE,
    HeldElsewhere,
    KnownLedgerUnreadable,
    ListDamaged,
    note_ledger,
    only_holder,
    refuse_held_elsewhere,
)
from tasks.ledger.ledger import Ledger, Reservation
from tasks.run import RunRef
from tasks.stages.prepare import prepare
from tasks.storage.places import user_place
from tasks.storage.zones import Home
from tests.tasks.in_process import run_stages
from tests.tasks.ledger_requests import ask, commit

COST = Fraction(1, 3)
SLOT = date(2026, 1, 1)
PRODUCT = "dwellings"


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Home, Home]:
    pair = (Home(tmp_path / "a"), Home(tmp_path / "b"))
    for home in pair:
        home.create()
    return pair


def ledger_of(home: Home) -> Ledger:
    return Ledger(home.ledger_url, witness=home.witness)


def reserve(home: Home, release: str = "2026-Q3", *, epsilon: str = "1/3") -> Reservation:
    ledger = ledger_of(home)
    with only_holder(home, ledger, "residents", cost=Fraction(epsilon)):
        reserved = ledger.reserve(ask(release, epsilon=epsilon))
    assert isinstance(reserved, Reservation)
    return reserved


def measure(home: Home, release: str = "2026-Q3") -> None:
    commit(ledger_of(home), reserve(home, release))


def test_a_population_that_another_ledger_holds_is_refused_with_the_way_out(
    homes: tuple[Home, Home],
) -> None:
    first, second = homes
    measure(first)
    with pytest.raises(HeldElsewhere) as refusal:
        reserve(second)
    assert refusal.value.exit_code == 1
    for said in (f"--home {first.root}", "PGSR_HOME", "another name", "residents"):
        assert said in str(refusal.value)
    assert ledger_of(second).accounts() == ()  # nothing was entered there
    measure(first, "2026-Q4")
    with pytest.raises(HeldElsewhere):
        refuse_held_elsewhere(second, None, "residents", cost=COST)
    refuse_held_elsewhere(second, None, "other-residents", cost=COST)


def test_a_reservation_holds_a_population_until_it_is_given_back(
    homes: tuple[Home, Home],
) -> None:
    first, second = homes
    reserved = reserve(first)
    with pytest.raises(HeldElsewhere):
        reserve(second)
    ledger_of(first).give_back(reserved)
    measure(second)
    with pytest.raises(HeldElsewhere):
        reserve(first)


def test_a_simulation_neither_holds_a_population_nor_is_refused(homes: tuple[Home, Home]) -> None:
    first, second = homes
    reserve(first, epsilon="0")
    measure(second)
    reserve(first, "2026-Q4", epsilon="0")
    with pytest.raises(HeldElsewhere):
        reserve(first, "2027-Q1")


def test_of_two_processes_at_the_same_moment_one_comes_to_hold_it(
    homes: tuple[Home, Home],
) -> None:
    first, second = homes
    ledger = ledger_of(first)
    ended: list[BaseException | None] = []

    def compete() -> None:
        try:
            reserve(second)
        except HeldElsewhere as refusal:
            ended.append(refusal)
        else:
            ended.append(None)

    with only_holder(first, ledger, "residents", cost=COST):
        rival = threading.Thread(target=compete)
        rival.start()
        rival.join(timeout=1.0)
        assert rival.is_alive()  # it waits: nobody can tell yet who holds the population
        ledger.reserve(ask())
    rival.join()
    assert [type(each) for each in ended] == [HeldElsewhere]


def test_whoever_dies_before_reserving_holds_nothing(homes: tuple[Home, Home]) -> None:
    first, second = homes
    with (
        pytest.raises(KeyboardInterrupt),
        only_holder(first, ledger_of(first), "residents", cost=COST),
    ):
        raise KeyboardInterrupt
    measure(second)


def test_a_copy_of_a_home_is_a_second_purse_and_the_first_one_goes_on(
    homes: tuple[Home, Home], tmp_path: Path
) -> None:
    first, _ = homes
    measure(first)
    copy = Home(Path(shutil.copytree(first.root, tmp_path / "copy")))
    with pytest.raises(HeldElsewhere):
        reserve(copy, "2026-Q4")
    said = [finding.says for finding in examine(copy) if not finding.ok]
    assert any("second budget" in each for each in said)
    assert all(finding.ok or finding.area != "ledger" for finding in examine(first))
    measure(first, "2026-Q4")


def test_a_home_that_was_moved_takes_its_populations_along(
    homes: tuple[Home, Home], tmp_path: Path
) -> None:
    first, second = homes
    measure(first)
    first.root.rename(tmp_path / "moved")
    measure(Home(tmp_path / "moved"), "2026-Q4")
    with pytest.raises(HeldElsewhere, match="moved"):
        reserve(second)


def test_what_another_home_spent_before_there_was_a_list_is_found_once_it_is_known(
    homes: tuple[Home, Home],
) -> None:
    old, new = homes
    commit(ledger_of(old), ledger_of(old).reserve(ask()))  # type: ignore[arg-type]
    assert note_ledger(old, "residents", cost=COST) is None
    with pytest.raises(HeldElsewhere):
        reserve(new)
    measure(old, "2026-Q4")


def test_a_known_ledger_that_cannot_be_read_cannot_be_ruled_out(homes: tuple[Home, Home]) -> None:
    first, second = homes
    measure(first)
    for file in first.root.glob("ledger.sqlite*"):
        file.write_bytes(b"damaged" * 1000)
    with pytest.raises(KnownLedgerUnreadable, match="Remedy") as refusal:
        reserve(second)
    assert refusal.value.exit_code == 3
    for file in first.root.glob("ledger.sqlite*"):
        file.unlink()
    measure(second)  # what is gone holds nothing


def test_a_damaged_list_is_told_and_not_replaced(homes: tuple[Home, Home]) -> None:
    first, second = homes
    measure(first)
    for content in (b"{", b'{"ledgers": 3}', b'{"other": {}}', b"\xff"):
        (user_place() / FILE).write_bytes(content)
        for home in homes:
            with pytest.raises(ListDamaged, match="Remedy"):
                reserve(home, "2026-Q4")
        assert (user_place() / FILE).read_bytes() == content
    (user_place() / FILE).unlink()
    measure(first, "2026-Q4")
    with pytest.raises(HeldElsewhere):
        reserve(second)


def test_the_list_is_closed_to_others_and_holds_no_password(
    homes: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = homes
    ledger = ledger_of(first)
    url = "postgresql+psycopg://pgsr:s3cret@db.example.org/ledger?password=s3cret&sslmode=require"
    monkeypatch.setenv("PGSR_LEDGER_URL", url)
    with only_holder(first, ledger, "residents", cost=COST):
        pass
    path = user_place() / FILE
    assert "s3cret" not in path.read_text()
    assert "pgsr:" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert json.loads(path.read_text())["populations"] == {
        "residents": "postgresql://db.example.org:5432/ledger"
    }
    # Another home of the same ledger shares its purse; a home with a ledger of its own does not.
    refuse_held_elsewhere(second, None, "residents", cost=COST)
    monkeypatch.delenv("PGSR_LEDGER_URL")
    with pytest.raises(HeldElsewhere, match=r"db\.example\.org.*PGSR_LEDGER_URL"):
        reserve(second)


def test_where_no_list_can_be_kept_a_release_says_so_and_goes_on(
    homes: tuple[Home, Home], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = homes
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    said = note_ledger(first, "residents", cost=COST)
    assert said is not None
    assert "residents" in said
    measure(first)
    measure(second)


def test_looking_into_another_ledger_changes_nothing_there(homes: tuple[Home, Home]) -> None:
    first, second = homes
    measure(first)
    before = {path.name: path.stat().st_mtime_ns for path in first.root.glob("*.sqlite")}
    with pytest.raises(HeldElsewhere):
        reserve(second)
    with sqlite3.connect(first.root / "ledger.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM populations").fetchone() == (1,)
    assert {path.name: path.stat().st_mtime_ns for path in first.root.glob("*.sqlite")} == before


# --- two folders, through the stages ----------------------------------------------------------


def released_from(folder: Path, said: list[str] | None = None) -> Path:
    said = said if said is not None else []
    ref = prepare(folder / "product.yaml", slot=SLOT, home=Home(folder / "home"), warn=said.append)
    return run_stages(ref)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders with the same product and population, each with a state folder."""
    for name in ("one", "two"):
        configuration = write_product(tmp_path / name, PRODUCT, None)
        text = configuration.read_text().replace("../public", "public")
        configuration.write_text(f"{text}margins: {{repetitions: 0}}\n")
    return tmp_path / "one", tmp_path / "two"


def spent(folder: Path) -> Fraction:
    home = Home(folder / "home")
    ledger = Ledger.existing(home.ledger_url, witness=home.witness)
    return sum((account.spent for account in ledger.accounts()), Fraction(0)) if ledger else 0


def test_two_folders_and_one_population_have_one_budget(folders: tuple[Path, Path]) -> None:
    one, two = folders
    assert released_from(one).is_dir()
    with pytest.raises(HeldElsewhere, match="Remedy"):
        released_from(two)
    assert not (two / "home").exists()  # refused before there is a second ledger
    assert (spent(one), spent(two)) == (EPSILON, 0)


def test_two_folders_that_were_planned_before_either_drew_have_one_budget(
    folders: tuple[Path, Path],
) -> None:
    one, two = folders
    planned: list[RunRef] = [
        prepare(each / "product.yaml", slot=SLOT, home=Home(each / "home")) for each in folders
    ]
    assert run_stages(planned[1]).is_dir()
    with pytest.raises(StageFailed, match="HeldElsewhere"):
        run_stages(planned[0])
    assert (spent(one), spent(two)) == (0, EPSILON)


def test_a_new_ledger_and_a_new_population_are_never_silent(folders: tuple[Path, Path]) -> None:
    one, _ = folders
    said: list[str] = []
    released_from(one, said)
    [opened] = said
    for part in ("new", str(one / "home" / "ledger.sqlite"), PRODUCT, "budget of"):
        assert part in opened
    configuration = one / "product.yaml"
    text = configuration.read_text()
    later: list[str] = []
    prepare(configuration, slot=date(2026, 2, 1), home=Home(one / "home"), warn=later.append)
    assert later == []
    configuration.write_text(text.replace(f"name: {PRODUCT}", "name: dwelings"))
    prepare(configuration, slot=date(2026, 3, 1), home=Home(one / "home"), warn=later.append)
    [begun] = later
    assert "population dwelings is new to the ledger" in begun


def test_a_simulation_is_made_wherever_the_population_is_held(folders: tuple[Path, Path]) -> None:
    one, two = folders
    released_from(one)
    configuration = two / "product.yaml"
    text = configuration.read_text().replace("  signing_key: release.key\n", "")
    configuration.write_text(f"{text}simulate: true\n")
    assert released_from(two).is_dir()


def test_examples_have_purses_of_their_own(folders: tuple[Path, Path]) -> None:
    for folder in folders:
        Home(folder / "home").create_for_example(PRODUCT)
        assert released_from(folder).is_dir()
    assert not (user_place() / FILE).exists()
    # Other people in the folder of an example are nobody's example.
    configuration = folders[0] / "product.yaml"
    text = configuration.read_text().replace("name: dwellings", "name: residents")
    configuration.write_text(text)
    home = Home(folders[0] / "home")
    run_stages(prepare(configuration, slot=date(2026, 2, 1), home=home))
    with pytest.raises(HeldElsewhere):
        refuse_held_elsewhere(Home(folders[1] / "home"), None, "residents", cost=EPSILON)


def test_a_refusal_is_an_answer_that_people_can_read(homes: tuple[Home, Home]) -> None:
    for error in (
        HeldElsewhere("p", ledger="/x/ledger.sqlite", home="/x"),
        HeldElsewhere("p", ledger="/elsewhere/ledger.sqlite", home="/x"),
        HeldElsewhere("p", ledger="postgresql://db:5432/ledger", home="/x"),
    ):
        assert isinstance(error, PgsrError)
        assert "Remedy: " in str(error)
    assert "sqlite:////elsewhere/ledger.sqlite" in str(
        HeldElsewhere("p", ledger="/elsewhere/ledger.sqlite", home="/x")
    )
