"""Tables of a run in DuckDB: matrices by region or level and size, the regions, the stages done.

A stage's table and the record that it is done are written in one transaction, so a killed run
has either both or neither. Every read is checked against the recorded digest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pgsr_core.canonical import table_digest
from pgsr_core.errors import Refused
from pgsr_core.hierarchy import RegionTree
from pgsr_core.margins import BOUNDS, HALF_WIDTHS, MARGINS, MARGINS_BY_LEVEL

if TYPE_CHECKING:
    import duckdb

Int = NDArray[np.int64]
CELLS_A_WRITE = 4_000_000
ROWS_A_READ = 1_000_000
TABLE_NAME = re.compile(r"[a-z][a-z_]{0,62}")


class TableTampered(Refused):
    """A stored table is not what the stage that made it recorded; the run stops."""

    def __init__(self, table: str) -> None:
        self.table = table
        super().__init__(
            f"the stored table {table} does not match its recorded digest; nothing is computed "
            "from it. Remedy: restore the run's files from a backup, or delete its safe.duckdb "
            "and run pgsr release again: the tables are rebuilt from the ledger's measurements."
        )


@dataclass(frozen=True)
class TableRef:
    """What travels between tasks instead of data: a table's name and its digest."""

    table: str
    digest: str


@dataclass(frozen=True)
class StageRecord:
    """What a finished stage left: its output, what it was computed from, and its evidence."""

    stage: str
    output: TableRef
    inputs: str
    certificate: Mapping[str, Any]


