"""`pgsr ledger` as its users run it, around a real release."""

from __future__ import annotations

import base64
import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from flows.cli.app import app
from pgsr_core.errors import PgsrError
from tests.flows.commandline import Pgsr, edit

OLD = (Path(__file__).parents[1] / "tasks" / "ledger_0_1.sql").read_text()


def run(home: Path, *arguments: str) -> Result:
    """A command in this process; an expected error is its result's exception."""
    return CliRunner().invoke(app, ["ledger", *arguments, "--home", str(home)])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "state"


def old_ledger(home: Path) -> None:
    home.mkdir(mode=0o700)
    path = home / "ledger.sqlite"
    path.touch(mode=0o600)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(OLD)


def test_init_makes_a_ledger_once_and_check_finds_it_sound(home: Path) -> None:
    assert json.loads(run(home, "init", "--json").stdout)["made"] is True
    assert json.loads(run(home, "init", "--json").stdout)["made"] is False
    assert stat.S_IMODE((home / "ledger.sqlite").stat().st_mode) == 0o600
    checked = run(home, "check", "--json")
    assert checked.exit_code == 0
    document = json.loads(checked.stdout)
    assert document["passed"] is True
    names = {"schema", "chain", "witness", "books", "database", "durability", "permissions"}
    assert {finding["name"] for finding in document["findings"]} == names


@pytest.mark.parametrize(
    "command", [["check"], ["migrate"], ["backup", "copy"], ["export", "events"], ["restore"]]
)
def test_without_a_ledger_the_commands_say_how_to_make_one_and_make_none(
    home: Path, command: list[str]
) -> None:
    done = run(home, *command)
    assert isinstance(done.exception, PgsrError)
    assert done.exception.exit_code == 2
    assert "pgsr ledger init" in str(done.exception)
    assert not home.exists()


def test_an_old_ledger_is_told_by_check_copied_and_migrated(home: Path, tmp_path: Path) -> None:
    old_ledger(home)
    checked = run(home, "check")
    assert checked.exit_code == 1
    assert "pgsr ledger migrate" in checked.stdout
    assert run(home, "backup", str(tmp_path / "copy.sqlite")).exit_code == 0
    migrated = json.loads(run(home, "migrate", "--json").stdout)
    assert (migrated["from"], migrated["to"], migrated["events"]) == ("0001", "0002", 6)
    assert run(home, "check").exit_code == 0
    assert "has schema 0002" in run(home, "migrate").stdout


def test_a_backup_is_put_back_with_what_was_exported_since(home: Path, tmp_path: Path) -> None:
    old_ledger(home)
    run(home, "migrate")
    backup, events = tmp_path / "backup.sqlite", tmp_path / "events.jsonl"
    assert run(home, "backup", str(backup)).exit_code == 0
    raised = ["budget", "raise", "residents", "--to", "9", "--reason", "decided"]
    app([*raised, "--home", str(home)], standalone_mode=False)
    exported = run(home, "export", str(events), "--after", "6")
    assert "1 events" in exported.stdout
    assert "--after 7" in exported.stdout
    for file in home.glob("ledger.sqlite*"):
        file.unlink()
    refused = run(home, "restore", str(backup))
    assert isinstance(refused.exception, PgsrError)
    assert refused.exception.exit_code == 1
    restored = json.loads(
        run(home, "restore", str(backup), "--events", str(events), "--json").stdout
    )
    assert (restored["events"], restored["supplied"], restored["witnessed"]) == (7, 1, True)
    assert run(home, "check").exit_code == 0


def test_check_says_what_is_wrong_and_ends_with_one(home: Path) -> None:
    old_ledger(home)
    run(home, "migrate")
    with closing(sqlite3.connect(home / "ledger.sqlite")) as connection:
        connection.execute("UPDATE charges SET epsilon = '1/300'")
        connection.execute("DELETE FROM events WHERE sequence = 4")
        connection.commit()
    (home / "ledger.sqlite").chmod(0o644)
    checked = run(home, "check", "--json")
    assert checked.exit_code == 1
    wrong = {
        f["name"]: f["detail"] for f in json.loads(checked.stdout)["findings"] if not f["passed"]
    }
    assert wrong.keys() == {"chain", "books", "permissions"}
    assert "deleted at event 4" in wrong["chain"]
    assert "charge of household-sizes/2026-Q3" in wrong["books"]
    assert "chmod 600" in wrong["permissions"]


def test_a_release_is_chained_witnessed_and_signed_with_its_head_and_a_rollback_is_refused(
    pgsr: Pgsr, virginia: Path
) -> None:
    pgsr("keys", "new", "release.key", cwd=virginia)
    edit(virginia / "product.yaml", "  to: public\n", "  to: public\n  signing_key: release.key\n")
    pgsr("ledger", "init", cwd=virginia)
    pgsr("ledger", "backup", "before.sqlite", cwd=virginia)
    bundle = Path(pgsr.json("release", "product.yaml", cwd=virginia)["bundle"])

    envelope = json.loads((bundle / "provenance.dsse.json").read_text())
    signed = json.loads(base64.b64decode(envelope["payload"]))["predicate"]["ledger_head"]
    witness = json.loads((virginia / ".pgsr" / "witness.json").read_text())
    assert witness["published"] == signed
    assert witness["head"]["sequence"] > signed["sequence"] > 0
    assert pgsr.json("ledger", "check", cwd=virginia)["passed"] is True

    (virginia / "before.sqlite").replace(virginia / ".pgsr" / "ledger.sqlite")
    refused = pgsr("release", "product.yaml", cwd=virginia)
    assert refused.returncode == 1
    assert "a published release carries event" in refused.stderr
    assert pgsr("ledger", "check", cwd=virginia).returncode == 1
