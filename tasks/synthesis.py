"""Synthetic populations on disk: Parquet in parts, the public tables and a configuration."""

from __future__ import annotations

import csv
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray

from pgsr_core.errors import PgsrError
from pgsr_core.synthesis.histograms import population_of_cells
from pgsr_core.synthesis.identifiers import Scatter
from pgsr_core.synthesis.options import HistogramError, check_range
from pgsr_core.synthesis.populations import (
    IDS_STREAM,
    ORDER_STREAM,
    CountedPopulation,
    Population,
    generator_of,
)
from pgsr_core.synthesis.regions import RegionTable
from tasks.storage.places import BESIDE
from tasks.storage.zones import Home

Int = NDArray[np.int64]
Progress = Callable[[int, int], None]

ROWS_PER_PART = 5_000_000
MOST_ROWS_PER_PART = 50_000_000
MOST_PARTS = 100_000
CONFIGURATION = "product.yaml"
PERSONS, UNITS, REGIONS = "persons", "units", "regions.csv"
HEADER = """\
# A synthetic population: nobody in it exists. Paths are relative to this file.
# Try it with: pgsr check product.yaml, then pgsr release product.yaml
# Its releases and their ledger are kept in the folder .pgsr beside this file.
"""


class OutputNotEmpty(PgsrError):
    """The folder to write to holds something; nothing was touched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(
            f"{folder} is not an empty folder, and nothing is ever overwritten. "
            "Remedy: name a new folder, or remove this one first."
        )


class OutputNotWritable(PgsrError):
    """The folder cannot be made or filled."""

    def __init__(self, folder: Path, reason: str) -> None:
        self.folder = folder
        self.reason = reason
        super().__init__(
            f"{folder} cannot be written: {reason}. "
            "Remedy: choose a folder on a disk with room that you may write to."
        )


class HistogramNotReadable(PgsrError):
    """There is no such file, or it may not be read."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"the histogram {path} cannot be read: {reason}. "
            "Remedy: give the path of a CSV file, or its name in the folder PGSR_DATA."
        )


@dataclass(frozen=True)
class Product:
    """What the configuration says about the population, besides what follows from it."""

    product: str
    population: str
    unit_of_privacy: str


@dataclass(frozen=True)
class Written:
    """What was written, and where."""

    folder: Path
    configuration: Path
    people: int
    units: int
    empty_units: int
    regions: int
    leaves: int
    max_size: int
    person_parts: int
    unit_parts: int


