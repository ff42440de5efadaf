"""Which files make up an input table, found once and watched for change."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from tasks.configuration.model import source_kind
from tasks.ingestion.errors import (
    FileChanged,
    MissingFile,
    PathWithPattern,
    UnfinishedSource,
    UnreadableFile,
    UnsupportedFile,
)

Kind = Literal["csv", "parquet", "duckdb"]
_PATTERN_SIGNS = frozenset("*?[")


@dataclass(frozen=True)
class TableFiles:
    """The files of one table, in order of their paths.

    Attributes:
        label: what messages call the table ("persons", "regions", "units").
        kind: how to read the files.
        files: absolute paths.
        stamps: size and time of change of each file when it was found.
        table: the table's name, in a DuckDB file only.
    """

    label: str
    kind: Kind
    files: tuple[Path, ...]
    stamps: tuple[tuple[int, int], ...]
    table: str | None = None

    @property
    def readable(self) -> tuple[Path, ...]:
        """The paths that a hardened connection must be allowed to read.

        DuckDB looks for a write-ahead log beside a database file even where there is none.
        """
        if self.kind == "duckdb":
            return (*self.files, *(_write_ahead_log(path) for path in self.files))
        return self.files

    def refuse_change(self) -> None:
        """Check that the files are those that were found.

        Raises:
            FileChanged: a file has another size or time of change, or is gone.
        """
        changed = [
            number
            for number, (path, stamp) in enumerate(
                zip(self.files, self.stamps, strict=True), start=1
            )
            if _stamp(path) != stamp
        ]
        if changed:
            raise FileChanged(table=self.label, detail=_file_detail(changed[0], self.files))


def find_table(
    patterns: Sequence[str], *, label: str, folder: Path, table: str | None = None
) -> TableFiles:
    """Find the files of a table: paths or patterns, relative to a folder.

    Args:
        patterns: paths, or patterns with ``*``, ``?``, ``[…]`` and ``**``.
        label: what messages call the table.
        folder: where relative paths start.
        table: the table's name in a DuckDB file.

    Raises:
        MissingFile: a path or pattern without a file.
        UnsupportedFile: an ending that cannot be read.
        PathWithPattern: a path that DuckDB would take for a pattern.
        UnfinishedSource: a DuckDB file with a write-ahead log.
    """
    kinds = {source_kind(pattern) for pattern in patterns}
    if len(kinds) != 1 or not kinds <= ({"duckdb"} if table else {"csv", "parquet"}):
        raise UnsupportedFile(table=label)
    found: set[Path] = set()
    for pattern in patterns:
        matches = _matches(pattern, folder)
        if not matches:
            raise MissingFile(table=label, detail=f"nothing is at {pattern!r}")
        found.update(matches)
    files = tuple(sorted(found))
    if any(_PATTERN_SIGNS.intersection(str(path)) for path in files):
        raise PathWithPattern(table=label)
    if table and any(_write_ahead_log(path).exists() for path in files):
        raise UnfinishedSource(table=label)
    stamps = []
    for number, path in enumerate(files, start=1):
        stamp = _stamp(path)
        if stamp is None:
            raise UnreadableFile(table=label, detail=_file_detail(number, files))
        stamps.append(stamp)
    return TableFiles(
        label=label, kind=cast(Kind, kinds.pop()), files=files, stamps=tuple(stamps), table=table
    )


def _matches(pattern: str, folder: Path) -> list[Path]:
    if "\0" in pattern:
        return []
    if glob.has_magic(pattern):
        names = glob.glob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207 (root_dir)
    else:
        names = [pattern]
    paths = [folder / name for name in names]
    # Not Path.is_file: that one raises where a folder may not be entered.
    return [path.resolve() for path in paths if os.path.isfile(path)]  # noqa: PTH113


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _write_ahead_log(path: Path) -> Path:
    return path.with_name(path.name + ".wal")


def _file_detail(number: int, files: Sequence[Path]) -> str:
    return f"file {number}" if len(files) > 1 else ""