@dataclass(frozen=True)
class Layout:
    """The columns of a table in DuckDB: a row number, a size, and what stands in each cell.

    Attributes:
        values: one column for each matrix of a stack.
        by_level: whether a row of a matrix is a level, not a region.
    """

    values: tuple[str, ...] = ("value",)
    by_level: bool = False

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Names and types, in order."""
        rows = "level_index" if self.by_level else "region_index"
        return [(rows, "INTEGER"), ("size", "INTEGER"), *((name, "BIGINT") for name in self.values)]


MATRIX = Layout()
# All other tables are plain matrices.
LAYOUTS = {MARGINS: Layout(BOUNDS), MARGINS_BY_LEVEL: Layout(HALF_WIDTHS, by_level=True)}


class MatrixStore:
    """The (regions × sizes) tables of one database of a run.

    A table of several values a cell is a stack of matrices: its arrays have one more dimension,
    the first.

    Args:
        connection: an open database.
        tree: the run's region tree; row i of a matrix is its region i.
        key: for the confidential store: digests are keyed, so that even they tell nothing.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, tree: RegionTree, *, key: bytes | None = None
    ) -> None:
        self._connection = connection
        self._tree = tree
        self._key = key

    def write(
        self,
        stage: str,
        table: str,
        values: Int,
        *,
        sizes: range,
        inputs: str,
        certificate: Mapping[str, Any] | None = None,
    ) -> TableRef:
        """Store a stage's matrix and the record that it is done, together."""
        ref = TableRef(table, self.digest(table, values, sizes=sizes))
        record = StageRecord(stage, ref, inputs, certificate or {})
        self._connection.begin()
        try:
            self._write_matrix(table, values, sizes)
            self._write_record(record)
            self._connection.commit()
        except BaseException:
            with suppress(Exception):  # a commit that failed has ended its transaction itself
                self._connection.rollback()
            raise
        return ref

    def read(self, ref: TableRef, *, sizes: range) -> Int:
        """Read a matrix and check it against its digest.

        Raises:
            TableTampered: rows are missing, extra, out of range or changed.
        """
        try:
            values = self._read_matrix(_plain(ref.table), sizes)
        except Exception:
            # Whatever is wrong with the rows (types, nulls, ranges), they are not what was written.
            raise TableTampered(ref.table) from None
        if self.digest(ref.table, values, sizes=sizes) != ref.digest:
            raise TableTampered(ref.table)
        return values

    def _read_matrix(self, name: str, sizes: range) -> Int:
        """Place every row in its cell; anything but one row a cell is an error."""
        layout = LAYOUTS.get(name, MATRIX)
        height = self._tree.levels if layout.by_level else self._tree.regions
        seen = np.zeros((height, len(sizes)), dtype=np.bool_)
        values = np.zeros((len(layout.values), *seen.shape), dtype=np.int64)
        rows = 0
        relation = self._connection.sql(f"SELECT * FROM {name}")  # noqa: S608 (checked)
        # Only these: a fraction would be cut, and another column would be read by others.
        if list(zip(relation.columns, map(str, relation.types), strict=True)) != layout.columns:
            raise ValueError("columns")
        for batch in relation.to_arrow_reader(ROWS_A_READ):
            regions, columns, *stack = (column.to_numpy() for column in batch.columns)
            places = columns - sizes.start
            # A negative index would count from the end.
            if min(regions.min(), places.min()) < 0:
                raise ValueError("range")
            for matrix, cells in zip(values, stack, strict=True):
                matrix[regions, places] = cells
            seen[regions, places] = True
            rows += len(regions)
        # As many rows as cells and every cell seen: each stands in exactly one row.
        if rows != seen.size or not seen.all():
            raise ValueError("rows")
        return values if len(layout.values) > 1 else values[0]

    def digest(self, table: str, values: Int, *, sizes: range) -> str:
        """The digest under which a matrix is recorded."""
        return table_digest(
            values, table=table, tree_digest=self._tree.digest, sizes=sizes, key=self._key
        )

    def record(self, stage: str) -> StageRecord | None:
        """The record of a finished stage, or None.

        Raises:
            TableTampered: the record is not one that a stage wrote.
        """
        import duckdb

        try:
            rows = self._connection.execute(
                "SELECT output, digest, inputs, certificate FROM stages WHERE stage = $stage",
                {"stage": stage},
            ).fetchall()
            if not rows:
                return None
            output, digest, inputs, certificate = rows[0]
            facts = dict(json.loads(certificate))
        except duckdb.CatalogException:  # no table of stages: none was finished here
            return None
        except Exception:
            raise TableTampered("stages") from None
        return StageRecord(stage, TableRef(output, digest), inputs, facts)

    def finished(self, stage: str, *, inputs: str) -> TableRef | None:
        """The output of a stage that was already computed from these inputs, or None."""
        record = self.record(stage)
        return record.output if record is not None and record.inputs == inputs else None

    def _write_matrix(self, table: str, values: Int, sizes: range) -> None:
        import pyarrow as pa

        name, layout = _plain(table), LAYOUTS.get(table, MATRIX)
        stack = values if len(layout.values) > 1 else values[np.newaxis]
        declared = ", ".join(f"{column} {kind} NOT NULL" for column, kind in layout.columns)
        self._connection.execute(f"CREATE OR REPLACE TABLE {name} ({declared})")
        step = max(1, CELLS_A_WRITE // max(1, stack.shape[0] * len(sizes)))
        columns = np.arange(sizes.start, sizes.stop, dtype=np.int32)
        for start in range(0, stack.shape[1], step):
            block = stack[:, start : start + step]
            regions = np.arange(start, start + block.shape[1], dtype=np.int32)
            keys = [np.repeat(regions, len(sizes)), np.tile(columns, block.shape[1])]
            cells = [np.ascontiguousarray(matrix).ravel() for matrix in block]
            frame = pa.table([*keys, *cells], names=[column for column, _ in layout.columns])
            self._connection.register("incoming", frame)
            self._connection.execute(f"INSERT INTO {name} SELECT * FROM incoming")  # noqa: S608 (checked)
            self._connection.unregister("incoming")

    def _write_record(self, record: StageRecord) -> None:
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS stages (stage VARCHAR PRIMARY KEY, output VARCHAR NOT NULL,"
            " digest VARCHAR NOT NULL, inputs VARCHAR NOT NULL, certificate VARCHAR NOT NULL)"
        )
        self._connection.execute(
            "INSERT OR REPLACE INTO stages "
            "VALUES ($stage, $output, $digest, $inputs, $certificate)",
            {
                "stage": record.stage,
                "output": record.output.table,
                "digest": record.output.digest,
                "inputs": record.inputs,
                "certificate": json.dumps(dict(record.certificate), sort_keys=True),
            },
        )


def write_regions(
    connection: duckdb.DuckDBPyConnection,
    tree: RegionTree,
    labels: tuple[str, ...],
    groups_by_region: Int | None,
) -> None:
    """Store the public region table in tree order."""
    import pyarrow as pa

    parents = [None if index < 0 else tree.names[index] for index in tree.parent]
    groups = [None] * tree.regions if groups_by_region is None else groups_by_region.tolist()
    frame = pa.table(
        {
            "region_index": pa.array(range(tree.regions), pa.int32()),
            "region": pa.array(tree.names, pa.string()),
            "parent": pa.array(parents, pa.string()),
            "level": pa.array(tree.level + 1, pa.int32()),
            "name": pa.array(labels, pa.string()),
            "groups": pa.array(groups, pa.int64()),
        }
    )
    connection.register("incoming", frame)
    connection.execute("CREATE OR REPLACE TABLE regions AS SELECT * FROM incoming")
    connection.unregister("incoming")


def read_regions_table(connection: duckdb.DuckDBPyConnection) -> tuple[RegionTree, Int | None]:
    """Rebuild the tree, and the public number of groups of each region where there is one.

    Raises:
        TableTampered: the rows are no tree in its order, or the groups do not add up.
    """
    try:
        return _read_regions(connection)
    except Exception:
        raise TableTampered("regions") from None


def _read_regions(connection: duckdb.DuckDBPyConnection) -> tuple[RegionTree, Int | None]:
    rows = connection.execute(
        "SELECT region, parent, groups FROM regions ORDER BY region_index"
    ).fetchall()
    tree = RegionTree.from_table([row[0] for row in rows], [row[1] for row in rows])
    if tree.names != tuple(row[0] for row in rows):
        raise ValueError("order")
    if all(row[2] is None for row in rows):
        return tree, None
    if not all(isinstance(row[2], int) for row in rows):
        raise ValueError("groups")
    groups = np.array([row[2] for row in rows], dtype=np.int64)
    if (groups < 0).any() or (tree.children_sums(groups) != groups).any():
        raise ValueError("sums")
    return tree, groups


def _plain(table: str) -> str:
    if not TABLE_NAME.fullmatch(table):
        raise ValueError(f"not a table name of a run: {table!r}")
    return table
