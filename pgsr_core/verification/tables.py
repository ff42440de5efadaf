"""Reading a bundle's tables, Parquet or CSV, into a tree and integer matrices, in batches."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.limits import MOST_CELLS, MOST_REGIONS
from pgsr_core.margins import BOUNDS, HALF_WIDTHS, MARGINS, MARGINS_BY_LEVEL
from pgsr_core.scales import float_at_least
from pgsr_core.verification.parquet_shape import TooLarge, refuse_by_shape

Int = NDArray[np.int64]
# A table may take so much memory whatever its file, and more in proportion to the file: noise and
# counts do not compress without end, and a small file must not cost gigabytes.
FREE_MEMORY = 400_000_000
FREE_TEXT = 64_000_000
MEMORY_A_BYTE = 256
_FEW_REGIONS, REGIONS_A_BYTE = 1000, 4  # each has a name of its own
_ROWS_A_BATCH = 1 << 18
_LONGEST_HEADER = 1 << 10
_BYTES_A_BLOCK = 1 << 24

TEXT, WHOLE, REAL = "text", "whole", "real"
REGIONS_COLUMNS = {"region": TEXT, "parent": TEXT, "level": WHOLE, "name": TEXT, "groups": WHOLE}
COUNTS_COLUMNS = {"level": WHOLE, "region": TEXT, "size": WHOLE, "count": WHOLE}
MEASURED_COLUMNS = {"level": WHOLE, "region": TEXT, "size": WHOLE, "value": WHOLE, "scale": REAL}
MARGINS_COLUMNS = {
    **{"level": WHOLE, "region": TEXT, "size": WHOLE},
    **dict.fromkeys(BOUNDS, WHOLE),
}
TYPICAL_COLUMNS = {"level": WHOLE, "size": WHOLE, **dict.fromkeys(HALF_WIDTHS, WHOLE)}
_ARROW_TYPES = {
    TEXT: pa.dictionary(pa.int32(), pa.string()),
    WHOLE: pa.int64(),
    REAL: pa.float64(),
}


class TableProblem(Exception):
    """A table breaks a rule.

    Attributes:
        rule: "integrality" (it can be read, and has whole numbers in the published columns),
            "completeness" (one row for every region and size) or "scales".
    """

    def __init__(self, rule: str, sentence: str) -> None:
        self.rule = rule
        super().__init__(sentence)


@dataclass(frozen=True)
class Grid:
    """Where the cells of a table belong.

    Attributes:
        tree: row i of a matrix is its region i.
        sizes: the columns of a matrix.
    """

    tree: RegionTree
    sizes: range

    @property
    def cells(self) -> int:
        """How many cells, hence rows of a file, there must be."""
        return self.tree.regions * len(self.sizes)


@dataclass(frozen=True)
class RegionRows:
    """The region table as it stands in a file."""

    regions: tuple[str | None, ...]
    parents: tuple[str | None, ...]
    levels: tuple[int | None, ...]
    names: tuple[str | None, ...]
    groups: tuple[int | None, ...]


class Reader(Protocol):
    """Reads one file of a table into an array."""

    def __call__(self, stream: BinaryIO, grid: Grid, *, file: str) -> Int: ...


def read_region_rows(stream: BinaryIO, *, regions: int, file: str) -> RegionRows:
    """Read the region table, which has at most so many rows.

    Raises:
        TableProblem: it cannot be read, or has other columns.
    """
    columns: dict[str, list[Any]] = {name: [] for name in REGIONS_COLUMNS}
    with _as_table_problem(file):
        size = _size(stream)
        if regions > min(MOST_REGIONS, _FEW_REGIONS + REGIONS_A_BYTE * size):
            raise TableProblem("completeness", f"{file} is too small for {regions} regions")
        kept = FREE_TEXT + MEMORY_A_BYTE * size
        _refuse_by_shape(stream, file, rows=regions, exactly=False, unpacked=kept)
        for batch in _batches(stream, REGIONS_COLUMNS, file=file, at_most=regions):
            for name, cells in columns.items():
                cells.extend(_values(batch.column(name)))
    return RegionRows(
        regions=tuple(columns["region"]),
        parents=tuple(columns["parent"]),
        levels=tuple(columns["level"]),
        names=tuple(columns["name"]),
        groups=tuple(columns["groups"]),
    )


def read_counts(stream: BinaryIO, grid: Grid, *, file: str) -> Int:
    """Read the released counts into (regions × sizes).

    Raises:
        TableProblem: it cannot be read, or cells are missing, extra or twice.
    """
    with _as_table_problem(file):
        matrix = _Matrix(grid, file, stream)
        for batch in _batches(stream, COUNTS_COLUMNS, file=file, at_most=grid.cells):
            matrix.put(batch, "count")
        return matrix.first()


def read_margins(stream: BinaryIO, grid: Grid, *, file: str) -> Int:
    """Read the margins of every cell into (bounds × regions × sizes).

    Raises:
        TableProblem: it cannot be read, or cells are missing, extra or twice.
    """
    with _as_table_problem(file):
        matrix = _Matrix(grid, file, stream, values=len(BOUNDS))
        for batch in _batches(stream, MARGINS_COLUMNS, file=file, at_most=grid.cells):
            matrix.put(batch, *BOUNDS)
        return matrix.finish()


def read_typical_margins(stream: BinaryIO, grid: Grid, *, file: str) -> Int:
    """Read the typical margins into (half-widths × levels × sizes).

    Raises:
        TableProblem: it cannot be read, or rows are missing, extra or twice.
    """
    with _as_table_problem(file):
        matrix = _Matrix(grid, file, stream, values=len(HALF_WIDTHS), by_level=True)
        for batch in _batches(stream, TYPICAL_COLUMNS, file=file, at_most=grid.cells):
            matrix.put(batch, *HALF_WIDTHS)
        return matrix.finish()


MARGIN_READERS: Mapping[str, Reader] = MappingProxyType(
    {MARGINS: read_margins, MARGINS_BY_LEVEL: read_typical_margins}
)


def read_measurements(
    stream: BinaryIO, grid: Grid, scales: Sequence[Fraction], *, file: str
) -> Int:
    """Read the measurements into (regions × sizes), and hold their scales against the claim.

    Args:
        stream: the file.
        grid: where the cells belong.
        scales: of each level, root first.
        file: its name.

    Raises:
        TableProblem: it cannot be read, cells are missing, extra or twice, or a scale is not
            the one of its level.
    """
    with _as_table_problem(file):
        matrix = _Matrix(grid, file, stream)
        # The exact scale is in privacy.json; a float is the nearest one, or the next above,
        # which is what a sampler that takes floats uses.
        nearest = np.array([float(scale) for scale in scales])
        above = np.array([float_at_least(scale) for scale in scales])
        for batch in _batches(stream, MEASURED_COLUMNS, file=file, at_most=grid.cells):
            levels = matrix.put(batch, "value")
            found = _view(batch.column("scale"))
            if not np.all((found == nearest[levels]) | (found == above[levels])):
                raise TableProblem("scales", f"{file} has a scale that is not its level's")
        return matrix.first()


class _Matrix:
    """Fills a stack of matrices batch by batch; every cell must come from exactly one row."""

    def __init__(
        self,
        grid: Grid,
        file: str,
        stream: BinaryIO,
        *,
        values: int = 1,
        by_level: bool = False,
    ) -> None:
        rows = grid.tree.levels if by_level else grid.tree.regions
        cells = rows * len(grid.sizes)
        memory = cells * values * np.dtype(np.int64).itemsize
        if cells > MOST_CELLS or memory > FREE_MEMORY + MEMORY_A_BYTE * _size(stream):
            raise TableProblem("completeness", f"{file} is too small for a table of {cells} cells")
        _refuse_by_shape(stream, file, rows=cells, exactly=True)
        self._grid = grid
        self._file = file
        self._by_level = by_level
        self._values = np.zeros((values, rows, len(grid.sizes)), dtype=np.int64)
        self._seen = np.zeros(rows * len(grid.sizes), dtype=np.bool_)
        self._rows = 0

    def put(self, batch: Any, *columns: str) -> Int:
        """Take in a batch; return the level, from 0, of each of its rows."""
        tree, sizes = self._grid.tree, self._grid.sizes
        if any(cells.null_count for cells in batch.columns):
            raise TableProblem("completeness", f"{self._file} has an empty cell")
        levels = _integers(batch, "level") - 1
        row = levels if self._by_level else _region_numbers(batch.column("region"), tree.index)
        size = _integers(batch, "size")
        unknown = (row < 0) | (row >= self._values.shape[1])
        if np.any(unknown | (size < sizes.start) | (size >= sizes.stop)):
            raise TableProblem(
                "completeness", f"{self._file} has a row for an unknown region or size"
            )
        if not self._by_level and not np.array_equal(levels, tree.level[row]):
            raise TableProblem("completeness", f"{self._file} has a region at another level")
        cell = row * len(sizes) + (size - sizes.start)
        for matrix, column in zip(self._values, columns, strict=True):
            matrix.reshape(-1)[cell] = _integers(batch, column)
        self._seen[cell] = True
        self._rows += batch.num_rows
        return levels

    def finish(self) -> Int:
        """Return the stack once it is complete."""
        # As many rows as cells and every cell seen: each stands in exactly one row.
        if self._rows != self._seen.size or not self._seen.all():
            raise TableProblem(
                "completeness", f"{self._file} lacks the row of a cell, or has one twice"
            )
        return self._values

    def first(self) -> Int:
        """Return the only matrix of a stack of one."""
        values: Int = self.finish()[0]
        return values


def _size(stream: BinaryIO) -> int:
    size = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    return size


def _refuse_by_shape(
    stream: BinaryIO, file: str, *, rows: int, exactly: bool, unpacked: int | None = None
) -> None:
    if not file.endswith(".parquet"):
        return
    try:
        refuse_by_shape(stream, rows=rows, exactly=exactly, unpacked=unpacked, file=file)
    except TooLarge as problem:
        raise TableProblem("completeness", str(problem)) from None


def _values(cells: Any) -> list[Any]:
    """A column as Python values; a text that is repeated is one object."""
    if not pa.types.is_dictionary(cells.type):
        values: list[Any] = cells.to_pylist()
        return values
    names = cells.dictionary.to_pylist()
    return [None if place is None else names[place] for place in cells.indices.to_pylist()]


def _region_numbers(column: Any, index: Mapping[str, int]) -> Int:
    """Look the few different names of a batch up, instead of every row's."""
    names = column.dictionary.to_pylist()
    numbers = np.array([index.get(name, -1) for name in names], dtype=np.int64)
    found: Int = numbers[_view(column.indices)]
    return found


