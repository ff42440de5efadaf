"""Rules that each row must keep, checked by one flag a rule, and where they are broken.

The fast path carries one integer of flags a row through the grouping that is done anyway.
Counting offenders and finding their positions costs further passes, made only once a rule is
known to be broken.
"""

# ruff: noqa: S608 (the SQL is put together from roles, types and quoted names; values are bound)
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pgsr_core.errors import InputError
from pgsr_core.hierarchy import SHOWN_ROWS, RegionTree
from tasks.ingestion.errors import MissingValue, RegionNotALeaf, RowInFile, UnknownRegion
from tasks.ingestion.files import TableFiles
from tasks.ingestion.statements import execute
from tasks.ingestion.tables import OpenTable

REGIONS = "pgsr_regions"
_LARGEST_BIGINT = 2**63 - 1


@dataclass(frozen=True)
class RowRule:
    """One rule.

    Attributes:
        error: what to raise.
        role: which column is at fault.
        broken: SQL that is true for an offending row (null counts as kept).
    """

    error: type[InputError]
    role: str
    broken: str


def missing(role: str, value: str | None = None) -> RowRule:
    """Make the rule that a cell is filled."""
    return RowRule(MissingValue, role, f"{value or role} IS NULL")


REGION_RULES = (
    missing("region"),
    RowRule(UnknownRegion, "region", "region IS NOT NULL AND leaf IS NULL"),
    RowRule(RegionNotALeaf, "region", "NOT is_leaf"),
)


def flags(rules: Sequence[RowRule]) -> str:
    """Write the integer of which bit i says that rule i is broken."""
    bits = (
        f"(CASE WHEN {rule.broken} THEN {1 << bit} ELSE 0 END)" for bit, rule in enumerate(rules)
    )
    return f"CAST({' | '.join(bits)} AS INTEGER)"


def refuse_broken(
    rules: Sequence[RowRule], found: int, *, table: OpenTable, prepared: PreparedRows
) -> None:
    """Raise the error of the first rule whose bit is set, with the rows at fault."""
    for bit, rule in enumerate(rules):
        if found & (1 << bit):
            raise_at_rows(
                rule.error, table=table, role=rule.role, prepared=prepared, condition=rule.broken
            )


@dataclass(frozen=True)
class PreparedRows:
    """How rows of a scan are made ready for conditions: ``query`` with ``{scan}`` in it."""

    query: str
    reads: tuple[TableFiles, ...]

    def of(self, scan: str) -> str:
        """Write the query over a scan."""
        return self.query.replace("{scan}", scan)


def raise_at_rows(
    error: type[InputError],
    *,
    table: OpenTable,
    role: str,
    prepared: PreparedRows,
    condition: str,
    parameters: Mapping[str, Any] | None = None,
) -> NoReturn:
    """Raise an error with the number of rows that meet a condition and the first of them.

    Args:
        error: what to raise.
        table: the table at fault.
        role: the column at fault.
        prepared: how its rows are made ready for the condition.
        condition: SQL over the prepared rows.
        parameters: what the condition binds.
    """
    several = len(table.files.files) > 1
    positions: list[int] = []
    count = 0
    for file, scan, paths in table.numbered_scans():
        rows = execute(
            table.connection,
            f'SELECT count(*), min("row", {SHOWN_ROWS}) FROM ({prepared.of(scan)}) '
            f"WHERE {condition}",
            {**(parameters or {}), **paths},
            reads=prepared.reads,
        )
        found, first = rows[0]
        count += found
        positions += [RowInFile(row, file=file) if several else row for row in first or ()]
    raise error(
        table=table.files.label,
        column=table.columns[role],
        rows=tuple(positions[:SHOWN_ROWS]),
        count=count,
    )


def create_region_table(table: OpenTable, tree: RegionTree) -> None:
    """Put the regions where SQL can join them: name, number, and whether it is a leaf.

    ``code`` is the number that an integer column would hold for the name, if there is one.
    """
    execute(
        table.connection,
        f"CREATE OR REPLACE TEMP TABLE {REGIONS} AS SELECT "
        "unnest(CAST($names AS VARCHAR[])) AS name, unnest(CAST($codes AS BIGINT[])) AS code, "
        "unnest(CAST($numbers AS INTEGER[])) AS leaf, "
        "unnest(CAST($is_leaf AS BOOLEAN[])) AS is_leaf",
        {
            "names": list(tree.names),
            "codes": [_integer_id(name) for name in tree.names],
            "numbers": list(range(tree.regions)),
            "is_leaf": tree.is_leaf.tolist(),
        },
        reads=[table.files],
    )


def drop_region_table(table: OpenTable) -> None:
    """Drop what `create_region_table` made."""
    execute(table.connection, f"DROP TABLE IF EXISTS {REGIONS}", reads=[table.files])


def region_column(table: OpenTable) -> str:
    """Say which column of the region table the table's regions are compared with."""
    return "code" if table.is_integer("region") else "name"


def _integer_id(name: str) -> int | None:
    # Names that start with a sign are refused as formulas, so none is negative.
    if not (name.isascii() and name.isdigit() and len(name) <= len(str(_LARGEST_BIGINT))):
        return None
    value = int(name)
    return value if str(value) == name and value <= _LARGEST_BIGINT else None
