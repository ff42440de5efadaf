"""`pgsr ledger check`: everything that can be verified of a ledger, also of a broken one."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from pgsr_core.chain import GENESIS, verify_chain
from pgsr_core.errors import PgsrError
from tasks.ledger.bookkeeping import contradictions
from tasks.ledger.database import connect, file_of, snapshot
from tasks.ledger.events import read_events, read_head
from tasks.ledger.history import require_witnessed
from tasks.ledger.versions import ledger_exists, require_current, version_of
from tasks.ledger.witness import Witness

NO_WITNESS = (
    "there is none, so nothing would show that the end of this ledger was cut off or that an older "
    "copy was put back. Remedy: restore witness.json from a backup. If it is lost, or this machine "
    "is new to a shared ledger, see that the ledger holds the head that the newest published "
    "bundle carries (pgsr audit verify --json, pgsr audit log); then go on: the next event makes "
    "a new one."
)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_SYNCHRONOUS_FULL = 2


class NoLedger(PgsrError):
    """There is no ledger yet."""

    def __init__(self) -> None:
        super().__init__("there is no ledger here. Remedy: pgsr ledger init, or name its --home.")


@dataclass(frozen=True)
class Finding:
    """One thing that was verified, and what was found."""

    name: str
    passed: bool
    detail: str


def check_ledger(url: str, witness: Path) -> tuple[Finding, ...]:
    """Verify schema, chain, witness, books and files; a finding for everything that is wrong.

    Raises:
        NoLedger: there is none.
        LedgerUnavailable: it cannot be reached.
    """
    if not ledger_exists(url):
        raise NoLedger
    return tuple(_findings(url, Witness(witness)))


def _findings(url: str, witness: Witness) -> Iterator[Finding]:
    # Read before the snapshot: what the witness saw was committed, so the snapshot has it.
    try:
        witnessed, damage = witness.read(), None
    except PgsrError as error:
        witnessed, damage = None, error
    with snapshot(connect(url)) as connection:
        found = version_of(connection)
        try:
            require_current(found)
        except PgsrError as error:
            yield Finding("schema", False, str(error))
            return
        yield Finding("schema", True, found)
        yield from _chain(connection)
        if damage is not None:
            yield Finding("witness", False, str(damage))
        elif witnessed is None:
            yield _no_witness(connection)
        else:
            try:
                require_witnessed(connection, verify_chain(read_events(connection)).head, witnessed)
            except PgsrError as error:
                yield Finding("witness", False, str(error))
            else:
                seen = f"event {witnessed.head.sequence} is in the chain"
                yield Finding("witness", True, seen)
        yield from _books(connection)
        path = file_of(url)
        if path is not None:
            yield from _pragmas(connection)
    yield from _permissions([witness.path, *_files(path)])


def _no_witness(connection: Connection) -> Finding:
    """Nothing to remember yet; or whatever remembered it is gone, and may have been removed."""
    head = read_head(connection)
    if head == GENESIS:
        return Finding("witness", True, "there is none yet; the first event makes it")
    return Finding("witness", False, NO_WITNESS)


def _chain(connection: Connection) -> Iterator[Finding]:
    head = read_head(connection)
    report = verify_chain(read_events(connection), head=head)
    for broken in report.breaks:
        yield Finding("chain", False, str(broken))
    if head is None:
        yield Finding("chain", False, "the row of the chain's head is missing")
    elif report.intact and report.head != head:
        yield Finding("chain", False, f"event {report.head.sequence} is beyond the chain's head")
    elif report.intact:
        yield Finding("chain", True, f"{report.length} events, head {head.hash}")


def _books(connection: Connection) -> Iterator[Finding]:
    wrong = contradictions(connection, read_events(connection))
    for what in wrong:
        yield Finding("books", False, what)
    if not wrong:
        yield Finding("books", True, "every charge, measurement and budget has its event")


def _pragmas(connection: Connection) -> Iterator[Finding]:
    sound = connection.exec_driver_sql("PRAGMA quick_check").scalar()
    journal = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
    synchronous = connection.exec_driver_sql("PRAGMA synchronous").scalar()
    durable = (journal, synchronous) == ("wal", _SYNCHRONOUS_FULL)
    yield Finding("database", sound == "ok", f"SQLite finds it {sound}")
    yield Finding("durability", durable, f"journal {journal}, synchronous {synchronous}")


def _files(path: Path | None) -> list[Path]:
    if path is None:
        return []
    return [path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))]


def _permissions(paths: list[Path]) -> Iterator[Finding]:
    there = [path for path in paths if path.exists()]
    loose = [path for path in there if path.stat().st_mode & _OTHERS]
    for path in loose:
        detail = f"{path.name} is open to others. Remedy: chmod 600 {path}"
        yield Finding("permissions", False, detail)
    if not loose:
        yield Finding("permissions", True, f"{len(there)} files, closed to others")