def _integers(batch: Any, column: str) -> Int:
    values: Int = _view(batch.column(column)).astype(np.int64, copy=False)
    return values


def _view(cells: Any) -> NDArray[Any]:
    """See a column without empty cells as an array; unlike to_numpy this imports no pandas."""
    return np.from_dlpack(cells) if len(cells) else np.empty(0, dtype=np.int64)


def _batches(
    stream: BinaryIO, columns: Mapping[str, str], *, file: str, at_most: int
) -> Iterator[Any]:
    """Yield batches of the published columns; never more rows in all than expected."""
    rows = 0
    source = _parquet if file.endswith(".parquet") else _csv
    for batch in source(stream, columns, file):
        rows += batch.num_rows
        if rows > at_most:
            raise TableProblem("completeness", f"{file} has more rows than it should")
        yield batch


@contextmanager
def _as_table_problem(file: str) -> Iterator[None]:
    """Turn whatever a damaged file causes in the reader into one sentence that quotes nothing."""
    try:
        yield
    except MemoryError:
        raise TableProblem("completeness", f"{file} does not fit into memory") from None
    except (pa.ArrowException, OSError, ValueError, TypeError, ArithmeticError, LookupError):
        raise TableProblem(
            "integrality", f"{file} cannot be read as a table with whole numbers in it"
        ) from None


