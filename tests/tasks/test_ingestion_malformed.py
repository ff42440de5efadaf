"""Every class of malformed input: a typed error, exit code 2, no value echoed."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pgsr_core import hierarchy
from pgsr_core.errors import InputError, PgsrError
from tasks.configuration.model import Columns, LevelColumns, Sizes, Source
from tasks.ingestion import errors
from tasks.ingestion.persons import TrueSizes, ingest_persons
from tasks.ingestion.regions import read_regions
from tasks.ingestion.source_digest import keyed_source_digest, resolve_source
from tasks.ingestion.units import read_units, reopen_units
from tasks.storage.duck import connect

CANARY = "kanary77"
NUMBER_CANARY = 987654321
LARGEST = 5

GOOD_REGIONS = "region,parent,name\nroot,,Country\nnorth,root,\nsouth,root,\n"
GOOD_UNITS = "unit,region\nu1,north\nu2,north\nu3,south\n"
GOOD_PERSONS = "person,unit,region,beds\np1,u1,north,1\np2,u1,north,2\np3,u3,south,0\n"


@dataclass
class Delivery:
    """What an office might hand in; each case spoils one thing."""

    persons: str | bytes | pa.Table = GOOD_PERSONS
    units: str | bytes | pa.Table | None = GOOD_UNITS
    regions: str | bytes = GOOD_REGIONS
    levels: LevelColumns | None = None
    columns: dict[str, str | None] = field(
        default_factory=lambda: {
            "person": "person",
            "unit": "unit",
            "region": "region",
            "quantity": "beds",
        }
    )
    source: str | list[str] | None = None
    table: str | None = None
    prepare: Callable[[Path], None] = lambda _folder: None

    def ingest(self, folder: Path) -> TrueSizes:
        regions = self.levels or "regions.csv"
        (folder / "regions.csv").write_bytes(_bytes(self.regions))
        persons = _write(self.persons, folder, "persons")
        self.prepare(folder)
        tree = read_regions(regions, folder=folder).tree
        units = None
        if self.units is not None:
            units = read_units(_write(self.units, folder, "units"), tree, folder=folder)
        source = resolve_source(
            Source(
                persons=self.source or persons,
                table=self.table,
                columns=Columns(**self.columns),
            ),
            folder=folder,
            slot=date(2026, 7, 1),
        )
        keyed_source_digest(source, key=b"k" * 32)
        readable = [*source.readable, *(units.readable if units else ())]
        with connect(folder / "confidential" / "store.duckdb", readable=readable) as connection:
            try:
                return ingest_persons(
                    connection,
                    source,
                    tree=tree,
                    units=units,
                    sizes=Sizes(max=4, largest_contribution=LARGEST),
                )
            finally:
                # A corrupt file can make DuckDB refuse everything further in this connection.
                with suppress(duckdb.FatalException):
                    left = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
                    assert left == []


def _bytes(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode()


def _write(content: str | bytes | pa.Table, folder: Path, name: str) -> str:
    if isinstance(content, pa.Table):
        pq.write_table(content, folder / f"{name}.parquet")
        return f"{name}.parquet"
    (folder / f"{name}.csv").write_bytes(_bytes(content))
    return f"{name}.csv"


def persons_with(**columns: Any) -> pa.Table:
    good = {
        "person": ["p1", "p2", "p3"],
        "unit": ["u1", "u1", "u3"],
        "region": ["north", "north", "south"],
        "beds": [1, 2, 0],
    }
    return pa.table(good | columns)


def with_row(row: str) -> str:
    return f"{GOOD_PERSONS}{row}\n"


def two_files(second: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        (folder / "part-1.csv").write_text(GOOD_PERSONS)
        (folder / "part-2.csv").write_text(second)

    return prepare


def two_parquet_files(first: pa.Table, second: pa.Table) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        pq.write_table(first, folder / "part1.parquet")
        pq.write_table(second, folder / "part2.parquet")

    return prepare


def behind_a_folder_named(name: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        (folder / name).mkdir()
        (folder / name / "p.csv").write_text(GOOD_PERSONS)
        (folder / "pers0.csv").symlink_to(folder / name / "p.csv")

    return prepare


def database(*statements: str, log: bool = False) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        with duckdb.connect(str(folder / "source.duckdb")) as connection:
            for statement in statements:
                connection.execute(statement)
        if log:
            (folder / "source.duckdb.wal").write_bytes(CANARY.encode())

    return prepare


def bytes_at(name: str, content: bytes) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return prepare


BARELY_FRACTIONAL = pa.array(["1", "2.00000000000000000001", "0"]).cast(pa.decimal128(38, 20))
NO_QUANTITY = {"person": "person", "unit": "unit", "region": "region", "quantity": None}

# name: (what is spoiled, the error, rows named in the message)
CASES: dict[str, tuple[Delivery, type[InputError], tuple[int, ...]]] = {
    # columns
    "column missing": (
        Delivery(f"person,unit,area,beds\np1,u1,{CANARY},1\n"),
        errors.MissingColumn,
        (),
    ),
    "column in other capitals": (
        Delivery(f"person,unit,Region,beds\np1,u1,{CANARY},1\n"),
        errors.MissingColumn,
        (),
    ),
    "column missing from one Parquet file": (
        Delivery(
            source="part*.parquet",
            prepare=two_parquet_files(persons_with(), persons_with().drop(["unit"])),
        ),
        errors.MissingColumn,
        (),
    ),
    "semicolons": (Delivery(GOOD_PERSONS.replace(",", ";")), errors.MissingColumn, ()),
    "header twice": (
        Delivery(f"person,unit,region,beds,unit\np1,u1,north,1,{CANARY}\n"),
        errors.DuplicateColumn,
        (),
    ),
    "Parquet column twice": (
        Delivery(
            pa.Table.from_arrays(
                [pa.array(["p1"]), pa.array(["u1"]), pa.array([CANARY]), pa.array(["north"])],
                names=["person", "unit", "unit", "region"],
            ),
            columns=NO_QUANTITY,
        ),
        errors.DuplicateColumn,
        (),
    ),
    # types
    "ids as floats": (
        Delivery(persons_with(unit=[float(NUMBER_CANARY), None, 1.0])),
        errors.WrongType,
        (),
    ),
    "ids as bytes": (Delivery(persons_with(unit=[CANARY.encode()] * 3)), errors.WrongType, ()),
    "ids nested": (Delivery(persons_with(person=[[CANARY]] * 3)), errors.WrongType, ()),
    "region as boolean": (Delivery(persons_with(region=[True] * 3)), errors.WrongType, ()),
    "quantity as boolean": (Delivery(persons_with(beds=[True] * 3)), errors.WrongType, ()),
    "quantity as date": (
        Delivery(persons_with(beds=[date(2026, 1, 1)] * 3)),
        errors.WrongType,
        (),
    ),
    "quantity as words": (Delivery(with_row(f"p4,u1,north,{CANARY}")), errors.WrongType, (4,)),
    "unit table with float ids": (
        Delivery(units=pa.table({"unit": [1.5], "region": ["north"]})),
        errors.WrongType,
        (),
    ),
    # empty cells
    "person missing": (Delivery(with_row(",u1,north,1")), errors.MissingValue, (4,)),
    "unit missing": (Delivery(with_row('p4,"",north,1')), errors.MissingValue, (4,)),
    "region missing": (Delivery(with_row("p4,u1,,1")), errors.MissingValue, (4,)),
    "quantity missing": (Delivery(with_row("p4,u1,north,")), errors.MissingValue, (4,)),
    "empty text in Parquet": (
        Delivery(persons_with(unit=["u1", "", "u3"])),
        errors.MissingValue,
        (2,),
    ),
    "null quantity in Parquet": (
        Delivery(persons_with(beds=pa.array([1, None, 0], pa.int64()))),
        errors.MissingValue,
        (2,),
    ),
    # quantities
    "NaN as text": (Delivery(with_row("p4,u1,north,NaN")), errors.NotANumber, (4,)),
    "NaN in Parquet": (Delivery(persons_with(beds=[1.0, 0.0, np.nan])), errors.NotANumber, (3,)),
    "infinite": (Delivery(with_row("p4,u1,north,-inf")), errors.InfiniteQuantity, (4,)),
    "infinite by size": (Delivery(with_row("p4,u1,north,1e999")), errors.InfiniteQuantity, (4,)),
    "fractional text": (Delivery(with_row("p4,u1,north,1.5")), errors.FractionalQuantity, (4,)),
    "fractional float": (
        Delivery(persons_with(beds=[1.0, 0.25, 2.0])),
        errors.FractionalQuantity,
        (2,),
    ),
    "fractional decimal": (
        Delivery(persons_with(beds=BARELY_FRACTIONAL)),
        errors.FractionalQuantity,
        (2,),
    ),
    "negative": (Delivery(with_row("p4,u1,north,-1")), errors.NegativeQuantity, (4,)),
    "negative fractionless float": (
        Delivery(persons_with(beds=[1.0, -2.0, 2.0])),
        errors.NegativeQuantity,
        (2,),
    ),
    "above the limit": (
        Delivery(with_row(f"p4,u1,north,{LARGEST + 1}")),
        errors.QuantityAboveLimit,
        (4,),
    ),
    "huge number": (
        Delivery(with_row(f"p4,u1,north,{NUMBER_CANARY}{NUMBER_CANARY}{NUMBER_CANARY}")),
        errors.QuantityAboveLimit,
        (4,),
    ),
    "huge integer in Parquet": (
        Delivery(persons_with(beds=pa.array([1, 2, 2**64 - 1], pa.uint64()))),
        errors.QuantityAboveLimit,
        (3,),
    ),
    # regions of persons
    "unknown region": (Delivery(with_row(f"p4,u1,{CANARY},1")), errors.UnknownRegion, (4,)),
    "region with a space": (Delivery(with_row("p4,u1, north,1")), errors.UnknownRegion, (4,)),
    "region above the leaves": (Delivery(with_row("p4,u1,root,1")), errors.RegionNotALeaf, (4,)),
    "region as integers nobody knows": (
        Delivery(persons_with(region=[NUMBER_CANARY] * 3)),
        errors.UnknownRegion,
        (1, 2, 3),
    ),
    # units
    "unit in two regions": (
        Delivery(with_row("p4,u3,north,1")),
        errors.UnitInTwoRegions,
        (3, 4),
    ),
    "unit in two regions, from data": (
        Delivery(with_row("p4,u3,north,1"), units=None),
        errors.UnitInTwoRegions,
        (3, 4),
    ),
    "unit not in the table": (
        Delivery(with_row(f"p4,{CANARY},north,0")),
        errors.UnknownUnit,
        (4,),
    ),
    "unit elsewhere in the table": (
        Delivery(GOOD_PERSONS.replace("p3,u3,south", "p3,u3,north")),
        errors.UnitInOtherRegion,
        (3,),
    ),
    # persons
    "person twice": (Delivery(with_row("p1,u3,south,1")), errors.DuplicatePerson, (1, 4)),
    "person twice in two files": (
        Delivery(
            source="part-*.csv",
            prepare=two_files(f"beds,person,unit,region\n1,{CANARY},u1,north\n1,p1,u1,north\n"),
        ),
        errors.DuplicatePerson,
        (1, 2),
    ),
    "no bytes": (Delivery(b""), errors.MissingHeader, ()),
    # files
    "file missing": (Delivery(source="elsewhere.csv"), errors.MissingFile, ()),
    "pattern without match": (Delivery(source="part-*.parquet"), errors.MissingFile, ()),
    "remote file": (Delivery(source="https://example.org/persons.csv"), errors.MissingFile, ()),
    "folder with pattern signs": (
        Delivery(
            source="pers*.csv",
            prepare=behind_a_folder_named("a*b"),
        ),
        errors.PathWithPattern,
        (),
    ),
    "not Parquet": (
        Delivery(source="x.parquet", prepare=bytes_at("x.parquet", CANARY.encode())),
        errors.UnreadableFile,
        (),
    ),
    "Parquet cut short": (
        Delivery(
            source="x.parquet",
            prepare=bytes_at("x.parquet", b"PAR1" + CANARY.encode() * 9 + b"\x40\0\0\0PAR1"),
        ),
        errors.UnreadableFile,
        (),
    ),
    "not a DuckDB file": (
        Delivery(
            source="source.duckdb",
            table="persons",
            prepare=bytes_at("source.duckdb", CANARY.encode() * 999),
        ),
        errors.UnreadableFile,
        (),
    ),
    "DuckDB file without the table": (
        Delivery(
            source="source.duckdb",
            table="persons",
            prepare=database(f"CREATE TABLE {CANARY} (person INTEGER)"),
        ),
        errors.MissingTable,
        (),
    ),
    "view in a DuckDB file": (
        Delivery(
            source="source.duckdb",
            table="persons",
            prepare=database(f"CREATE VIEW persons AS SELECT '{CANARY}' AS person"),
        ),
        errors.MissingTable,
        (),
    ),
    "DuckDB file still written": (
        Delivery(
            source="source.duckdb",
            table="persons",
            prepare=database("CREATE TABLE persons (person INTEGER)", log=True),
        ),
        errors.UnfinishedSource,
        (),
    ),
    "not UTF-8": (
        Delivery(GOOD_PERSONS.encode() + f"{CANARY}\xff,u1,north,1\n".encode("latin-1")),
        errors.WrongEncoding,
        (),
    ),
    "UTF-16": (
        Delivery(with_row(f"{CANARY},u1,north,1").encode("utf-16")),
        errors.WrongEncoding,
        (),
    ),
    "UTF-16 without mark": (
        Delivery(GOOD_PERSONS.encode("utf-16-le")),
        errors.WrongEncoding,
        (),
    ),
    "row too long": (Delivery(with_row(f"p4,u1,north,1,{CANARY}")), errors.RaggedRow, ()),
    "row too short": (Delivery(with_row(f"p4,{CANARY}")), errors.RaggedRow, ()),
    "quote left open": (
        Delivery(with_row(f'p4,"{CANARY},north,1')),
        errors.UnterminatedQuote,
        (),
    ),
    # unit table
    "unit table empty": (Delivery(units="unit,region\n"), errors.EmptyTable, ()),
    "unit table without region": (
        Delivery(units=f"unit,area\n{CANARY},north\n"),
        errors.MissingColumn,
        (),
    ),
    "unit table with a null": (Delivery(units=GOOD_UNITS + ",north\n"), errors.MissingValue, (4,)),
    "unit twice": (
        Delivery(units=GOOD_UNITS + "u1,north\n"),
        errors.DuplicateUnit,
        (1, 4),
    ),
    "unit in an unknown region": (
        Delivery(units=GOOD_UNITS + f"u4,{CANARY}\n"),
        errors.UnknownRegion,
        (4,),
    ),
    "unit above the leaves": (
        Delivery(units=GOOD_UNITS + "u4,root\n"),
        errors.RegionNotALeaf,
        (4,),
    ),
    # region table
    "regions empty": (Delivery(regions="region,parent\n"), errors.EmptyTable, ()),
    "region without id": (Delivery(regions=GOOD_REGIONS + ",root,\n"), errors.MissingValue, (4,)),
    "region with two parents": (
        Delivery(regions=GOOD_REGIONS + "north,south,\n"),
        hierarchy.RegionWithTwoParents,
        (4,),
    ),
    "cycle": (
        Delivery(regions=GOOD_REGIONS + "a,b,\nb,a,\n"),
        hierarchy.CyclicRegions,
        (4, 5),
    ),
    "several roots": (
        Delivery(regions=GOOD_REGIONS + "other,,\n"),
        hierarchy.SeveralRoots,
        (1, 4),
    ),
    "no root": (Delivery(regions="region,parent\na,b\nb,a\n"), hierarchy.NoRoot, ()),
    "orphan": (
        Delivery(regions=GOOD_REGIONS + f"x,{CANARY},\n"),
        hierarchy.OrphanRegion,
        (4,),
    ),
    "region like a formula": (
        Delivery(regions=GOOD_REGIONS + f'"=HYPERLINK(""{CANARY}"")",root,\n'),
        errors.UnsafeName,
        (4,),
    ),
    "region like a path": (
        Delivery(regions=GOOD_REGIONS + f"../{CANARY},root,\n"),
        errors.UnsafeName,
        (4,),
    ),
    "label like a formula": (
        Delivery(regions=GOOD_REGIONS + f"x,root,@{CANARY}\n"),
        errors.UnsafeName,
        (4,),
    ),
    "level cell like a formula": (
        Delivery(
            regions=f"state,county\nnorth,-{CANARY}\n",
            levels=LevelColumns(table="regions.csv", columns=("state", "county"), root="all"),
        ),
        errors.UnsafeName,
        (1,),
    ),
    "gap between levels": (
        Delivery(
            regions=f"state,county\nnorth,n1\n,{CANARY}\n",
            levels=LevelColumns(table="regions.csv", columns=("state", "county"), root="all"),
        ),
        errors.MissingValue,
        (2,),
    ),
    "regions not a table": (
        Delivery(
            levels=LevelColumns(table="regions.json", columns=("state",), root="all"),
        ),
        errors.UnsupportedFile,
        (),
    ),
}


def test_the_unspoiled_delivery_is_accepted(tmp_path: Path) -> None:
    sizes = Delivery().ingest(tmp_path)
    # u1 has 3, u3 has 0, u2 nobody.
    assert sizes.counts.tolist() == [[2, 0, 0, 1, 0], [1, 0, 0, 1, 0], [1, 0, 0, 0, 0]]


@pytest.mark.parametrize("name", CASES)
def test_malformed_input_is_a_typed_error_without_a_value(name: str, tmp_path: Path) -> None:
    delivery, expected, rows = CASES[name]
    with pytest.raises(PgsrError) as caught:
        delivery.ingest(tmp_path)
    error = caught.value
    assert type(error) is expected
    assert error.exit_code == 2
    assert isinstance(error, InputError)
    assert error.rows == rows
    assert str(error).endswith(f"Remedy: {error.remedy}.")
    shown = f"{error} {error!r} {vars(error)}"
    assert CANARY not in shown
    assert str(NUMBER_CANARY) not in shown
    # Nothing that quotes the data hangs on the error either.
    assert error.__cause__ is None
    assert error.__context__ is None


def test_there_are_at_least_25_classes_of_malformed_input() -> None:
    assert len({error for _, error, _ in CASES.values()}) >= 25


def test_every_error_class_of_the_package_has_a_case() -> None:
    classes = {
        cls
        for cls in vars(errors).values()
        if isinstance(cls, type) and issubclass(cls, InputError) and cls is not InputError
    }
    # A file that changes in mid-run has tests of its own.
    assert classes - {error for _, error, _ in CASES.values()} == {errors.FileChanged}


def test_a_quantity_is_checked_even_where_the_statistics_of_the_file_hide_it(
    tmp_path: Path,
) -> None:
    hidden = 0x0123456789
    table = persons_with(beds=[1, 2, hidden])
    pq.write_table(table, tmp_path / "good.parquet", compression="none", use_dictionary=False)
    honest = (tmp_path / "good.parquet").read_bytes()
    value = hidden.to_bytes(8, "little")
    places = [place for place in range(len(honest)) if honest.startswith(value, place)]
    lies = []
    for kept in places:
        lie = bytearray(honest)
        for place in places:
            if place != kept:
                lie[place : place + 8] = (2).to_bytes(8, "little")
        if pq.read_table(pa.BufferReader(bytes(lie)))["beds"][2].as_py() == hidden:
            lies.append(bytes(lie))
    assert len(lies) == 1
    assert pq.read_metadata(pa.BufferReader(lies[0])).row_group(0).column(3).statistics.max == 2
    delivery = Delivery(source="x.parquet", prepare=bytes_at("x.parquet", lies[0]))
    with pytest.raises(errors.QuantityAboveLimit) as caught:
        delivery.ingest(tmp_path)
    assert caught.value.rows == (3,)


def test_a_row_of_several_files_is_named_with_its_file(tmp_path: Path) -> None:
    delivery, _, _ = CASES["person twice in two files"]
    with pytest.raises(errors.DuplicatePerson, match=r"row 1 of file 1, 2 of file 2; 2 rows"):
        delivery.ingest(tmp_path)


def test_a_broken_line_of_several_files_is_named_with_its_file(tmp_path: Path) -> None:
    delivery = Delivery(source="part-*.csv", prepare=two_files(with_row(f"p9,{CANARY}")))
    with pytest.raises(errors.RaggedRow, match=r"line 5 of file 2"):
        delivery.ingest(tmp_path)


def test_only_the_first_rows_are_named_and_all_are_counted(tmp_path: Path) -> None:
    rows = "".join(f"q{row},u1,nowhere,1\n" for row in range(5000))
    with pytest.raises(errors.UnknownRegion) as caught:
        Delivery(GOOD_PERSONS + rows).ingest(tmp_path)
    assert caught.value.rows == (4, 5, 6, 7, 8)
    assert caught.value.count == 5000


def test_a_source_that_grew_after_it_was_found_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(GOOD_PERSONS)
    source = resolve_source(
        Source(persons="p.csv", columns=Columns(person="person", unit="unit", region="region")),
        folder=tmp_path,
        slot=date(2026, 7, 1),
    )
    (tmp_path / "p.csv").write_text(with_row("p4,u1,north,1"))
    with pytest.raises(errors.FileChanged):
        keyed_source_digest(source, key=b"k" * 32)


def test_a_unit_table_that_is_not_the_checked_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "units.csv").write_text(GOOD_UNITS)
    (tmp_path / "regions.csv").write_text(GOOD_REGIONS)
    tree = read_regions("regions.csv", folder=tmp_path).tree
    units = read_units("units.csv", tree, folder=tmp_path)
    facts = {"groups_by_region": units.groups_by_region, "digest": units.digest}
    again = reopen_units("units.csv", folder=tmp_path, **facts)
    assert again.digest == units.digest
    (tmp_path / "units.csv").write_text(GOOD_UNITS + "u4,south\n")
    with pytest.raises(errors.FileChanged):
        reopen_units("units.csv", folder=tmp_path, **facts)


def good_bytes(kind: str, folder: Path) -> bytes:
    path = folder / f"good.{kind}"
    if kind == "csv":
        path.write_text(GOOD_PERSONS)
    elif kind == "parquet":
        pq.write_table(persons_with(), path)
    else:
        with duckdb.connect(str(path)) as connection:
            connection.register("frame", persons_with())
            connection.execute("CREATE TABLE persons AS SELECT * FROM frame")
    return path.read_bytes()


@pytest.mark.parametrize("kind", ["csv", "parquet", "duckdb"])
def test_damaged_files_give_typed_errors_only(kind: str, tmp_path: Path) -> None:
    good = good_bytes(kind, tmp_path)
    generator = random.Random(20260701)  # noqa: S311 (a test's own damage)
    refused = 0
    for _ in range(25):
        damaged = bytearray(good)
        for place in generator.sample(range(len(good)), generator.choice([1, 2, 5])):
            damaged[place] ^= 1 << generator.randrange(8)
        delivery = Delivery(
            source=f"x.{kind}",
            table="persons" if kind == "duckdb" else None,
            prepare=bytes_at(f"x.{kind}", bytes(damaged)),
        )
        # Anything but one of our errors fails the test.
        try:
            delivery.ingest(tmp_path)
        except PgsrError:
            refused += 1
    assert refused > 5
