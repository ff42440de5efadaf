"""Reports of very many sizes, and bundles whose report cannot be made."""

from __future__ import annotations

import json
import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.bundles import FolderBundle
from tasks.pages import drawing
from tasks.pages.drawing import NotDrawn, draw
from tasks.publication import bundle
from tasks.publication.bundle import build_bundle
from tasks.publication.place import verified_checksums
from tasks.publication.report import charts, figures
from tasks.publication.report.bins import LARGEST_BY_ITSELF, size_bins
from tasks.publication.report.charts import Chart
from tasks.publication.report.figures import SizeAxes
from tasks.publication.report.outline import Canvas
from tasks.publication.report.page import outline_report, render_report
from tasks.publication.report.reading import read_report_tables
from tasks.publication.report.stages import example_of
from tasks.publication.report.verification import check_report
from tasks.site.bundles import Bundle
from tasks.site.comparison import Verdict, compare
from tasks.site.figures import change_svg
from tests.pages.large_release import large_direct_facts, large_facts, large_store
from tests.pages.packed import numbers_of, release_of
from tests.tasks.test_publication_bundle import build, example_facts, reading

MILLION = 1_000_000
A_FEW_MEGABYTES = 3_000_000
FACTS = example_facts(certificates={"cpwl": {"optimal": True}, "margins": {"repetitions": 40}})


def bundle_of(folder: Path, *, regions: int, largest: int) -> Path:
    store = large_store(folder / "safe.duckdb", regions=regions, largest=largest)
    facts = large_facts(regions=regions, largest=largest)
    with reading(store, folder) as connection:
        build_bundle(connection, folder / "bundle", facts, formats=("parquet",))  # type: ignore[arg-type]
    return folder / "bundle"


def summed(folder: Path, region: str, bins: list[list[int]]) -> list[int]:
    """The slow, obvious twin: the published counts of a region, range by range."""
    with duckdb.connect() as connection:
        rows = connection.execute(
            f"SELECT \"count\" FROM '{folder}/group_sizes.parquet' WHERE region = $region "
            "ORDER BY size",
            {"region": region},
        ).fetchall()
    return [sum(count for (count,) in rows[first : last + 1]) for first, last in bins]


def test_a_million_sizes_make_a_page_of_ranges(tmp_path: Path) -> None:
    made = bundle_of(tmp_path, regions=3, largest=MILLION)
    page = (made / "report.html").read_text(encoding="utf-8")
    assert len(page) < A_FEW_MEGABYTES
    assert page.count("<svg xmlns") == 4  # two levels, two pictures of the stages: all was drawn
    shown = release_of(page)
    (numbers,) = numbers_of(page)
    assert numbers["released"][1] == summed(made, "r0001", shown["bins"])
    for label in ("3–4", "200,000–499,999", "1,000,000 or more"):
        assert f'<th scope="row">{label}</th>' in page
    # The margins of single sizes are neither added up nor shown as those of a range.
    assert set(numbers) == {"released", "measured", "fitted"}
    assert "Margins of error belong to single sizes" in page
    assert check_report(FolderBundle(made)).holds


def test_many_sizes_in_many_regions_make_a_page_of_ranges(tmp_path: Path) -> None:
    made = bundle_of(tmp_path, regions=100, largest=20_000)
    page = (made / "report.html").read_text(encoding="utf-8")
    assert len(page) < A_FEW_MEGABYTES
    (numbers,) = numbers_of(page)
    assert len(numbers["released"]) == 100
    assert numbers["released"][99] == summed(made, "r0099", release_of(page)["bins"])
    assert check_report(FolderBundle(made)).holds


def test_ranges_show_measurements_of_at_least_k_at_their_first_size(tmp_path: Path) -> None:
    store = large_store(tmp_path / "safe.duckdb", regions=3, largest=5_000)
    facts = large_facts(regions=3, largest=5_000)
    with reading(store, tmp_path) as connection:
        tables = read_report_tables(connection, facts)  # type: ignore[arg-type]
        found = connection.execute(  # type: ignore[attr-defined]
            "SELECT value FROM measurements WHERE region_index = 2 ORDER BY size"
        ).fetchall()
    rows = example_of(facts, tables, Canvas()).rows
    assert [row["label"] for row in rows[:5]] == ["≥ 1", "≥ 2", "≥ 3", "≥ 5", "≥ 10"]
    assert tables.measured[2].tolist() == [found[row["size"] - 1][0] for row in rows]


def test_ranges_of_measured_counts_are_added_up(tmp_path: Path) -> None:
    store = large_store(tmp_path / "safe.duckdb", regions=3, largest=5_000)
    with duckdb.connect(str(store)) as connection:
        connection.execute(
            "CREATE OR REPLACE TABLE measurements AS SELECT region_index, size, value - size % 3 "
            "AS value FROM group_sizes"
        )
    facts = large_direct_facts(regions=3, largest=5_000)
    with reading(store, tmp_path) as connection:
        tables = read_report_tables(connection, facts)  # type: ignore[arg-type]
        build_bundle(connection, tmp_path / "bundle", facts, formats=("csv",))  # type: ignore[arg-type]
    bins = size_bins(facts.sizes)
    assert bins is not None
    lost = [sum(size % 3 for size in range(first, last + 1)) for first, last in bins]
    assert (tables.released - tables.measured).tolist() == [lost] * 3
    labels = [row["label"] for row in example_of(facts, tables, Canvas()).rows]
    assert labels[:5] == ["0", "1", "2", "3–4", "5–9"]
    assert labels[-1] == "5,000+"
    assert check_report(FolderBundle(tmp_path / "bundle")).holds