def write_population(
    population: Population,
    folder: Path,
    *,
    product: Product,
    rows_per_part: int = ROWS_PER_PART,
    progress: Progress | None = None,
) -> Written:
    """Write persons, units, regions and a configuration into a new or empty folder.

    An example has a state folder of its own beside its configuration: it shares no budget with
    anything else of this user, and can be made and thrown away any number of times.

    Memory is bounded by one part and one block, whatever the number of people. The set of
    rows depends on the population alone; rows_per_part only changes how they are filed. The
    configuration is written last: a folder without one is not finished.

    Args:
        population: what to write.
        folder: made if absent; must be empty.
        product: names for the configuration.
        rows_per_part: rows of each Parquet file but the last.
        progress: called with rows done and rows in all.

    Raises:
        BadOption: the size of the parts is out of range.
        OutputNotEmpty: there is something in the folder.
        OutputNotWritable: the disk refuses.
    """
    check_range("rows-per-part", rows_per_part, lowest=1, highest=MOST_ROWS_PER_PART)
    check_range(
        "rows-per-part: number of parts",
        -(-population.people // rows_per_part),
        lowest=0,
        highest=MOST_PARTS,
    )
    with _fresh(folder):
        _write_regions(population.regions, folder / REGIONS)
        persons = _Parts(
            folder / PERSONS,
            _PersonTables(population, ids=_scatter(population)),
            rows_per_part=rows_per_part,
        )
        units = _Parts(folder / UNITS, _UnitTables(population.regions), rows_per_part=rows_per_part)
        empty = 0
        for block in population.blocks():
            unit_ids = np.arange(units.written, units.written + block.sizes.size) + 1
            units.add(unit_ids, block.leaf)
            persons.add(np.repeat(unit_ids, block.sizes), block.leaf)
            empty += int(np.count_nonzero(block.sizes == 0))
            if progress is not None:
                progress(persons.written, population.people)
        persons.close()
        units.close()
        units_pattern = _one_file_if_enough(folder / UNITS, parts=units.parts)
        Home(folder.absolute() / BESIDE).create_for_example(product.population)
        text = configuration_text(product, max_size=population.max_size, units=units_pattern)
        (folder / CONFIGURATION).write_text(text, encoding="utf-8")
    return Written(
        folder=folder,
        configuration=folder / CONFIGURATION,
        people=persons.written,
        units=units.written,
        empty_units=empty,
        regions=len(population.regions.ids),
        leaves=len(population.regions.leaf_ids),
        max_size=population.max_size,
        person_parts=persons.parts,
        unit_parts=units.parts,
    )


def configuration_text(product: Product, *, max_size: int, units: str) -> str:
    """Return the product's configuration, ready to be released from the folder it lies in."""
    content: dict[str, Any] = {
        "product": product.product,
        "release": "synthetic-1",
        "population": {
            "name": product.population,
            "budget": "4",
            "unit_of_privacy": product.unit_of_privacy,
        },
        "source": {
            "persons": f"{PERSONS}/*.parquet",
            "columns": {
                "person": "person_id",
                "unit": "unit_id",
                "region": "region_id",
                "quantity": None,
            },
        },
        "regions": REGIONS,
        "units": units,
        "sizes": {"max": max_size, "largest_contribution": 1},
        "privacy": {"epsilon": "0.5", "neighbours": "add-remove", "split": "uniform"},
        "mechanism": "cumulative",
        "publish": {"to": "public", "formats": ["parquet", "csv"]},
    }
    return HEADER + yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=100)


def read_histogram(
    path: Path,
    *,
    level_columns: Sequence[str],
    size_columns: Sequence[str] | None = None,
    empty_share: float = 0.05,
    seed: int = 1,
) -> CountedPopulation:
    """Read a CSV of group counts by region (rows) and size (columns) as a population.

    Args and what they mean: see `population_of_cells`.

    Raises:
        HistogramNotReadable: no such file.
        HistogramError: a subclass says which rule is broken and where.
        BadOption: the columns asked for make no sense.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return population_of_cells(
                csv.reader(file),
                level_columns=level_columns,
                size_columns=size_columns,
                empty_share=empty_share,
                seed=seed,
            )
    except OSError as error:
        raise HistogramNotReadable(path, error.strerror or str(error)) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise HistogramError(table="histogram") from error


@contextmanager
def _fresh(folder: Path) -> Iterator[None]:
    """Fill a new or empty folder; leave it empty if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise OutputNotEmpty(folder)
        # Making this folder is the claim: of two writers that both saw nothing, one fails here.
        (folder / PERSONS).mkdir()
        (folder / UNITS).mkdir()
    except FileExistsError:
        raise OutputNotEmpty(folder) from None
    except OSError as error:
        raise OutputNotWritable(folder, error.strerror or str(error)) from error
    try:
        yield
    except OSError as error:
        _clear(folder)
        raise OutputNotWritable(folder, error.strerror or str(error)) from error
    except BaseException:
        _clear(folder)
        raise


def _clear(folder: Path) -> None:
    for name in (PERSONS, UNITS, BESIDE):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("units.parquet", REGIONS, CONFIGURATION):
        (folder / name).unlink(missing_ok=True)


def _write_regions(regions: RegionTable, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("region", "parent", "name"))
        writer.writerows(regions.rows())


