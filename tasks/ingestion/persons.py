"""Person rows → unit sizes → counts of units per leaf region and size → all levels.

No rows at all are counted like any others: they are a neighbour of one row.

Two scans of the files. One counts persons and distinct persons. The other groups persons and
public units together by unit: sum of quantities, least and greatest region, and all flags of
broken rules at once; out of it comes the histogram without the unit sizes ever being stored.
Both groupings spill to disk under the connection's memory limit.
"""

# ruff: noqa: S608 (the SQL is put together from roles, types and quoted names; values are bound)
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from numpy.typing import NDArray

from pgsr_core.errors import InputError
from pgsr_core.hierarchy import RegionTree
from tasks.configuration.model import Sizes
from tasks.ingestion.errors import (
    DuplicatePerson,
    FileChanged,
    UnitInOtherRegion,
    UnitInTwoRegions,
    UnknownUnit,
)
from tasks.ingestion.files import TableFiles
from tasks.ingestion.quantities import cell, number, quantity_rules
from tasks.ingestion.rules import (
    REGION_RULES,
    REGIONS,
    PreparedRows,
    RowRule,
    create_region_table,
    drop_region_table,
    flags,
    missing,
    raise_at_rows,
    refuse_broken,
    region_column,
)
from tasks.ingestion.source_digest import SourceFiles
from tasks.ingestion.statements import execute, fetch_columns
from tasks.ingestion.tables import OpenTable, open_table
from tasks.ingestion.units import UNIT_COLUMNS, PublicUnits, placed_units

if TYPE_CHECKING:
    import duckdb

# Flags of a unit, above those of the row rules.
_IN_TABLE = 1 << 20
_TWO_REGIONS = 1 << 21
_NOT_IN_TABLE = 1 << 22

Progress = Callable[[str, int], None]


@dataclass(frozen=True)
class TrueSizes:
    """The truth. Confidential in every part.

    Attributes:
        counts: units of each size (columns: smallest size … N) in each region, all levels.
        groups: number of units: of the public table, or of non-empty ones in the data.
        top_coded: how many units are larger than N.
        rows: how many persons were read.
    """

    counts: NDArray[np.int64]
    groups: int
    top_coded: int
    rows: int


def ingest_persons(
    connection: duckdb.DuckDBPyConnection,
    source: SourceFiles,
    *,
    tree: RegionTree,
    units: PublicUnits | None,
    sizes: Sizes,
    progress: Progress = lambda _stage, _rows: None,
) -> TrueSizes:
    """Count the units of each size in each region.

    Args:
        connection: the confidential store, allowed to read ``source.readable`` and the unit
            table's; what is made in it is temporary and dropped at the end.
        source: where the persons are and which columns to take.
        tree: the regions.
        units: the checked public unit table: sizes are 0..N. None: sizes are 1..N, from data.
        sizes: N, and the most that a record may add.
        progress: told at the end of each stage how many rows it went through; for the
            operator's terminal alone.

    Raises:
        InputError: which rule is broken, and in which rows.
    """
    columns = source.columns
    roles = {"person": columns.person, "unit": columns.unit, "region": columns.region}
    if columns.quantity is not None:
        roles["quantity"] = columns.quantity
    with (
        open_table(connection, source.files, columns=roles) as persons,
        _open_units(connection, units) as unit_table,
    ):
        stage = _Stage(persons, unit_table, units, tree, sizes)
        create_region_table(persons, tree)
        try:
            rows = stage.check_ids()
            progress("person ids", rows)
            result = stage.count_sizes(rows)
            progress("unit sizes", rows)
        finally:
            drop_region_table(persons)
    source.files.refuse_change()
    return result


@contextmanager
def _open_units(
    connection: duckdb.DuckDBPyConnection, units: PublicUnits | None
) -> Iterator[OpenTable | None]:
    if units is None:
        yield None
        return
    with open_table(connection, units.files, columns=UNIT_COLUMNS) as table:
        yield table