def _parquet(stream: BinaryIO, columns: Mapping[str, str], file: str) -> Iterator[Any]:
    texts = [name for name, kind in columns.items() if kind == TEXT]
    with pq.ParquetFile(stream, read_dictionary=texts) as parquet:
        _refuse_other_columns(parquet.schema_arrow, columns, file)
        for batch in parquet.iter_batches(batch_size=_ROWS_A_BATCH):
            # A column chunk may come without a dictionary, whatever was asked for.
            yield pa.RecordBatch.from_arrays(
                [
                    cells.dictionary_encode() if _is_plain_text(cells) else cells
                    for cells in batch.columns
                ],
                names=batch.schema.names,
            )


def _is_plain_text(cells: Any) -> bool:
    return bool(pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type))


def _csv(stream: BinaryIO, columns: Mapping[str, str], file: str) -> Iterator[Any]:
    # Whatever is in the first line would be a column, with buffers of its own.
    header = stream.read(_LONGEST_HEADER).partition(b"\n")[0].rstrip(b"\r")
    if header.replace(b'"', b"") != ",".join(columns).encode():
        raise TableProblem("integrality", f"{file} has other columns than published ones")
    stream.seek(0)
    with pa_csv.open_csv(
        stream,
        read_options=pa_csv.ReadOptions(block_size=_BYTES_A_BLOCK, use_threads=False),
        convert_options=pa_csv.ConvertOptions(
            column_types={name: _ARROW_TYPES[kind] for name, kind in columns.items()},
            # An empty cell is missing; a quoted empty text is a text, and "NA" a fine name.
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    ) as reader:
        _refuse_other_columns(reader.schema, columns, file)
        yield from reader


def _refuse_other_columns(schema: Any, columns: Mapping[str, str], file: str) -> None:
    if schema.names != list(columns):
        raise TableProblem("integrality", f"{file} has other columns than published ones")
    fits = {
        TEXT: lambda kind: pa.types.is_dictionary(kind) or pa.types.is_string(kind),
        WHOLE: pa.types.is_signed_integer,  # unsigned ones may not fit into 64 bits with a sign
        REAL: pa.types.is_floating,
    }
    for name, kind in columns.items():
        if not fits[kind](schema.field(name).type):
            raise TableProblem("integrality", f"{file} has a column {name} of another type")
