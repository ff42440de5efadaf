"""A consistent copy of a SQLite ledger, also while it is in use."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from pgsr_core.errors import PgsrError
from tasks.ledger.database import LedgerUnavailable, file_is_missing, file_of
from tasks.ledger.inspection import NoLedger
from tasks.storage.zones import PRIVATE_FILE, sync_folder


class BackupRefused(PgsrError):
    """No copy was made, and nothing was overwritten."""


def back_up(url: str, to: Path) -> None:
    """Copy the ledger as it is at one moment; the copy appears whole or not at all.

    Raises:
        BackupRefused: something stands in its place, or the ledger is not a file.
        LedgerUnavailable: it cannot be read, or the copy cannot be written.
    """
    source = file_of(url)
    if source is None:
        raise BackupRefused(
            "the ledger is on a PostgreSQL server, which makes backups itself. Remedy: pg_dump."
        )
    if file_is_missing(url):
        raise NoLedger
    with appearing(to) as draft:
        copy_database(source, draft)


@contextlib.contextmanager
def appearing(to: Path) -> Iterator[Path]:
    """A draft, closed to others, that appears as `to` when all went well, and never over a file.

    Raises:
        BackupRefused: something stands in its place.
        LedgerUnavailable: it cannot be written, or what it is made from cannot be read.
    """
    draft = to.with_name(f".{to.name}.draft-{secrets.token_hex(4)}")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
        yield draft
        _sync(draft)
        os.link(draft, to)  # atomic, and fails if something is there
        sync_folder(to.parent)
    except FileExistsError:
        raise BackupRefused(
            f"{to} is there already and is not overwritten. Remedy: name another file."
        ) from None
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise LedgerUnavailable(
            f"the copy could not be made ({reason}); there is none. "
            "Remedy: see that the folder is there, writable and not full, and try again."
        ) from None
    finally:
        draft.unlink(missing_ok=True)


def copy_database(source: Path, draft: Path) -> None:
    """Copy a SQLite database as it is at one moment."""
    with (
        contextlib.closing(sqlite3.connect(source)) as original,
        contextlib.closing(sqlite3.connect(draft)) as copy,
    ):
        original.backup(copy)
        # One file: what is carried away must not need a write-ahead log beside it.
        copy.execute("PRAGMA journal_mode = DELETE")


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
