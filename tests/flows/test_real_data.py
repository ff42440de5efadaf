"""Whole releases of real households, from published histograms expanded to persons.

The data are not part of the project: `PGSR_DATA` names the folder that holds them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

from tests.flows.commandline import Pgsr, broken_promises
from tests.pages.browsing import chromium, visiting


@dataclass(frozen=True)
class Census:
    """A published histogram: its file, its levels, and what it is known to hold."""

    file: str
    levels: str
    households: int
    largest_size: int


VIRGINIA = Census("us_va2000_household_size_blockgroup.csv", "state,county,tract,bg", 2_699_173, 7)
ENGLAND_AND_WALES = Census(
    "ew2021_household_size_lsoa.csv",
    "country,region,lad_name,msoa_name,lsoa21",
    24_783_486,
    8,
)


def data_file(census: Census) -> Path:
    path = Path(os.environ.get("PGSR_DATA", "")) / census.file
    if "PGSR_DATA" not in os.environ or not path.is_file():
        pytest.skip("PGSR_DATA names no folder of real data")
    return path


@pytest.mark.parametrize(
    "census",
    [
        pytest.param(VIRGINIA, id="virginia-2000"),
        # 58 million persons: minutes, so it is run by `make test-large`.
        pytest.param(ENGLAND_AND_WALES, id="england-and-wales-2021", marks=pytest.mark.large),
    ],
)
def test_a_census_is_expanded_released_keeps_every_promise_and_can_be_looked_at(
    pgsr: Pgsr, tmp_path: Path, census: Census
) -> None:
    histogram = data_file(census)
    made = pgsr(
        "synth", "census", "--from-histogram", histogram, "--level-columns", census.levels,
        cwd=tmp_path,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    folder = tmp_path / "census"
    bundle = Path(pgsr.json("release", "product.yaml", cwd=folder)["bundle"])
    with duckdb.connect() as connection:
        pattern = "units.parquet" if (folder / "units.parquet").exists() else "units/*.parquet"
        [(groups,)] = connection.sql(f"SELECT count(*) FROM '{folder}/{pattern}'").fetchall()
        [(occupied,)] = connection.sql(
            f"SELECT count(DISTINCT unit_id) FROM '{folder}/persons/*.parquet'"
        ).fetchall()
    assert occupied == census.households
    assert broken_promises(bundle, groups=groups, sizes=census.largest_size + 1) == []
    site = tmp_path / "site"
    built = pgsr("audit", "site", site, cwd=folder)
    assert built.returncode == 0, built.stderr
    with chromium() as browser:
        with visiting(browser, bundle / "report.html") as visit:
            assert f"{groups:,}" in visit.text
            assert visit.complaints == []
        with visiting(browser, site / "index.html", ready="body") as visit:
            visit.page.get_by_role("link", name=bundle.name, exact=True).first.click()
            visit.page.frame_locator("#report").locator("body[data-region]").wait_for()
            assert visit.complaints == []
