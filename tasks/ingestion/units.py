"""The public unit table: which units there are and in which leaf region each one lies."""

# ruff: noqa: S608 (the SQL is put together from roles, types and quoted names; values are bound)
from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

import numpy as np
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from tasks.ingestion.errors import DuplicateUnit, EmptyTable, FileChanged
from tasks.ingestion.files import TableFiles, find_table
from tasks.ingestion.rules import (
    REGION_RULES,
    REGIONS,
    PreparedRows,
    create_region_table,
    drop_region_table,
    flags,
    missing,
    raise_at_rows,
    refuse_broken,
    region_column,
)
from tasks.ingestion.source_digest import feed_files
from tasks.ingestion.statements import execute, fetch_columns
from tasks.ingestion.tables import OpenTable, open_table
from tasks.storage.duck import DEFAULT_MEMORY_LIMIT, connect
from tasks.storage.temporary import temporary_folder

UNIT_COLUMNS = {"unit": "unit", "region": "region"}
_LABEL = "units"
_RULES = (missing("unit"), *REGION_RULES)


@dataclass(frozen=True)
class PublicUnits:
    """A checked unit table.

    Attributes:
        files: where it is; too large to hold in memory.
        groups_by_region: the public number of units G_r of every region of the tree.
        digest: SHA-256 of the files.
    """

    files: TableFiles
    groups_by_region: NDArray[np.int64]
    digest: str

    @property
    def readable(self) -> tuple[Path, ...]:
        """The paths that a connection must be allowed to read."""
        return self.files.readable


def read_units(
    path: str,
    tree: RegionTree,
    *,
    folder: Path,
    spill_folder: Path | None = None,
    memory_limit: str = DEFAULT_MEMORY_LIMIT,
    threads: int | None = None,
) -> PublicUnits:
    """Check the unit table (columns unit, region) and count the units of every region.

    Args:
        path: CSV or Parquet, or a pattern of either, relative to ``folder``.
        tree: the regions.
        folder: where relative paths start.
        spill_folder: where to put, for the while, what memory cannot hold; the system's
            folder for temporary files if not given (the table is public).
        memory_limit: as DuckDB spells it.
        threads: how many; None leaves it to DuckDB.

    Raises:
        InputError: which rule is broken, and in which rows.
    """
    files = find_table([path], label=_LABEL, folder=folder)
    with (
        temporary_folder(spill_folder or Path(gettempdir()), "pgsr-units-") as spill,
        connect(
            None,
            readable=files.readable,
            writable_folder=spill,
            memory_limit=memory_limit,
            threads=threads,
        ) as connection,
        open_table(connection, files, columns=UNIT_COLUMNS) as table,
    ):
        create_region_table(table, tree)
        groups = _count(table, tree)
        _refuse_duplicates(table)
        drop_region_table(table)
    return PublicUnits(files=files, groups_by_region=groups, digest=units_digest(files))


def reopen_units(
    path: str, *, folder: Path, groups_by_region: NDArray[np.int64], digest: str
) -> PublicUnits:
    """Find a unit table again that `read_units` has checked, without checking its rows again.

    Raises:
        FileChanged: it is not the table that was checked.
        InputError: a file is missing or cannot be read.
    """
    files = find_table([path], label=_LABEL, folder=folder)
    if units_digest(files) != digest:
        raise FileChanged(table=_LABEL)
    return PublicUnits(files=files, groups_by_region=groups_by_region, digest=digest)


def units_digest(files: TableFiles) -> str:
    """SHA-256 of the unit table's files: their number, lengths and bytes.

    A digest of the rows that does not depend on their order would need either a sort of the
    whole table or a sum of hashes, which is easy to collide; bytes are read at disk speed.

    Raises:
        InputError: a file cannot be read, or has changed since it was found.
    """
    state = hashlib.sha256(b"pgsr units 1\n")
    feed_files(state, files)
    return state.hexdigest()


def placed_units(table: OpenTable, *, integer: bool) -> PreparedRows:
    """Prepare unit rows: unit as a comparable key, region, leaf number, and row if scanned."""
    region = table.key("region", integer=table.is_integer("region"))
    return PreparedRows(
        query=f"SELECT * FROM (SELECT * REPLACE ({table.key('unit', integer=integer)} AS unit, "
        f"{region} AS region) FROM ({{scan}})) "
        f"LEFT JOIN {REGIONS} ON region = {region_column(table)}",
        reads=(table.files,),
    )


def _count(table: OpenTable, tree: RegionTree) -> NDArray[np.int64]:
    prepared = placed_units(table, integer=table.is_integer("unit"))
    found = fetch_columns(
        table.connection,
        f"SELECT coalesce(leaf, -1) AS leaf, count(*) AS units, bit_or({flags(_RULES)}) AS flags "
        f"FROM ({prepared.of(table.scan())}) GROUP BY leaf",
        table.parameters,
        reads=prepared.reads,
    )
    if not len(found["leaf"]):
        raise EmptyTable(table=_LABEL)
    broken = int(np.bitwise_or.reduce(found["flags"]))
    refuse_broken(_RULES, broken, table=table, prepared=prepared)
    totals = np.zeros(tree.regions, dtype=np.int64)
    totals[found["leaf"]] = found["units"]
    return tree.aggregate(totals)


def _refuse_duplicates(table: OpenTable) -> None:
    prepared = placed_units(table, integer=table.is_integer("unit"))
    scan = prepared.of(table.scan())
    rows, distinct = execute(
        table.connection,
        f"SELECT count(*), count(DISTINCT unit) FROM ({scan})",
        table.parameters,
        reads=prepared.reads,
    )[0]
    if rows == distinct:
        return
    repeated = f"(SELECT unit FROM ({scan}) GROUP BY unit HAVING count(*) > 1)"
    raise_at_rows(
        DuplicateUnit,
        table=table,
        role="unit",
        prepared=prepared,
        condition=f"unit IN {repeated}",
        parameters=table.parameters,
    )
