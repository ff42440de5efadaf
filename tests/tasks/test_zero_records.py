"""Zero records are a neighbour of one record: they are measured like any others."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from datetime import date
from multiprocessing import get_context
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from pgsr_core.mechanisms import MECHANISMS
from tasks.keys import create_key
from tasks.stages.prepare import prepare
from tests.tasks.in_process import run_stages
from tests.tasks.test_ingestion import UNITS, check, ingest, tree_of, write_units

HEADER = "person,unit,region,beds\n"
COLUMNS = HEADER.strip().split(",")
TYPED = pa.schema([(name, pa.string()) for name in COLUMNS[:3]] + [("beds", pa.int32())])
CONFIGURATION = """\
product: nests
release: first
population: {name: birds, budget: "4", unit_of_privacy: bird}
source:
  persons: persons.csv
  columns: {person: person, unit: unit, region: region, quantity: beds}
regions: regions.csv
units: UNITS
sizes: {max: 4, largest_contribution: 2}
privacy: {epsilon: "2"}
mechanism: MECHANISM
publish: {to: public, signing_key: release.key}
"""


def write_nothing(folder: Path, kind: str) -> tuple[str, str | None]:
    """Write a person table without rows; the path or pattern to read, and a DuckDB table."""
    if kind == "csv":
        (folder / "persons.csv").write_text(HEADER)
    elif kind == "csv without a line's end":
        (folder / "persons.csv").write_text(HEADER.strip())
    elif kind == "parquet":
        pq.write_table(TYPED.empty_table(), folder / "persons.parquet")
    elif kind == "parquet without types":
        pd.DataFrame(columns=COLUMNS).to_parquet(folder / "persons.parquet")
    elif kind == "many csv":
        (folder / "persons-1.csv").write_text(HEADER)
        (folder / "persons-2.csv").write_text("beds,region,unit,person\n")
        return "persons-*.csv", None
    elif kind == "many parquet":
        pq.write_table(TYPED.empty_table(), folder / "persons-1.parquet")
        pd.DataFrame(columns=COLUMNS).to_parquet(folder / "persons-2.parquet")
        return "persons-*.parquet", None
    else:
        with duckdb.connect(str(folder / "persons.duckdb")) as connection:
            connection.execute(
                "CREATE TABLE people (person TEXT, unit BIGINT, region TEXT, beds INTEGER)"
            )
        return "persons.duckdb", "people"
    return f"persons.{kind.split(maxsplit=1)[0]}", None


KINDS = [
    *("csv", "csv without a line's end", "many csv", "duckdb"),
    *("parquet", "parquet without types", "many parquet"),
]


@pytest.mark.parametrize("with_units", [True, False])
@pytest.mark.parametrize("quantity", ["beds", None])
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_without_rows_is_counted_like_any_other(
    kind: str, quantity: str | None, with_units: bool, tmp_path: Path
) -> None:
    source, table = write_nothing(tmp_path, kind)
    write_units(tmp_path / "units.csv", UNITS)
    units = "units.csv" if with_units else None
    result = ingest(tmp_path, source, quantity=quantity, units=units, table=table)
    check(result, [], UNITS if with_units else None, tree_of(tmp_path))
    assert result.counts.dtype == np.int64


def test_records_that_add_nothing_leave_no_group_and_are_counted(tmp_path: Path) -> None:
    (tmp_path / "persons.csv").write_text(HEADER + "1,10,51,0\n")
    result = ingest(tmp_path, "persons.csv", quantity="beds")
    check(result, [("1", "10", "51", 0)], None, tree_of(tmp_path))
    assert result.groups == 0


@pytest.mark.parametrize("units", ["units.csv", "from-data"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_release_of_no_records_is_published_and_verifies(
    mechanism: str, units: str, tmp_path: Path
) -> None:
    # OR-tools cannot be imported where HiGHS was, as other tests do.
    if MECHANISMS[mechanism].requires == "ortools":
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as elsewhere:
            elsewhere.submit(release_nothing, mechanism, units, tmp_path).result()
    else:
        release_nothing(mechanism, units, tmp_path)


def release_nothing(mechanism: str, units: str, folder: Path) -> None:
    (folder / "persons.csv").write_text(HEADER)
    (folder / "regions.csv").write_text("region,parent\nwood,\noak,wood\nelm,wood\n")
    (folder / "units.csv").write_text("unit,region\nn1,oak\nn2,elm\nn3,elm\n")
    configuration = folder / "product.yaml"
    configuration.write_text(CONFIGURATION.replace("UNITS", units).replace("MECHANISM", mechanism))
    key = create_key(folder / "release.key")
    bundle = run_stages(prepare(configuration, slot=date(2026, 1, 1)))
    table = pd.read_parquet(bundle / "group_sizes.parquet")
    groups = 0 if units == "from-data" else 3
    assert table.groupby("level")["count"].sum().tolist() == [groups, groups]
    for arguments in (["verify", str(bundle), "--key", str(key.public)], ["replay", str(bundle)]):
        done = CliRunner().invoke(app, ["audit", *arguments])
        assert done.exit_code == 0, (done.output, done.exception)
