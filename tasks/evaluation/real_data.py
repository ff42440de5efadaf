"""Reading the real data sets: published tables in the folder that PGSR_DATA names."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pgsr_core.errors import PgsrError
from pgsr_core.evaluation.datasets import EvaluationData, census, from_leaves

DATA_FOLDER = "PGSR_DATA"
VIRGINIA = "us_va2000_household_size_blockgroup.csv"
ENGLAND_AND_WALES = "ew2021_household_size_lsoa.csv"
AUSTRALIA = "au2016_household_size_sa1.csv"
LARGE_COUNTIES = "us2019_acs1_household_size_county840.csv"
MANHATTAN = "nyc_taxi2013_manhattan_countofcounts.csv"
HOSPITALS = "us_hifld_hospital_beds.csv"
COUNTIES = "us_county_households_avg_size.csv"
# Where sizes of hospitals are top-coded: a few have more beds.
MOST_BEDS = 1_000


class RealDataMissing(PgsrError):
    """A table of real data was asked for and is not there."""

    def __init__(self, file: str) -> None:
        self.file = file
        super().__init__(
            f"{file} is not in the folder that {DATA_FOLDER} names. Remedy: set {DATA_FOLDER} to "
            "the folder that holds it, or evaluate generated data (pgsr evaluate --list)."
        )


class RealDataUnreadable(PgsrError):
    """A table of real data has not the columns or numbers that it should have."""

    def __init__(self, file: str) -> None:
        self.file = file
        super().__init__(
            f"{file} in the folder that {DATA_FOLDER} names cannot be read as the table of that "
            "name. Remedy: fetch it again from its source."
        )


def find(file: str) -> Path | None:
    """Where a table is, or None."""
    folder = os.environ.get(DATA_FOLDER)
    path = Path(folder, file) if folder else None
    return path if path is not None and path.is_file() else None


def virginia() -> EvaluationData:
    """Households by size in Virginia's block groups, 2000."""
    levels = ("county", "tract", "bg")
    return _histogram("virginia-2000", VIRGINIA, levels, sizes=7)


def england_and_wales() -> EvaluationData:
    """Households by size in the small areas of England and Wales, 2021."""
    levels = ("country", "region", "lad_name", "msoa_name", "lsoa21")
    return _histogram("england-wales-2021", ENGLAND_AND_WALES, levels, sizes=8)


def australia() -> EvaluationData:
    """Households by size in the smallest areas of Australia, 2016."""
    return _histogram("australia-2016", AUSTRALIA, ("state", "sa4", "sa3", "sa2", "sa1"), sizes=6)


def large_counties() -> EvaluationData:
    """Households by size in the large counties of the United States, 2019."""
    return _histogram("large-counties-2019", LARGE_COUNTIES, ("state", "county"), sizes=4)


def manhattan_taxi() -> EvaluationData:
    """Taxis by pickups in each neighbourhood, 2013; N is the largest size of the table."""
    rows = _rows(MANHATTAN, ("town", "neighbourhood", "size", "count"))
    leaves = sorted({(row[0], row[1]) for row in rows})
    number = {leaf: index for index, leaf in enumerate(leaves)}
    sizes = np.array(_integers(MANHATTAN, [row[2] for row in rows]))
    counts = np.zeros((len(leaves), sizes.max()), dtype=np.int64)
    places = np.array([number[row[0], row[1]] for row in rows])
    np.add.at(counts, (places, sizes - 1), _integers(MANHATTAN, [row[3] for row in rows]))
    return from_leaves("manhattan-taxi", leaves, counts)


def hospitals() -> EvaluationData:
    """Hospitals by beds in each county; those whose beds are not known are left out."""
    rows = _rows(HOSPITALS, ("state", "county_fips", "beds"))
    beds = _integers(HOSPITALS, [row[2] for row in rows])
    known = [
        ((row[0], row[1]), number) for row, number in zip(rows, beds, strict=True) if number > 0
    ]
    leaves = [leaf for leaf, _ in known]
    counts = np.zeros((len(leaves), MOST_BEDS), dtype=np.int64)
    counts[np.arange(len(leaves)), [min(number, MOST_BEDS) - 1 for _, number in known]] = 1
    return from_leaves("hospitals", leaves, counts)


def census_of_counties() -> EvaluationData:
    """The paper's Census construction on the households and mean sizes of real counties."""
    columns = ("state", "county", "households_2009_13", "persons_per_household_2009_13")
    rows = _rows(COUNTIES, columns)
    try:
        means = [float(row[3]) for row in rows]
    except ValueError:
        raise RealDataUnreadable(COUNTIES) from None
    return census(
        [(row[0], row[1]) for row in rows], _integers(COUNTIES, [r[2] for r in rows]), means
    )


def _histogram(name: str, file: str, levels: tuple[str, ...], *, sizes: int) -> EvaluationData:
    """A table with a row a leaf and columns h1, h2, …, the last of which is open (h7plus)."""
    columns = [f"h{size}" for size in range(1, sizes)] + [f"h{sizes}plus"]
    rows = _rows(file, (*levels, *columns))
    counts = [_integers(file, row[len(levels) :]) for row in rows]
    return from_leaves(name, [row[: len(levels)] for row in rows], np.array(counts, dtype=np.int64))


def _rows(file: str, columns: Sequence[str]) -> list[tuple[str, ...]]:
    path = find(file)
    if path is None:
        raise RealDataMissing(file)
    try:
        with path.open(newline="", encoding="utf-8") as text:
            rows = [tuple(row[column] for column in columns) for row in csv.DictReader(text)]
    except (KeyError, UnicodeDecodeError, csv.Error):
        raise RealDataUnreadable(file) from None
    if not rows:
        raise RealDataUnreadable(file)
    return rows


def _integers(file: str, texts: Sequence[str]) -> list[int]:
    try:
        return [int(text) for text in texts]
    except (ValueError, TypeError):
        raise RealDataUnreadable(file) from None
