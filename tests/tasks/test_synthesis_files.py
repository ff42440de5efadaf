"""Synthetic populations on disk: what is counted back is what was asked for."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
import typer
import yaml
from typer.testing import CliRunner

from flows.cli.synth import synth
from pgsr_core.errors import PgsrError
from pgsr_core.hierarchy import RegionTree
from pgsr_core.synthesis.options import (
    BadGroupCount,
    BadOption,
    GroupsAboveLeaf,
    HistogramError,
    LevelGap,
    MissingColumn,
    NoPeople,
    Shape,
)
from pgsr_core.synthesis.shapes import draw_population
from tasks.configuration.model import Configuration
from tasks.synthesis import (
    HistogramNotReadable,
    OutputNotEmpty,
    OutputNotWritable,
    Product,
    Written,
    read_histogram,
    write_population,
)

VIRGINIA = Path(__file__).parents[1] / "fixtures/virginia2000/household_size_blockgroup.csv"
LEVELS = ["state", "county", "tract", "bg"]
PRODUCT = Product("household-sizes", "synthetic-test", "person")
DATA = os.environ.get("PGSR_DATA", "")


def make(folder: Path, *, seed: int = 3, people: int = 12_000, rows: int = 5_000) -> Written:
    population = draw_population(Shape.US, people=people, seed=seed, fan_out=(3, 4))
    return write_population(population, folder, product=PRODUCT, rows_per_part=rows)


def rows_of(query: str, **patterns: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        return connection.execute(query, patterns).fetchall()


def files_of(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def virginia(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("virginia")
    population = read_histogram(VIRGINIA, level_columns=LEVELS, empty_share=0.1)
    write_population(population, folder, product=PRODUCT, rows_per_part=10_000)
    return folder


# What is in the files


def test_counting_the_expanded_persons_gives_the_histogram_back(virginia: Path) -> None:
    found = rows_of(
        """
        select region_id, size, count(*) from (
            select region_id, unit_id, count(*) as size
            from read_parquet($persons) group by all
        ) group by all
        """,
        persons=f"{virginia}/persons/*.parquet",
    )
    with VIRGINIA.open(newline="") as file:
        expected = {
            (row["bg"], size): int(row[column])
            for row in csv.DictReader(file)
            for size, column in enumerate(("h1", "h2", "h3", "h4", "h5", "h6", "h7plus"), start=1)
            if int(row[column])
        }
    assert {(region, size): count for region, size, count in found} == expected


@pytest.mark.parametrize("kind", ["virginia", "drawn"])
def test_the_unit_table_lists_every_unit_of_the_persons_in_the_same_region(
    kind: str, virginia: Path, tmp_path: Path
) -> None:
    folder = virginia if kind == "virginia" else make(tmp_path).folder
    units = yaml.safe_load((folder / "product.yaml").read_text())["units"]
    listed, distinct, empty, wrong = rows_of(
        """
        with lived_in as (
            select unit_id, any_value(region_id) as region_id,
                count(distinct region_id) as regions
            from read_parquet($persons) group by unit_id
        )
        select count(unit), count(distinct unit), count(*) filter (unit_id is null),
            count(*) filter (unit is null or region_id != region or regions > 1)
        from read_parquet($units) full join lived_in on unit = unit_id
        """,
        persons=f"{folder}/persons/*.parquet",
        units=f"{folder}/{units}",
    )[0]
    assert wrong == 0
    assert listed == distinct
    assert empty / listed == pytest.approx(0.1 if kind == "virginia" else 0.05, abs=0.01)


def test_person_ids_are_the_numbers_from_1_to_the_number_of_people(tmp_path: Path) -> None:
    make(tmp_path)
    found = rows_of(
        """
        select count(*), count(distinct person_id), min(person_id), max(person_id)
        from read_parquet($persons)
        """,
        persons=f"{tmp_path}/persons/*.parquet",
    )
    assert found == [(12_000, 12_000, 1, 12_000)]


def test_columns_have_plain_types(tmp_path: Path) -> None:
    make(tmp_path, rows=6_000)
    persons, units = (
        rows_of("describe from read_parquet($pattern)", pattern=f"{tmp_path}/{pattern}")
        for pattern in ("persons/*.parquet", "units.parquet")
    )
    assert [row[:2] for row in persons] == [
        ("person_id", "BIGINT"),
        ("unit_id", "BIGINT"),
        ("region_id", "VARCHAR"),
    ]
    assert [row[:2] for row in units] == [("unit", "BIGINT"), ("region", "VARCHAR")]


def test_neighbouring_rows_do_not_belong_to_one_unit(tmp_path: Path) -> None:
    make(tmp_path, rows=20_000)
    (part,) = (tmp_path / "persons").iterdir()
    units = pq.read_table(part)["unit_id"].to_numpy()
    assert (units[1:] == units[:-1]).mean() < 0.01


def test_regions_are_one_tree_whose_leaves_hold_all_units(virginia: Path) -> None:
    with (virginia / "regions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    tree = RegionTree.from_table([row["region"] for row in rows], [row["parent"] for row in rows])
    assert tree.names[0] == "51"
    assert [int(n) for n in tree.level_start] == [0, 1, 5, 16, 49]
    units = f"{virginia}/units/*.parquet"
    distinct = rows_of("select distinct region from read_parquet($units)", units=units)
    held = {region for (region,) in distinct}
    assert held < {tree.names[leaf] for leaf in tree.leaves}
    assert "511150000000" not in held


def test_the_configuration_is_valid_and_its_paths_lead_to_the_files(virginia: Path) -> None:
    configuration = Configuration.model_validate(
        yaml.safe_load((virginia / "product.yaml").read_text())
    )
    assert configuration.sizes.max == 7
    assert not configuration.units_from_data
    for pattern in (*configuration.source.persons, configuration.regions, configuration.units):
        assert list(virginia.glob(str(pattern))), pattern


# Parts, seeds, refusals


def test_no_part_has_more_rows_than_asked_for(tmp_path: Path) -> None:
    written = make(tmp_path, rows=1_700)
    for table, parts in (("persons", written.person_parts), ("units", written.unit_parts)):
        rows = [pq.read_metadata(path).num_rows for path in sorted((tmp_path / table).iterdir())]
        assert len(rows) == parts > 1
        assert set(rows[:-1]) == {1_700}
        assert 0 < rows[-1] <= 1_700


def test_a_small_unit_table_is_one_file(tmp_path: Path) -> None:
    make(tmp_path, rows=1_000_000)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".pgsr",
        "persons",
        "product.yaml",
        "regions.csv",
        "units.parquet",
    ]


def test_the_size_of_the_parts_does_not_change_the_people(tmp_path: Path) -> None:
    make(tmp_path / "a", rows=999)
    make(tmp_path / "b", rows=100_000)
    persons = [
        rows_of(
            "select * from read_parquet($persons) order by all",
            persons=f"{tmp_path}/{name}/persons/*.parquet",
        )
        for name in "ab"
    ]
    assert persons[0] == persons[1]


def test_one_seed_gives_the_same_bytes_and_another_seed_other_persons(tmp_path: Path) -> None:
    first, again, other = (
        files_of(make(tmp_path / name, seed=seed).folder)
        for name, seed in (("a", 3), ("b", 3), ("c", 4))
    )
    assert first == again
    assert first["persons/part-00000.parquet"] != other["persons/part-00000.parquet"]


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    population = draw_population(Shape.TAXI, people=5_000, seed=1, fan_out=(2, 3))
    write_population(
        population,
        tmp_path,
        product=PRODUCT,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == sorted(seen)
    assert seen[-1] == (5_000, 5_000)


def test_a_folder_with_anything_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    with pytest.raises(OutputNotEmpty, match="Remedy: "):
        make(tmp_path)
    assert files_of(tmp_path) == {"precious": b"x"}


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(OutputNotEmpty):
        make(tmp_path / "out")
    with pytest.raises(OutputNotWritable):
        make(tmp_path / "out" / "below")


def test_an_interrupted_run_leaves_an_empty_folder(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done > 3_000:
            raise KeyboardInterrupt

    population = draw_population(Shape.US, people=12_000, seed=1, fan_out=(3, 4))
    with pytest.raises(KeyboardInterrupt):
        write_population(
            population, tmp_path, product=PRODUCT, rows_per_part=1_000, progress=interrupt
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rows", [0, -5, 10**9])
def test_the_size_of_the_parts_has_bounds(tmp_path: Path, rows: int) -> None:
    with pytest.raises(BadOption, match="rows-per-part"):
        make(tmp_path, rows=rows)


# Histograms


def histogram(folder: Path, text: str) -> Path:
    path = folder / "histogram.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "error", "rows"),
    [
        ("a,b,h1\nV,x,1\n", MissingColumn, ()),
        ("a,b,h1,h2,h2\nV,x,1,2,3\n", MissingColumn, ()),
        ("a,b,h1,h2\nV,x,1,2\nV,y,1,-2\n", BadGroupCount, (2,)),
        ("a,b,h1,h2\nV,x,1,\n", BadGroupCount, (1,)),
        ("a,b,h1,h2\nV,x,1\n", BadGroupCount, (1,)),
        ("a,b,h1,h2\n,x,1,2\n", LevelGap, (1,)),
        ("a,b,h1,h2\nV,x,1,2\n,,1,2\n", LevelGap, (2,)),
        ("a,b,h1,h2\nV,x,1,2\nV,,1,2\n", GroupsAboveLeaf, (2,)),
        ("a,b,h1,h2\nV,x,0,0\n", NoPeople, ()),
        ("a,b,h1,h2\n", NoPeople, ()),
    ],
)
def test_a_bad_histogram_is_refused_with_rule_place_and_remedy(
    tmp_path: Path, text: str, error: type[HistogramError], rows: tuple[int, ...]
) -> None:
    with pytest.raises(error, match="Remedy: ") as caught:
        read_histogram(
            histogram(tmp_path, text), level_columns=["a", "b"], size_columns=["h1", "h2"]
        )
    assert caught.value.rows == rows


@pytest.mark.parametrize(
    ("levels", "sizes", "option"),
    [
        ([], None, "level-columns"),
        (["a"], [], "size-columns"),
        (["a"], ["a"], "size-columns"),
        (["a"], ["h1", "x1"], "size-columns"),
        (["a"], ["h0"], "size-columns: largest size"),
    ],
)
def test_bad_columns_are_named(
    tmp_path: Path, levels: list[str], sizes: list[str] | None, option: str
) -> None:
    path = histogram(tmp_path, "a,h0,h1,x1\nV,1,1,1\n")
    with pytest.raises(BadOption) as caught:
        read_histogram(path, level_columns=levels, size_columns=sizes)
    assert caught.value.option == option


def test_a_file_that_cannot_be_read_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(HistogramNotReadable, match="PGSR_DATA"):
        read_histogram(tmp_path / "absent.csv", level_columns=["a"])
    (tmp_path / "latin.csv").write_bytes(b"a,h1\nM\xf4n,1\n")
    with pytest.raises(HistogramError):
        read_histogram(tmp_path / "latin.csv", level_columns=["a"])


def test_clashing_and_quoted_names_give_safe_ids_and_keep_their_names(tmp_path: Path) -> None:
    path = histogram(
        tmp_path,
        'country,region,place,h1,h2plus\nWales,Wales,"=A1, B",1,0\nEngland,North,Wales,0,2\n',
    )
    population = read_histogram(path, level_columns=["country", "region", "place"])
    assert set(population.regions.rows()) == {
        ("all", "", "All regions"),
        ("Wales", "all", "Wales"),
        ("England", "all", "England"),
        ("Wales.Wales", "Wales", "Wales"),
        ("North", "England", "North"),
        ("A1_B", "Wales.Wales", "A1, B"),
        ("England.North.Wales", "North", "Wales"),
    }


@pytest.mark.skipif(not DATA, reason="PGSR_DATA names no folder of real data")
def test_england_and_wales_is_one_tree_with_all_its_areas() -> None:
    population = read_histogram(
        Path(DATA) / "ew2021_household_size_lsoa.csv",
        level_columns=["country", "region", "lad_name", "msoa_name", "lsoa21"],
    )
    tree = population.regions.tree()
    levels = [1, 2, 10, 331, 7_264, 35_672]
    assert [int(n) for n in tree.level_start[1:] - tree.level_start[:-1]] == levels
    assert int(population.counts.sum()) == 24_783_486
    assert population.max_size == 8


# The command


def run(*arguments: object) -> tuple[str, BaseException | None]:
    app = typer.Typer()
    app.command()(synth)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.stdout, result.exception


def test_the_command_writes_a_population_and_says_so_as_json(tmp_path: Path) -> None:
    out, error = run(tmp_path / "o", "--people", "3_000", "--fan-out", "2,3", "--json")
    assert error is None
    facts = json.loads(out)
    assert (facts["people"], facts["regions"], facts["max_size"]) == (3_000, 9, 1_000)
    assert Path(facts["configuration"]).is_file()


def test_taxi_trips_are_protected_as_trips(tmp_path: Path) -> None:
    _, error = run(tmp_path / "o", "--shape", "taxi", "--people", "3000")
    assert error is None
    configuration = yaml.safe_load((tmp_path / "o/product.yaml").read_text())
    assert configuration["population"]["unit_of_privacy"] == "trip"
    assert configuration["sizes"]["max"] == 13_282


def test_a_histogram_is_also_sought_in_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSR_DATA", str(VIRGINIA.parent))
    out, error = run(
        tmp_path / "o", "--from-histogram", VIRGINIA.name, "--level-columns", ",".join(LEVELS)
    )
    assert error is None
    assert out.startswith("31,689 rows")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--people", "0"),
        ("--fan-out", "a,b"),
        ("--shape", "custom"),
        ("--seed", "-1"),
        ("--empty-share", "1"),
        ("--level-columns", "a"),
        ("--from-histogram", VIRGINIA),
        ("--from-histogram", VIRGINIA, "--level-columns", "county", "--people", "5"),
        ("--from-histogram", VIRGINIA, "--level-columns", "county", "--shape", "us"),
        ("--from-histogram", "absent.csv", "--level-columns", "county"),
    ],
)
def test_a_bad_command_ends_in_an_expected_error_and_writes_nothing(
    tmp_path: Path, arguments: tuple[object, ...]
) -> None:
    _, error = run(tmp_path / "o", *arguments)
    assert isinstance(error, PgsrError)
    assert error.exit_code == 2
    assert "Remedy: " in str(error)
    assert not (tmp_path / "o").exists()
