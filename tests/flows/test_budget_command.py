"""`pgsr budget` and `budget raise` in this process, on ledgers that need no release."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from flows.cli.app import app
from pgsr_core.budget import BudgetExceeded
from pgsr_core.errors import PgsrError
from tasks.ledger.accounts import NoReason, NotARaise
from tasks.ledger.ledger import Ledger
from tasks.stages.prepare import prepare
from tasks.storage.zones import Home
from tests.tasks.ledger_requests import ask, measure

Command = Callable[..., str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An installation whose population `residents` has a cap of 1, of which 2/3 is spent."""
    monkeypatch.setenv("PGSR_HOME", str(tmp_path / "home"))
    home = Home.locate()
    ledger = Ledger(home.ledger_url, witness=home.witness)
    measure(ledger, ask("2026-Q1"))
    measure(ledger, ask("2026-Q2"))
    return home


@pytest.fixture
def pgsr(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: str) -> str:
        app(list(arguments), standalone_mode=False)
        return capsys.readouterr().out

    return run


def budgets(pgsr: Command, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(pgsr("budget", "--json", *options))
    return found


def test_every_population_is_shown_with_its_cap_its_releases_and_the_tighter_figure(
    home: Home, pgsr: Command
) -> None:
    Ledger(home.ledger_url, witness=home.witness).reserve(ask("2026-Q3", epsilon="1/4"))
    [account] = budgets(pgsr, "--delta", "1e-2")
    amounts = [account[name] for name in ("budget", "spent", "reserved", "remaining")]
    assert amounts == ["1", "2/3", "1/4", "1/12"]
    charges = {charge["release"]: charge["epsilon"] for charge in account["charges"]}
    assert charges == {"household-sizes/2026-Q1": "1/3", "household-sizes/2026-Q2": "1/3"}
    together = account["together"]
    assert together["delta"] == "1/100"
    assert 0 < Fraction(together["epsilon"]) < Fraction(together["plain_sum"]) == Fraction(2, 3)
    assert budgets(pgsr, "--population", "residents", "--delta", "1e-2") == [account]
    shown = pgsr("budget", "--delta", "1e-2")
    assert "2/3 (about 0.666667)" in shown
    assert "δ = 1e-2" in shown
    figure = f"{float(Fraction(together['epsilon'])):.6f}"
    assert figure in shown
    assert "household-sizes/2026-Q2" in shown


def test_the_keyed_digest_of_the_source_is_not_shown(home: Home, pgsr: Command) -> None:
    assert "größe" in ask().descriptor
    assert "größe" not in pgsr("budget", "--json")


def test_where_no_release_was_started_there_is_nothing_to_show_or_raise(
    pgsr: Command, tmp_path: Path
) -> None:
    assert budgets(pgsr, "--home", str(tmp_path / "nowhere")) == []
    with pytest.raises(PgsrError, match="Remedy:"):
        pgsr("budget", "raise", "x", "--to", "2", "--reason", "y", "--home", str(tmp_path / "no"))
    assert not (tmp_path / "nowhere").exists()
    assert not (tmp_path / "no").exists()


def test_a_cap_is_raised_with_its_reason_and_the_log_says_it_in_a_sentence(
    home: Home, pgsr: Command
) -> None:
    said = json.loads(
        pgsr("budget", "raise", "residents", "--to", "13/3", "--reason", "the board", "--json")
    )
    assert (said["before"], said["budget"], said["reason"]) == ("1", "13/3", "the board")
    assert budgets(pgsr)[0]["budget"] == "13/3"
    log = pgsr("audit", "log", "--kind", "budget-raised")
    [event] = json.loads(pgsr("audit", "log", "--kind", "budget-raised", "--json"))["events"]
    assert event["actor"] in log
    assert "raised from 1 to 13/3" in " ".join(log.split())


@pytest.mark.parametrize(
    ("to", "reason", "error"),
    [
        ("1", "why not", NotARaise),
        ("1/2", "less than is spent", NotARaise),
        ("2", " ", NoReason),
        ("0.1e9", "odd", PgsrError),
        ("-3", "odd", PgsrError),
        ("1/0", "odd", PgsrError),
    ],
)
def test_a_raise_that_is_none_or_has_no_reason_changes_nothing(
    home: Home, pgsr: Command, to: str, reason: str, error: type[PgsrError]
) -> None:
    with pytest.raises(error, match="Remedy:"):
        pgsr("budget", "raise", "residents", f"--to={to}", "--reason", reason)
    assert budgets(pgsr)[0]["budget"] == "1"


def test_an_unknown_population_and_a_misplaced_option_are_refused(
    home: Home, pgsr: Command, tmp_path: Path
) -> None:
    with pytest.raises(PgsrError, match="no population nobody"):
        pgsr("budget", "raise", "nobody", "--to", "2", "--reason", "x")
    with pytest.raises(PgsrError, match="stand behind"):
        pgsr("budget", "--home", str(tmp_path), "raise", "residents", "--to", "2", "--reason", "x")
    assert budgets(pgsr)[0]["budget"] == "1"


@pytest.mark.parametrize(
    "delta", ["0", "1", "-1e-9", "1e-31", "1e-999999999", "much", "nan", "1/0"]
)
def test_a_delta_that_means_nothing_is_refused(home: Home, pgsr: Command, delta: str) -> None:
    with pytest.raises(PgsrError, match="Remedy:"):
        pgsr("budget", f"--delta={delta}")


# --- the configuration's cap ----------------------------------------------------------------


@pytest.fixture
def product(home: Home, tmp_path: Path) -> Callable[..., Path]:
    """A product of the population whose cap the ledger knows, with a cap of its own."""
    (tmp_path / "regions.csv").write_text("region,parent\nnation,\n")
    (tmp_path / "units.csv").write_text("unit,region\na,nation\n")
    (tmp_path / "persons.csv").write_text("p,u,r\n1,a,nation\n")

    def write(*, cap: str, epsilon: str) -> Path:
        (tmp_path / "product.yaml").write_text(
            "product: other\nrelease: one\n"
            f"population: {{name: residents, budget: '{cap}', unit_of_privacy: person}}\n"
            "source: {persons: persons.csv, columns: {person: p, unit: u, region: r}}\n"
            "regions: regions.csv\nunits: units.csv\n"
            "sizes: {max: 5, largest_contribution: 1}\n"
            f"privacy: {{epsilon: '{epsilon}'}}\nmechanism: cumulative\npublish: {{to: public}}\n"
        )
        return tmp_path / "product.yaml"

    return write


@pytest.mark.parametrize(
    ("cap", "advice"),
    [("8", "pgsr budget raise residents --to 8"), ("1/2", "never lowered")],
)
def test_a_cap_in_the_file_that_is_not_the_ledgers_never_counts_and_this_is_said(
    product: Callable[..., Path],
    pgsr: Command,
    capsys: pytest.CaptureFixture[str],
    cap: str,
    advice: str,
) -> None:
    fits = product(cap=cap, epsilon="1/3")
    app(["check", str(fits), "--json"], standalone_mode=False)
    captured = capsys.readouterr()
    assert "the ledger's counts" in captured.err
    assert advice in captured.err
    checked = json.loads(captured.out)
    assert (checked["budget"], checked["configured_budget"]) == ("1", cap)
    said: list[str] = []
    too_much = product(cap=cap, epsilon="0.34")
    with pytest.raises(BudgetExceeded, match="pgsr budget raise"):
        prepare(too_much, slot=date(2026, 1, 1), warn=said.append)
    [notice] = said
    assert advice in notice
    assert budgets(pgsr)[0]["budget"] == "1"


def test_a_cap_in_the_file_that_is_the_ledgers_goes_without_saying(
    product: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    prepare(product(cap="1", epsilon="1/3"), slot=date(2026, 1, 1), warn=said.append)
    assert said == []
