"""Schemas of the ledger: made when empty, migrated whole, refused when old or unknown."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from pgsr_core.chain import verify_chain
from tasks.ledger import versions
from tasks.ledger.database import connect, snapshot, transaction
from tasks.ledger.inspection import check_ledger
from tasks.ledger.ledger import Ledger, Measurement, default_witness
from tasks.ledger.schema import SCHEMA_VERSION, metadata
from tasks.ledger.versions import (
    MIGRATIONS,
    LedgerIsNewer,
    LedgerNeedsMigration,
    ledger_exists,
    run_migrations,
)
from tests.tasks.ledger_requests import PRODUCT, raw, reopened

# What version 0.1 left: a published release, a reservation of a dead process, five events.
OLD = (Path(__file__).parent / "ledger_0_1.sql").read_text()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.sqlite"


@pytest.fixture
def old(url: str) -> str:
    with raw(url) as connection:
        connection.executescript(OLD)
    return url


def migrate(url: str) -> tuple[str, str]:
    return versions.migrate(url, default_witness(url))


def dump(url: str) -> list[str]:
    with raw(url) as connection:
        return list(connection.iterdump())


def test_an_old_ledger_is_refused_untouched_and_the_command_is_named(old: str) -> None:
    before = dump(old)
    assert ledger_exists(old)
    with pytest.raises(LedgerNeedsMigration, match="pgsr ledger migrate") as caught:
        Ledger(old)
    assert caught.value.exit_code == 2
    assert dump(old) == before


def test_everything_of_an_old_ledger_is_there_after_the_migration(old: str, tmp_path: Path) -> None:
    assert migrate(old) == ("0001", SCHEMA_VERSION)
    ledger = Ledger(old, clock=lambda: 1_790_000_001.0)
    held = ledger.measurement(PRODUCT, "2026-Q3")
    assert isinstance(held, Measurement)
    assert (held.epsilon, held.digest, held.groups) == (Fraction(1, 3), "d" * 64, 17)
    assert held.descriptor["source"] == "digest"
    assert ledger.values(held).tolist() == [[5, -3], [2**62, 1]]
    account = ledger.account("residents")
    assert (account.budget, account.spent) == (1, Fraction(1, 3))
    assert account.reserved == Fraction(1, 6)
    assert [state.state for state in ledger.run_states()] == ["published"]
    kinds = [event.kind for event in ledger.timeline()]
    assert kinds == ["population", "reserved", "measured", "reserved", "validated", "migrated"]
    assert ledger.timeline()[0].actor == "operator@office"
    assert ledger.timeline()[4].facts["checks"] == {"totals": True}
    assert ledger.timeline()[5].facts == {"from": "0001", "to": "0002", "events": 5}
    assert verify_chain(ledger.timeline(), head=ledger.head()).intact
    (tmp_path / "ledger.sqlite").chmod(0o600)
    assert all(found.passed for found in check_ledger(old, tmp_path / "witness.json"))


def test_a_migrated_ledger_goes_on(old: str) -> None:
    migrate(old)
    Ledger(old).record("computed", PRODUCT, "2026-Q3")
    assert reopened(old).head().sequence == 7
    assert migrate(old) == (SCHEMA_VERSION, SCHEMA_VERSION)


def test_a_migrated_ledger_and_a_new_one_have_the_same_schema(old: str, tmp_path: Path) -> None:
    migrate(old)
    fresh = Ledger(f"sqlite:///{tmp_path}/fresh/ledger.sqlite")
    for ledger in (Ledger(old), fresh):
        with snapshot(ledger._engine) as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, metadata) == []


def test_the_migrations_alone_make_the_schema(url: str) -> None:
    engine = connect(url)
    with transaction(engine) as connection:
        run_migrations(connection, unnumbered=False)
    with snapshot(Ledger(url)._engine) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_the_schema_is_that_of_the_newest_migration() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_current_head() == SCHEMA_VERSION


def test_a_migration_that_fails_changes_nothing(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dump(old)

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("pgsr_core.chain.append", fail)
        with pytest.raises(KeyboardInterrupt):
            migrate(old)
    assert dump(old) == before
    assert migrate(old) == ("0001", SCHEMA_VERSION)


def test_a_ledger_of_a_newer_version_is_refused(url: str) -> None:
    Ledger(url)
    with raw(url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0099'")
    for opening in (Ledger, migrate):
        with pytest.raises(LedgerIsNewer, match="0099"):
            opening(url)


def test_an_empty_database_gets_the_newest_schema_without_alembic(url: str) -> None:
    code = (
        "import sys; from tasks.ledger.ledger import Ledger; Ledger(sys.argv[1]);"
        "print([name for name in sys.modules if name.startswith('alembic')])"
    )
    root = Path(versions.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, url], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
    assert migrate(url) == (SCHEMA_VERSION, SCHEMA_VERSION)
