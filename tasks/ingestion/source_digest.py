"""The person table's files for a slot, and the keyed digest that stands for them in the ledger."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Protocol

from tasks.configuration.dates import render
from tasks.configuration.model import Columns, Source
from tasks.ingestion.errors import UnreadableFile
from tasks.ingestion.files import TableFiles, find_table

_CHUNK = 1 << 20


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...


@dataclass(frozen=True)
class SourceFiles:
    """The person table of one slot: where it is and which columns are taken."""

    files: TableFiles
    columns: Columns

    @property
    def readable(self) -> tuple[Path, ...]:
        """The paths that the confidential connection must be allowed to read."""
        return self.files.readable


def resolve_source(source: Source, *, folder: Path, slot: date) -> SourceFiles:
    """Find the files of the person table: date templates filled in, patterns expanded, sorted.

    Raises:
        InputError: a path or pattern without a file, or a file that cannot be taken.
    """
    patterns = [render(pattern, slot) for pattern in source.persons]
    files = find_table(patterns, label="persons", folder=folder, table=source.table)
    return SourceFiles(files=files, columns=source.columns)


def keyed_source_digest(source: SourceFiles, *, key: bytes) -> str:
    """HMAC-SHA256 of what a run reads: the files' bytes and which columns are taken.

    Keyed, because a plain digest would let anyone who can guess the data confirm the guess.
    Names of files are left out: a copy elsewhere is the same data. The columns are in it: the
    same file read with another quantity is other data.

    Raises:
        InputError: a file cannot be read, or has changed since it was found.
    """
    state = hmac.new(key, b"pgsr source 1\n", "sha256")
    state.update(source.columns.model_dump_json().encode() + b"\n")
    state.update((source.files.table or "").encode() + b"\n")
    feed_files(state, source.files)
    return state.hexdigest()


def feed_files(state: _Hash, files: TableFiles) -> None:
    """Feed the number of files, then each one's length and bytes, in order of their paths.

    Raises:
        InputError: a file cannot be read, or has changed since it was found.
    """
    state.update(len(files.files).to_bytes(8, "little"))
    for path, (length, _) in zip(files.files, files.stamps, strict=True):
        state.update(length.to_bytes(8, "little"))
        if not _feed(state, path):
            raise UnreadableFile(table=files.label)
    files.refuse_change()


def _feed(state: _Hash, path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                state.update(chunk)
    except OSError:
        return False
    return True