@dataclass(frozen=True)
class _Stage:
    persons: OpenTable
    unit_table: OpenTable | None
    units: PublicUnits | None
    tree: RegionTree
    sizes: Sizes

    @property
    def _reads(self) -> tuple[TableFiles, ...]:
        if self.unit_table is None:
            return (self.persons.files,)
        return self.persons.files, self.unit_table.files

    @property
    def _unit_parameters(self) -> dict[str, list[str]]:
        return {} if self.unit_table is None else self.unit_table.parameters

    @property
    def _parameters(self) -> dict[str, list[str]]:
        return self.persons.parameters | self._unit_parameters

    @property
    def _integer_units(self) -> bool:
        return self.persons.is_integer("unit") and (
            self.unit_table is None or self.unit_table.is_integer("unit")
        )

    @property
    def _rules(self) -> tuple[RowRule, ...]:
        return (
            missing("person"),
            missing("unit"),
            *REGION_RULES,
            *quantity_rules(self.persons.types.get("quantity"), self.sizes.largest_contribution),
        )

    @property
    def _prepared(self) -> PreparedRows:
        """Rows with ids as keys, ``leaf``, ``quantity`` as a number and ``amount`` to add."""
        table = self.persons
        values = {
            "person": table.key("person", integer=table.is_integer("person")),
            "unit": table.key("unit", integer=self._integer_units),
            "region": table.key("region", integer=table.is_integer("region")),
        }
        read_cell, amount = "NULL", "1"
        if "quantity" in table.types:
            read_cell = cell(table.types["quantity"])
            amount = "TRY_CAST(quantity AS BIGINT)"
            values["quantity"] = number(table.types["quantity"])
        replaced = ", ".join(f"{value} AS {role}" for role, value in values.items())
        return PreparedRows(
            query=f"SELECT *, {amount} AS amount FROM (SELECT * REPLACE ({replaced}) FROM "
            f"(SELECT *, {read_cell} AS cell FROM ({{scan}}))) "
            f"LEFT JOIN {REGIONS} ON region = {region_column(table)}",
            reads=self._reads,
        )

    def check_ids(self) -> int:
        """Count the persons, each of whom must have one row."""
        table = self.persons
        person = table.key("person", integer=table.is_integer("person"))
        ids = f"SELECT {person} AS person FROM ({table.scan()})"
        rows, filled, distinct = execute(
            table.connection,
            f"SELECT count(*), count(person), count(DISTINCT person) FROM ({ids})",
            table.parameters,
            reads=self._reads,
        )[0]
        if filled != distinct:
            repeated = f"SELECT person FROM ({ids}) GROUP BY person HAVING count(*) > 1"
            self._refuse(DuplicatePerson, "person", f"person IN ({repeated})", table.parameters)
        return int(rows)

    def count_sizes(self, rows: int) -> TrueSizes:
        """Group by unit, refuse what is broken, and lay the histogram out over the tree."""
        found = fetch_columns(
            self.persons.connection,
            self._histogram(),
            self._parameters,
            reads=self._reads,
        )
        broken = int(np.bitwise_or.reduce(found["flags"]))
        refuse_broken(self._rules, broken, table=self.persons, prepared=self._prepared)
        self._refuse_misplaced(broken)

        smallest = 1 if self.units is None else 0
        counted = found["size"] >= smallest
        leaf, size = found["leaf"][counted], found["size"][counted]
        counts = np.zeros((self.tree.regions, self.sizes.max + 1 - smallest), dtype=np.int64)
        counts[leaf, size - smallest] = found["units"][counted]
        self.tree.aggregate(counts)
        groups = int(counts[0].sum())
        if self.units is not None and not np.array_equal(
            counts.sum(axis=1), self.units.groups_by_region
        ):
            raise FileChanged(table=self.units.files.label)
        return TrueSizes(
            counts=counts, groups=groups, top_coded=int(found["top_coded"].sum()), rows=rows
        )

    def _histogram(self) -> str:
        """Write the query (leaf, size, units, top_coded, flags): one grouping for everything.

        Unit rows join the grouping as members that add nothing, so that empty units, units
        missing from the table and regions that disagree all show without a join of two large
        tables.
        """
        scan = self._prepared.of(self.persons.scan())
        members = f"SELECT unit, leaf, amount, {flags(self._rules)} AS flags FROM ({scan})"
        unlisted = "0"
        if self.unit_table is not None:
            members += f" UNION ALL SELECT unit, leaf, 0, {_IN_TABLE} FROM ({self._placed_units()})"
            unlisted = f"CASE WHEN bit_or(flags) & {_IN_TABLE} = 0 THEN {_NOT_IN_TABLE} ELSE 0 END"
        units = (
            "SELECT min(leaf) AS leaf, coalesce(sum(amount), 0) AS total, bit_or(flags) "
            f"| {unlisted} | CASE WHEN min(leaf) <> max(leaf) THEN {_TWO_REGIONS} ELSE 0 END "
            f"AS flags FROM ({members}) GROUP BY unit"
        )
        largest = int(self.sizes.max)
        return (
            "SELECT coalesce(leaf, -1) AS leaf, "
            f"CAST(greatest(least(total, {largest}), 0) AS BIGINT) AS size, count(*) AS units, "
            f"count_if(total > {largest}) AS top_coded, bit_or(flags) AS flags "
            f"FROM ({units}) GROUP BY ALL"
        )

    def _placed_units(self) -> str:
        if self.unit_table is None:
            return ""
        prepared = placed_units(self.unit_table, integer=self._integer_units)
        return prepared.of(self.unit_table.scan())

    def _refuse_misplaced(self, broken: int) -> None:
        """Refuse units that are unlisted or lie in two regions, by the persons or the table."""
        if broken & _NOT_IN_TABLE:
            listed = f"SELECT unit FROM ({self._placed_units()})"
            self._refuse(UnknownUnit, "unit", f"unit NOT IN ({listed})", self._unit_parameters)
        if not broken & _TWO_REGIONS:
            return
        split = (
            f"SELECT unit FROM ({self._prepared.of(self.persons.scan())}) "
            "GROUP BY unit HAVING min(leaf) <> max(leaf)"
        )
        parameters = self.persons.parameters
        [(units,)] = execute(
            self.persons.connection,
            f"SELECT count(*) FROM ({split})",
            parameters,
            reads=self._reads,
        )
        if units:
            self._refuse(UnitInTwoRegions, "region", f"unit IN ({split})", parameters)
        agreed = f"SELECT unit, leaf FROM ({self._placed_units()})"
        self._refuse(
            UnitInOtherRegion, "region", f"(unit, leaf) NOT IN ({agreed})", self._unit_parameters
        )

    def _refuse(
        self, error: type[InputError], role: str, condition: str, parameters: dict[str, list[str]]
    ) -> NoReturn:
        raise_at_rows(
            error,
            table=self.persons,
            role=role,
            prepared=self._prepared,
            condition=condition,
            parameters=parameters,
        )
