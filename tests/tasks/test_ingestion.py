"""Ingestion of well-formed input, against a plain Python twin."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from tasks.configuration.model import Columns, LevelColumns, Sizes, Source
from tasks.ingestion.errors import OutOfMemory
from tasks.ingestion.names import is_safe_name
from tasks.ingestion.persons import TrueSizes, ingest_persons
from tasks.ingestion.regions import read_regions
from tasks.ingestion.source_digest import keyed_source_digest, resolve_source
from tasks.ingestion.units import read_units
from tasks.storage.duck import connect

SLOT = date(2026, 7, 1)
# Ragged: "51" is a leaf on level 2; "a" has one child, which has one child.
REGIONS = (
    "region,parent,name\nroot,,All\n51,root,\na,root,\nb,a,\n007,b,\n"
    "42,root,Forty\n43,42,\n44,42,\n"
)
LEAVES = ("51", "007", "43", "44")

Person = tuple[str, str, str, int]


def tree_of(folder: Path) -> RegionTree:
    (folder / "regions.csv").write_text(REGIONS)
    return read_regions("regions.csv", folder=folder).tree


def ingest(
    folder: Path,
    persons: str | Sequence[str],
    *,
    quantity: str | None = None,
    units: str | None = None,
    table: str | None = None,
    largest: int = 4,
    memory_limit: str = "200MB",
    stages: list[tuple[str, int]] | None = None,
) -> TrueSizes:
    tree = tree_of(folder)
    public = read_units(units, tree, folder=folder) if units else None
    columns = Columns(person="person", unit="unit", region="region", quantity=quantity)
    source = resolve_source(
        Source(persons=persons, table=table, columns=columns), folder=folder, slot=SLOT
    )
    readable = [*source.readable, *(public.readable if public else ())]
    store = folder / "confidential" / "store.duckdb"
    with connect(store, readable=readable, memory_limit=memory_limit) as connection:
        return ingest_persons(
            connection,
            source,
            tree=tree,
            units=public,
            sizes=Sizes(max=largest, largest_contribution=3),
            progress=lambda stage, rows: (stages if stages is not None else []).append(
                (stage, rows)
            ),
        )


def twin(
    tree: RegionTree, persons: Sequence[Person], units: dict[str, str] | None, largest: int
) -> tuple[NDArray[np.int64], int, int]:
    """The obvious way: add up each unit, then walk from its leaf to the root."""
    total: Counter[str] = Counter()
    region_of = dict(units or {})
    for _, unit, region, quantity in persons:
        total[unit] += quantity
        region_of[unit] = region
    smallest = 0 if units is not None else 1
    counts = np.zeros((tree.regions, largest + 1 - smallest), dtype=np.int64)
    groups = top_coded = 0
    for unit, leaf in region_of.items():
        if total[unit] < smallest:
            continue
        groups += 1
        top_coded += total[unit] > largest
        region = tree.index[leaf]
        while region >= 0:
            counts[region, min(total[unit], largest) - smallest] += 1
            region = int(tree.parent[region])
    return counts, groups, top_coded


PERSONS: list[Person] = [
    ("1", "10", "51", 1),
    ("2", "10", "51", 3),
    ("3", "10", "51", 2),
    ("4", "11", "007", 0),
    ("5", "12", "43", 2),
    ("6", "13", "44", 1),
]
UNITS = {"10": "51", "11": "007", "12": "43", "13": "44", "14": "44", "15": "51"}


def columns_of(persons: Sequence[Person]) -> dict[str, list[Any]]:
    person, unit, region, beds = (list(cells) for cells in zip(*persons, strict=True))
    return {"person": person, "unit": unit, "region": region, "beds": beds}


def write_csv(path: Path, columns: dict[str, list[Any]]) -> None:
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(f'"{cell}"' for cell in row) for row in rows)]
    path.write_text("\r\n".join(lines) + "\r\n", encoding="utf-8-sig")


def write_units(path: Path, units: dict[str, str], *, integers: bool = False) -> None:
    ids = [int(unit) for unit in units] if integers else list(units)
    if path.suffix == ".csv":
        write_csv(path, {"unit": ids, "region": list(units.values())})
    else:
        pq.write_table(pa.table({"unit": ids, "region": list(units.values())}), path)


def check(
    result: TrueSizes, persons: Sequence[Person], units: dict[str, str] | None, tree: RegionTree
) -> None:
    counts, groups, top_coded = twin(tree, persons, units, 4)
    assert result.counts.tolist() == counts.tolist()
    assert (result.groups, result.top_coded, result.rows) == (groups, top_coded, len(persons))


@pytest.mark.parametrize("with_units", [True, False])
@pytest.mark.parametrize("integers", [True, False])
@pytest.mark.parametrize("kind", ["csv", "parquet", "duckdb", "many csv", "many parquet"])
def test_every_kind_of_source_gives_the_twins_counts(
    kind: str, integers: bool, with_units: bool, tmp_path: Path
) -> None:
    columns = columns_of(PERSONS)
    if integers:
        columns["person"] = [int(cell) for cell in columns["person"]]
        columns["unit"] = [int(cell) for cell in columns["unit"]]
    frame = pa.table(columns)
    source, table = f"persons.{kind}", None
    if kind == "csv":
        write_csv(tmp_path / source, columns)
    elif kind == "parquet":
        pq.write_table(frame, tmp_path / source)
    elif kind == "duckdb":
        table = "persons"
        with duckdb.connect(str(tmp_path / source)) as connection:
            connection.register("frame", frame)
            connection.execute("CREATE TABLE persons AS SELECT * FROM frame")
    elif kind == "many csv":
        source = "persons-{date:%Y}-*.csv"
        write_csv(tmp_path / "persons-2026-1.csv", {k: v[:2] for k, v in columns.items()})
        # The second file has its columns in another order, and one more.
        rest = {k: columns[k][2:] for k in ("region", "beds", "unit", "person")}
        write_csv(tmp_path / "persons-2026-2.csv", {"extra": [""] * 4, **rest})
    else:
        source = "persons-*.parquet"
        pq.write_table(frame.slice(0, 4), tmp_path / "persons-1.parquet")
        narrow = frame.slice(4).set_column(3, "beds", frame.slice(4)["beds"].cast(pa.int8()))
        pq.write_table(narrow, tmp_path / "persons-2.parquet")
    units = None
    if with_units:
        # The ids are of the other kind in the unit table.
        write_units(tmp_path / "units.parquet", UNITS, integers=not integers)
        units = "units.parquet"
    result = ingest(tmp_path, source, quantity="beds", units=units, table=table)
    check(result, PERSONS, UNITS if with_units else None, tree_of(tmp_path))


def test_without_a_quantity_each_person_adds_one(tmp_path: Path) -> None:
    write_csv(tmp_path / "persons.csv", columns_of(PERSONS))
    write_units(tmp_path / "units-1.csv", dict(list(UNITS.items())[:3]))
    write_units(tmp_path / "units-2.csv", dict(list(UNITS.items())[3:]))
    stages: list[tuple[str, int]] = []
    result = ingest(tmp_path, "persons.csv", units="units-*.csv", stages=stages)
    ones = [(person, unit, region, 1) for person, unit, region, _ in PERSONS]
    check(result, ones, UNITS, tree_of(tmp_path))
    assert stages == [("person ids", 6), ("unit sizes", 6)]


def test_regions_may_be_integers_in_the_data(tmp_path: Path) -> None:
    persons = [person for person in PERSONS if person[2] != "007"]
    columns = columns_of(persons)
    columns["region"] = [int(cell) for cell in columns["region"]]
    pq.write_table(pa.table(columns), tmp_path / "persons.parquet")
    result = ingest(tmp_path, "persons.parquet", quantity="beds")
    check(result, persons, None, tree_of(tmp_path))


def test_the_integer_7_is_not_the_region_007(tmp_path: Path) -> None:
    columns = columns_of(PERSONS[:1]) | {"region": [7]}
    pq.write_table(pa.table(columns), tmp_path / "persons.parquet")
    with pytest.raises(Exception, match="every region must be in the region table"):
        ingest(tmp_path, "persons.parquet")


@pytest.mark.parametrize(
    "beds",
    [
        pa.array([1.0, 3.0, 2.0, 0.0, 2.0, 1.0]),
        pa.array(["1", "3.0", "2", "0", "2e0", "1"]),
        pa.array([1, 3, 2, 0, 2, 1], pa.uint64()),
        pa.array([1, 3, 2, 0, 2, 1], pa.int64()).cast(pa.decimal128(22, 3)),
        pa.array(["1", "3", "2", "0", "2", "1"]).dictionary_encode(),
    ],
)
def test_whole_quantities_are_taken_whatever_their_type(beds: pa.Array, tmp_path: Path) -> None:
    pq.write_table(pa.table(columns_of(PERSONS) | {"beds": beds}), tmp_path / "p.parquet")
    result = ingest(tmp_path, "p.parquet", quantity="beds")
    check(result, PERSONS, None, tree_of(tmp_path))


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[Person], dict[str, str]]:
    leaf = st.sampled_from(LEAVES)
    units = draw(st.dictionaries(st.sampled_from([f"u{i}" for i in range(12)]), leaf, min_size=1))
    amounts = st.tuples(st.sampled_from(sorted(units)), st.integers(0, 3))
    rows = draw(st.lists(amounts, min_size=1, max_size=40))
    persons = [(f"p{row}", unit, units[unit], beds) for row, (unit, beds) in enumerate(rows)]
    return persons, units


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(delivery=deliveries())
def test_any_delivery_gives_the_twins_counts(
    delivery: tuple[list[Person], dict[str, str]], tmp_path: Path
) -> None:
    persons, units = delivery
    write_csv(tmp_path / "persons.csv", columns_of(persons))
    write_units(tmp_path / "units.csv", units)
    tree = tree_of(tmp_path)
    check(ingest(tmp_path, "persons.csv", quantity="beds", units="units.csv"), persons, units, tree)
    if any(beds for *_, beds in persons):
        check(ingest(tmp_path, "persons.csv", quantity="beds"), persons, None, tree)


def test_more_data_than_memory_is_spilled_beside_the_store_and_cleared(tmp_path: Path) -> None:
    rows = 1_000_000
    with duckdb.connect() as connection:
        connection.sql(
            "SELECT 'a person with a long name ' || range AS person, "
            "'a unit with a long name ' || (range // 2) AS unit, '51' AS region "
            "FROM range($rows)",
            params={"rows": rows},
        ).write_parquet(str(tmp_path / "persons.parquet"))
    columns = Columns(person="person", unit="unit", region="region")
    source = resolve_source(
        Source(persons="persons.parquet", columns=columns), folder=tmp_path, slot=SLOT
    )
    tree = tree_of(tmp_path)

    def within(limit: str, store: Path | None) -> TrueSizes:
        with connect(store, readable=source.readable, memory_limit=limit, threads=2) as connection:
            return ingest_persons(connection, source, tree=tree, units=None, sizes=Sizes(max=4))

    # Where nothing can spill, this is more than fits: the machine's fault, safe to try again.
    with pytest.raises(OutOfMemory) as caught:
        within("80MB", None)
    assert caught.value.exit_code == 3
    assert caught.value.__context__ is None

    result = within("80MB", tmp_path / "confidential" / "store.duckdb")
    assert result.counts[0].tolist() == [0, rows // 2, 0, 0]
    left = [path.name for path in (tmp_path / "confidential").rglob("*") if path.is_file()]
    assert left == ["store.duckdb"]


def test_ids_may_be_enumerations_uuids_and_wide_integers(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "source.duckdb")) as connection:
        connection.execute("CREATE TYPE place AS ENUM ('51', '43')")
        connection.execute(
            "CREATE TABLE persons AS SELECT uuid() AS person, CAST(range // 2 AS HUGEINT) AS unit, "
            "CAST(CASE WHEN range < 4 THEN '51' ELSE '43' END AS place) AS region, "
            "CAST(range % 3 AS DECIMAL(9, 0)) AS beds FROM range(6)"
        )
    write_units(tmp_path / "units.csv", {"0": "51", "1": "51", "2": "43", "3": "007"})
    result = ingest(tmp_path, "source.duckdb", table="persons", quantity="beds", units="units.csv")
    # Units 0, 1, 2 have 0+1, 2+0 and 1+2.
    assert result.counts[0].tolist() == [1, 1, 1, 1, 0]


def test_the_region_table_keeps_labels_in_the_order_of_the_tree(tmp_path: Path) -> None:
    (tmp_path / "regions.csv").write_text(REGIONS)
    table = read_regions("regions.csv", folder=tmp_path)
    assert table.tree.levels == 4
    assert dict(zip(table.tree.names, table.labels, strict=True)) == {
        **dict.fromkeys(("51", "a", "b", "007", "43", "44"), ""),
        "root": "All",
        "42": "Forty",
    }


def test_one_column_a_level_gives_the_same_tree_as_parents(tmp_path: Path) -> None:
    (tmp_path / "levels.csv").write_text("x,y,z\n51,,\na,b,007\n42,43,\n42,44,\n")
    levels = LevelColumns(table="levels.csv", columns=("x", "y", "z"), root="root")
    table = read_regions(levels, folder=tmp_path)
    assert table.tree.digest == tree_of(tmp_path).digest
    assert table.labels == ("",) * 8


def test_regions_are_read_from_parquet_with_integer_ids(tmp_path: Path) -> None:
    parents = pa.array([None, 1, 1], pa.int64())
    pq.write_table(pa.table({"region": [1, 2, 3], "parent": parents}), tmp_path / "r.parquet")
    assert read_regions("r.parquet", folder=tmp_path).tree.names == ("1", "2", "3")


@pytest.mark.parametrize(
    "name",
    ["51001", "St. Mary's (North), Area 3", "Å & Ö", "東京", "a=b", "x-y", "می‌خواهم", "a" * 200],
)
def test_ordinary_names_are_safe(name: str) -> None:
    assert is_safe_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", "=1+1", "+1", "-1", "@x", "＝1", "\tx", "\rx", "a\nb", "a\0b", "a/b", "a\\b"),
        *("a..b", "..", ".", " a", "a ", "\u00a0a", "a\u202eb", "a\u2028b", "a\ufeffb", "a" * 201),
    ],
)
def test_names_like_formulas_or_paths_are_unsafe(name: str) -> None:
    assert not is_safe_name(name)


def digest_of(folder: Path, source: Source, key: bytes = b"k" * 32) -> str:
    return keyed_source_digest(resolve_source(source, folder=folder, slot=SLOT), key=key)


def test_the_source_digest_depends_on_bytes_columns_and_key_but_not_on_names(
    tmp_path: Path,
) -> None:
    columns = Columns(person="person", unit="unit", region="region")
    for name, content in (("a.csv", b"xy"), ("b.csv", b"z"), ("c.csv", b"x"), ("d.csv", b"yz")):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "e.csv").write_bytes(b"xy")
    one = digest_of(tmp_path, Source(persons="a.csv", columns=columns))
    assert one == digest_of(tmp_path, Source(persons="e.csv", columns=columns))
    two = digest_of(tmp_path, Source(persons=["b.csv", "a.csv"], columns=columns))
    assert two == digest_of(tmp_path, Source(persons="[ab].csv", columns=columns))
    others = {
        one,
        two,
        digest_of(tmp_path, Source(persons="[cd].csv", columns=columns)),
        digest_of(tmp_path, Source(persons="a.csv", columns=columns), key=b"j" * 32),
        digest_of(
            tmp_path,
            Source(persons="a.csv", columns=columns.model_copy(update={"quantity": "beds"})),
        ),
        hashlib.sha256(b"xy").hexdigest(),
    }
    assert len(others) == 6


def test_the_units_digest_changes_with_any_unit(tmp_path: Path) -> None:
    tree = tree_of(tmp_path)
    write_units(tmp_path / "units.csv", UNITS)
    before = read_units("units.csv", tree, folder=tmp_path)
    write_units(tmp_path / "units.csv", UNITS | {"15": "44"})
    after = read_units("units.csv", tree, folder=tmp_path)
    assert before.digest != after.digest
    assert before.groups_by_region[0] == after.groups_by_region[0] == len(UNITS)
    assert before.groups_by_region[tree.index["42"]] == 3


def test_a_source_may_only_read_what_it_names(tmp_path: Path) -> None:
    write_csv(tmp_path / "persons.csv", columns_of(PERSONS))
    (tmp_path / "other.csv").write_text("a\n1\n")
    store = tmp_path / "confidential" / "store.duckdb"
    with (
        connect(store, readable=[tmp_path / "persons.csv"]) as connection,
        pytest.raises(duckdb.PermissionException),
    ):
        connection.execute("SELECT * FROM read_csv($path)", {"path": str(tmp_path / "other.csv")})


@pytest.mark.skipif(os.name != "posix", reason="symbolic links")
def test_a_source_behind_a_link_is_read(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write_csv(tmp_path / "data" / "real.csv", columns_of(PERSONS))
    (tmp_path / "persons.csv").symlink_to("data/real.csv")
    result = ingest(tmp_path, "data/../persons.csv", quantity="beds")
    check(result, PERSONS, None, tree_of(tmp_path))