@given(smallest=st.sampled_from([0, 1]), largest=st.integers(LARGEST_BY_ITSELF + 1, 2**31 - 1))
def test_ranges_hold_every_size_once_and_the_largest_alone(smallest: int, largest: int) -> None:
    bins = size_bins(range(smallest, largest + 1))
    assert bins is not None
    assert bins[0][0] == smallest
    assert bins[-1] == (largest, largest)
    assert len(bins) <= figures.MOST_BARS + 3
    for (first, last), (after, _) in pairwise(bins):
        assert first <= last == after - 1
    # A size of 0 is counted and not measured: it is no part of a range.
    assert (size_bins(range(1, largest + 1)) or ())[-3:] == bins[-3:]
    assert smallest == 1 or bins[1:] == size_bins(range(1, largest + 1))


def test_sizes_that_fit_are_shown_by_themselves() -> None:
    assert size_bins(range(LARGEST_BY_ITSELF + 1)) is None
    assert size_bins(range(1, 21)) is None


def test_compiled_charts_are_those_of_the_installed_library() -> None:
    kept = (Path(charts.__file__).parent / "assets" / charts.FILE).read_text(encoding="utf-8")
    assert kept == charts.compile_charts(), "run python -m tasks.publication.report.charts"


@pytest.mark.parametrize("sizes", [range(5), range(1, 32), range(40), range(2_001), range(9_999)])
@pytest.mark.parametrize("name", ["sizes", "stages", "changes"])
def test_a_compiled_chart_is_the_one_that_its_axes_give(name: str, sizes: range) -> None:
    axes = SizeAxes(sizes, "Size k of the group", "Difference from released")
    made = getattr(figures, f"{name}_figure")(axes)
    assert Chart(name, axes).compiled() == {
        "vega": made.vega(),
        "logarithmic": list(made.logarithmic),
    }


def assert_plain(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "could not be made on this occasion" in page
    assert "<svg" not in page
    assert "ε-differentially private with ε = 1/2 (0.5)" in page
    assert "Counts add up to G at every level." in page
    assert "<code>group_sizes.parquet</code>" in page
    assert "report.html" in verified_checksums(folder)
    assert check_report(FolderBundle(folder)).holds


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("V8"), NotDrawn("killed")])
def test_a_page_that_cannot_be_made_never_stops_a_bundle(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(bundle, "render_report", fail)
    with caplog.at_level(logging.WARNING, logger="pgsr"):
        folder = build(tmp_path, FACTS)
    assert_plain(folder)
    (told,) = (record.getMessage() for record in caplog.records)
    assert "could not be made" in told
    assert type(error).__name__ in told


def test_tables_that_cannot_be_read_for_a_page_never_stop_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise duckdb.OutOfMemoryException("failed to allocate data")

    monkeypatch.setattr(bundle, "read_report_tables", fail)
    assert_plain(build(tmp_path, FACTS))


def test_whoever_interrupts_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(bundle, "render_report", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path)


DEATHS = {
    "aborts": "import os; os.abort()",
    "is killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "fails": "raise SystemExit(1)",
    "says nothing": "",
    "says something else": "print('[1, 2, 3]')",
    "never ends": "import time; time.sleep(600)",
}


@pytest.mark.parametrize("program", DEATHS.values(), ids=DEATHS)
def test_a_release_outlives_the_process_that_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    hostile = tmp_path / "drawing.py"
    hostile.write_text(program)
    monkeypatch.setattr(drawing, "__file__", str(hostile))
    monkeypatch.setattr(drawing, "MOST_SECONDS", 5)
    assert_plain(build(tmp_path, FACTS))


def test_what_vega_does_not_take_is_not_drawn() -> None:
    with pytest.raises(NotDrawn):
        draw([{"marks": [{"type": "nothing of the kind"}]}])
    assert draw([]) == []


def test_a_chart_is_drawn_where_another_module_of_the_name_lies_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vl_convert.py").write_text("raise SystemExit(3)")
    (tmp_path / "json.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    assert draw([{"width": 5, "height": 5, "marks": []}])[0].startswith("<svg ")


def test_a_page_says_the_same_whatever_draws_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = large_store(tmp_path / "safe.duckdb", regions=3, largest=50)
    facts = large_facts(regions=3, largest=50)
    with reading(store, tmp_path) as connection:
        tables = read_report_tables(connection, facts)  # type: ignore[arg-type]
    outline = outline_report(facts, tables, formats=("csv",))
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "tasks.publication.report.outline.draw",
        lambda each: asked.extend(each) or ["<svg></svg>"] * len(each),
    )
    page = render_report(facts, tables, formats=("csv",))
    assert page.count("<svg></svg>") == len(asked) == len(outline.drawings) == 4
    assert "<!--" not in page
    assert np.isfinite([row["count"] for row in asked[0]["data"][0]["values"]]).all()
    assert json.dumps(asked) == json.dumps(outline.drawings)


def test_releases_of_very_many_sizes_are_compared_in_ranges(tmp_path: Path) -> None:
    sides = []
    for place in ("earlier", "later"):
        (tmp_path / place).mkdir()
        made = bundle_of(tmp_path / place, regions=3, largest=10 * LARGEST_BY_ITSELF)
        sides.append(Bundle(made, {}, {}, {}, verified_checksums(made)))
    found = compare(*sides)
    bins = size_bins(found.sizes)
    assert bins is not None
    assert [cell.size for cell in found.root] == [first for first, _ in bins]
    assert [cell.later for cell in found.root] == summed(made, "r0000", [list(b) for b in bins])
    assert {cell.lowest for cell in found.root} == {None}
    assert {cell.verdict for cell in found.root} == {Verdict.SAME}
    assert "20k+" in change_svg(found)