def _one_file_if_enough(folder: Path, *, parts: int) -> str:
    """Put a table of a single part beside its folder; return the pattern that finds it."""
    if parts > 1:
        return f"{folder.name}/*.parquet"
    single = folder.with_suffix(".parquet")
    (folder / "part-00000.parquet").rename(single)
    folder.rmdir()
    return single.name


def _scatter(population: Population) -> Scatter:
    generator = generator_of(population.seed, IDS_STREAM)
    return Scatter.drawn(population.people, generator=generator)


class _Tables(ABC):
    """Turns rows (unit, leaf) into an Arrow table; the parts come in order."""

    def __init__(self, regions: RegionTable) -> None:
        self._leaf_ids = pa.array(regions.leaf_ids, pa.string())

    @abstractmethod
    def table(self, part: int, first: int, units: Int, leaves: Int) -> Any:
        """The rows of one part."""

    def _region_column(self, leaves: Int) -> Any:
        # A part holds a range of leaves, so that its dictionary is a slice of all ids.
        lowest, highest = int(leaves.min()), int(leaves.max())
        ids = self._leaf_ids.slice(lowest, highest - lowest + 1)
        return pa.DictionaryArray.from_arrays(pa.array(leaves - lowest, pa.int32()), ids)


class _UnitTables(_Tables):
    """The public unit table, in the order of its ids."""

    def table(self, part: int, first: int, units: Int, leaves: Int) -> Any:  # noqa: ARG002
        return pa.table({"unit": units, "region": self._region_column(leaves)})


class _PersonTables(_Tables):
    """Persons, shuffled within each part, with ids that do not follow the units."""

    def __init__(self, population: Population, *, ids: Scatter) -> None:
        super().__init__(population.regions)
        self._seed = population.seed
        self._ids = ids

    def table(self, part: int, first: int, units: Int, leaves: Int) -> Any:
        order = generator_of(self._seed, ORDER_STREAM, part).permutation(units.size)
        return pa.table(
            {
                "person_id": self._ids(first + order) + 1,
                "unit_id": units[order],
                "region_id": self._region_column(leaves[order]),
            }
        )


class _Parts:
    """Collects rows and writes them as files of equally many rows.

    Attributes:
        written: rows taken in so far, waiting ones included.
        parts: files so far.
    """

    def __init__(self, folder: Path, tables: _Tables, *, rows_per_part: int) -> None:
        self.written = 0
        self.parts = 0
        self._folder = folder
        self._tables = tables
        self._limit = rows_per_part
        self._waiting: list[tuple[Int, int]] = []
        self._rows = 0

    def add(self, units: Int, leaf: int) -> None:
        """Take in one row for each of these units, all of one leaf."""
        # Invariant: fewer than `limit` rows are waiting whenever the loop is entered.
        while units.size:
            taken = units[: self._limit - self._rows]
            self._waiting.append((taken, leaf))
            self._rows += taken.size
            self.written += taken.size
            units = units[taken.size :]
            if self._rows == self._limit:
                self._flush()

    def close(self) -> None:
        """Write what is waiting."""
        if self._rows:
            self._flush()

    def _flush(self) -> None:
        units = np.concatenate([chunk for chunk, _ in self._waiting])
        leaves = np.repeat(
            np.array([leaf for _, leaf in self._waiting], dtype=np.int64),
            [chunk.size for chunk, _ in self._waiting],
        )
        table = self._tables.table(self.parts, self.written - self._rows, units, leaves)
        pq.write_table(
            table,
            self._folder / f"part-{self.parts:05d}.parquet",
            compression="zstd",
            compression_level=1,
            # Ids do not repeat enough for a dictionary; without the stored Arrow schema every
            # reader sees plain strings.
            use_dictionary=[name for name in table.column_names if name.startswith("region")],
            store_schema=False,
        )
        self.parts += 1
        self._waiting = []
        self._rows = 0
