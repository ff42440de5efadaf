"""The region table, public input: (region, parent[, name]) or one column a level."""

# ruff: noqa: S608 (the SQL is put together from roles, types and quoted names; values are bound)
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pgsr_core.errors import InputError
from pgsr_core.hierarchy import SHOWN_ROWS, RegionTree
from tasks.configuration.model import LevelColumns
from tasks.ingestion.errors import EmptyTable, MissingValue, UnsafeName
from tasks.ingestion.files import find_table
from tasks.ingestion.names import is_safe_name
from tasks.ingestion.statements import execute
from tasks.ingestion.tables import open_table
from tasks.storage.duck import connect

_PARENT_COLUMNS = {"region": "region", "parent": "parent"}
_LABEL_COLUMN = {"label": "name"}

Cells = list[str | None]


@dataclass(frozen=True)
class RegionTable:
    """The tree and what its regions are called.

    Attributes:
        tree: the regions by id.
        labels: a readable name for each region, in the tree's order; empty where there is none.
    """

    tree: RegionTree
    labels: tuple[str, ...]


def read_regions(regions: str | LevelColumns, *, folder: Path) -> RegionTable:
    """Read a region table from CSV or Parquet.

    Args:
        regions: path of a table (region, parent[, name]), or how to read one column a level.
        folder: where relative paths start.

    Raises:
        InputError: which rule is broken, and in which rows.
    """
    if isinstance(regions, LevelColumns):
        return _from_levels(regions, folder)
    cells = _read(regions, _PARENT_COLUMNS, _LABEL_COLUMN, folder)
    ids = _filled(cells["region"], column="region")
    _refuse_unsafe(cells["region"], column="region")
    tree = RegionTree.from_table(ids, cells["parent"])
    if "label" not in cells:
        return RegionTable(tree=tree, labels=("",) * tree.regions)
    _refuse_unsafe(cells["label"], column=_LABEL_COLUMN["label"])
    label_of = dict(zip(ids, cells["label"], strict=True))
    return RegionTable(tree=tree, labels=tuple(label_of[name] or "" for name in tree.names))


def _from_levels(regions: LevelColumns, folder: Path) -> RegionTable:
    columns = {f"level{place}": name for place, name in enumerate(regions.columns)}
    cells = list(_read(regions.table, columns, {}, folder).values())
    for name, column in zip(regions.columns, cells, strict=True):
        _refuse_unsafe(column, column=name)
    _filled(cells[0], column=regions.columns[0])
    tree = RegionTree.from_columns(cells, root=regions.root)
    return RegionTable(tree=tree, labels=("",) * tree.regions)


def _read(
    path: str, columns: dict[str, str], optional: dict[str, str], folder: Path
) -> dict[str, Cells]:
    files = find_table([path], label="regions", folder=folder)
    with (
        connect(None, readable=files.readable) as connection,
        open_table(connection, files, columns=columns, optional=optional) as table,
    ):
        roles = list(table.columns)
        texts = ", ".join(table.key(role, integer=False) for role in roles)
        rows = [
            row
            for _, scan, paths in table.numbered_scans()
            for row in execute(
                connection, f'SELECT {texts} FROM ({scan}) ORDER BY "row"', paths, reads=[files]
            )
        ]
    if not rows:
        raise EmptyTable(table="regions")
    return {role: list(cells) for role, cells in zip(roles, zip(*rows, strict=True), strict=True)}


def _filled(cells: Sequence[str | None], *, column: str) -> list[str]:
    _refuse(MissingValue, [row for row, cell in enumerate(cells) if not cell], column=column)
    return [cell for cell in cells if cell]


def _refuse_unsafe(cells: Sequence[str | None], *, column: str) -> None:
    unsafe = [row for row, cell in enumerate(cells) if cell and not is_safe_name(cell)]
    _refuse(UnsafeName, unsafe, column=column)


def _refuse(error: type[InputError], rows: Sequence[int], *, column: str) -> None:
    if rows:
        shown = tuple(row + 1 for row in rows[:SHOWN_ROWS])
        raise error(table="regions", column=column, rows=shown, count=len(rows))
