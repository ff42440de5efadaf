"""Which schema a ledger has: made when it is empty, migrated on demand, else refused."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, insert, inspect, select

from pgsr_core.chain import GENESIS
from pgsr_core.errors import PgsrError
from tasks.ledger.database import connect, file_is_missing, snapshot, transaction
from tasks.ledger.events import read_head
from tasks.ledger.schema import HEAD_ROW, SCHEMA_VERSION, head, metadata, schema_version
from tasks.ledger.witness import Witness

MIGRATIONS = Path(__file__).parent / "migrations"
EMPTY = "empty"
# Ledgers of version 0.1 carry no number of their own.
FIRST = "0001"
# Any number will do: it keeps two machines from making the same tables at once.
_CREATION_LOCK = 7_047_318_229


class LedgerNeedsMigration(PgsrError):
    """The ledger was made by an older version; nothing was changed."""

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(
            f"the ledger has schema {found} and this version needs {SCHEMA_VERSION}. "
            "Remedy: pgsr ledger backup OUT, then pgsr ledger migrate."
        )


class LedgerIsNewer(PgsrError):
    """The ledger was made or migrated by a newer version; nothing was changed."""

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(
            f"the ledger has schema {found}, which this version does not know (it knows "
            f"{SCHEMA_VERSION}). Remedy: use the version of pgsr that migrated it."
        )


def ledger_exists(url: str) -> bool:
    """Whether there is a ledger already; looking creates nothing."""
    if file_is_missing(url):
        return False
    with snapshot(connect(url)) as connection:
        return version_of(connection) != EMPTY


def open_engine(url: str) -> Engine:
    """Connect to a ledger of this version's schema; an empty database gets its tables.

    Raises:
        LedgerUnavailable: it cannot be used.
        LedgerNeedsMigration: its schema is older.
        LedgerIsNewer: its schema is newer.
    """
    engine = connect(url)
    with snapshot(engine) as connection:
        found = version_of(connection)
    if found == EMPTY:
        with transaction(engine) as connection:
            found = _create(connection)
    require_current(found)
    return engine


def require_current(found: str) -> None:
    """Refuse another schema than this version's."""
    if found == SCHEMA_VERSION:
        return
    known = found in {path.name[:4] for path in (MIGRATIONS / "versions").glob("0*.py")}
    raise LedgerNeedsMigration(found) if known else LedgerIsNewer(found)


def version_of(connection: Connection) -> str:
    """The schema's number, or that there is none yet."""
    tables = inspect(connection)
    if tables.has_table(schema_version.name):
        return connection.scalar(select(schema_version.c.version_num)) or EMPTY
    return FIRST if tables.has_table("measurements") else EMPTY


def migrate(url: str, witness: Path) -> tuple[str, str]:
    """Bring a ledger to this version's schema, all of it or nothing; says from where to where.

    A migration is an event, so the witness learns of it.

    Raises:
        LedgerIsNewer: its schema is newer.
        WitnessNotWritten: it was migrated, but its witness could not be written.
    """
    engine = connect(url)
    with snapshot(engine) as connection:
        found = version_of(connection)
    if found == EMPTY:
        open_engine(url)
    elif found != SCHEMA_VERSION:
        try:
            require_current(found)
        except LedgerNeedsMigration:
            _upgrade(engine)
            with snapshot(engine) as connection:
                Witness(witness).move(head=read_head(connection) or GENESIS)
    return found, SCHEMA_VERSION


def _create(connection: Connection) -> str:
    """Make the tables, unless another process was first."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})")
    found = version_of(connection)
    if found == EMPTY:
        metadata.create_all(connection)
        first = insert(head).values(id=HEAD_ROW, sequence=GENESIS.sequence, hash=GENESIS.hash)
        connection.execute(first)
        connection.execute(insert(schema_version).values(version_num=SCHEMA_VERSION))
        found = SCHEMA_VERSION
    return found


def _upgrade(engine: Engine) -> None:
    with transaction(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})")
        run_migrations(
            connection, unnumbered=not inspect(connection).has_table(schema_version.name)
        )


def run_migrations(connection: Connection, *, unnumbered: bool) -> None:
    """Run the migrations that are missing; an unnumbered ledger is one of version 0.1."""
    # Alembic takes a quarter of a second to import, and almost nobody migrates.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    if unnumbered:
        command.stamp(config, FIRST)
    command.upgrade(config, "head")
