"""What a report says and holds, and that the same release gives the same bytes."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.report import release
from benchmarks.workloads import US, tiny
from pgsr_core.margins import BOUNDS
from pgsr_core.margins.tables import bounds_hold
from pgsr_core.postprocessing.protocol import Query
from tasks.pages import vega
from tasks.pages.charts import decades, round_sizes
from tasks.pages.frame import content_policy, thousands
from tasks.publication.facts import SIMULATION_NOTICE
from tasks.publication.report.outline import Canvas
from tasks.publication.report.page import SECTIONS, render_report
from tasks.publication.report.reading import read_report_tables
from tasks.publication.report.stages import example_of, stage_rows, stage_words
from tests.pages.example_release import example_release
from tests.pages.packed import numbers_of, release_of
from tests.tasks.test_publication_bundle import example_facts, make_store, reading

PARQUET = ("parquet",)


def test_a_report_holds_the_numbers_of_every_region_and_nothing_else() -> None:
    facts, tables = example_release()
    page = render_report(facts, tables, formats=PARQUET)
    (numbers,) = numbers_of(page)
    assert tables.fitted is not None
    assert tables.bounds is not None
    assert numbers == {
        "released": tables.released.tolist(),
        "measured": tables.measured.tolist(),
        "fitted": tables.fitted.tolist(),
        **dict(zip(BOUNDS, tables.bounds.tolist(), strict=True)),
    }
    regions = release_of(page)["regions"]
    assert regions["ids"] == list(tables.ids)
    assert regions["totals"] == tables.released.sum(axis=1).tolist()


def test_margins_are_shown_by_level_where_they_are_stated_and_nowhere_else() -> None:
    facts, tables = example_release()
    page = render_report(facts, tables, formats=PARQUET)
    assert page.count('<td class="number">± 3</td><td class="number">± 5</td>') == 3 * 4
    without = replace(
        tables,
        bounds=None,
        levels=tuple(replace(level, half_widths=None) for level in tables.levels),
    )
    bare = render_report(replace(facts, margin_repetitions=0), without, formats=PARQUET)
    assert "±" not in bare
    assert set(next(numbers_of(bare))) == {"released", "measured", "fitted"}


def test_the_stages_are_told_as_the_mechanism_has_them() -> None:
    facts, tables = example_release()
    assert [name for name, _ in stage_words(facts)] == [
        "Measure with noise",
        "Put in order",
        "Make the tree add up",
    ]
    rows = stage_rows(facts, tables, 1)
    assert [row["label"] for row in rows] == ["≥ 1", "≥ 2", "≥ 3"]
    assert [row["released"] for row in rows] == [tables.released[1][k:].sum() for k in (1, 2, 3)]
    for row in rows:
        assert row["noisy_change"] == row["noisy"] - row["released"]
        assert row["fitted_change"] == row["fitted"] - row["released"]


def test_a_direct_measurement_is_compared_with_counts_and_has_no_fit() -> None:
    facts, tables = example_release()
    levels = tuple(
        replace(level, cells=level.regions * 4, scale=2 * level.scale) for level in facts.levels
    )
    direct = replace(
        facts, query=Query.COUNTS, sensitivity=2, levels=levels, certificates={"cpwl": {}}
    )
    counted = replace(tables, measured=tables.released + 1, fitted=None)
    rows = stage_rows(direct, counted, 2)
    assert [row["label"] for row in rows] == ["0", "1", "2", "3+"]
    assert {row["noisy_change"] for row in rows} == {1}
    assert {row["fitted"] for row in rows} == {None}
    page = render_report(direct, counted, formats=PARQUET)
    assert "isotonic" not in page[: page.index('id="release"')]


def test_the_example_is_the_lowest_region_that_moved_most() -> None:
    facts, tables = example_release()
    moved = tables.measured.copy()
    moved[3, 0] += 1000
    moved[2, 0] += 5000  # one level up
    assert example_of(facts, replace(tables, measured=moved), Canvas()).id == "a1"


def test_a_page_holds_whole_levels_from_the_top_as_far_as_they_fit(tmp_path: Path) -> None:
    store = make_store(tmp_path / "safe.duckdb")
    facts = example_facts()
    for most_cells, held in ((1, 1), (3 * 3, 3), (3 * 4 - 1, 3), (3 * 4, 4)):
        with reading(store, tmp_path) as connection:
            tables = read_report_tables(connection, facts, most_cells=most_cells)  # type: ignore[arg-type]
        assert len(tables.ids) == len(tables.released) == held
        assert [level.groups for level in tables.levels] == [10, 10, 10]
        page = render_report(facts, tables, formats=PARQUET)
        assert release_of(page)["held_levels"] == tables.held_levels


def test_a_simulation_is_marked_above_and_below_and_says_that_it_protects_nobody() -> None:
    facts, tables = example_release()
    page = render_report(replace(facts, simulation=True), tables, formats=PARQUET)
    text = page[page.index("<body>") : page.index('id="release"')]
    assert text.count(SIMULATION_NOTICE) >= 3
    assert "it protects nobody" in text
    assert "a simulation is never signed" in text
    assert "nobody can predict" not in text


def test_a_signed_release_names_its_key_and_how_to_verify_it() -> None:
    facts, tables = example_release()
    signed = render_report(facts, tables, formats=PARQUET, keyid="c0ffee" * 10)
    assert "c0ffee" * 10 in signed
    assert "pgsr audit verify . --key" in signed
    unsigned = render_report(facts, tables, formats=PARQUET)
    assert "pgsr audit verify" not in unsigned
    assert "without a signing key" in unsigned


def test_every_section_is_reached_from_the_contents() -> None:
    facts, tables = example_release()
    page = render_report(facts, tables, formats=PARQUET)
    for name, _ in SECTIONS:
        assert f'<a href="#{name}">' in page
        assert f'<h2 id="{name}">' in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def digests() -> list[str]:
    """Of a report of few sizes and of one of many."""
    found = []
    for sizes in (range(4), range(200)):
        page = render_report(*example_release(sizes=sizes), formats=PARQUET)
        found.append(hashlib.sha256(page.encode()).hexdigest())
    return found


def test_another_process_with_other_hashes_and_hours_writes_the_same_bytes() -> None:
    code = "from tests.pages.test_report import digests; print(*digests())"
    there = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        env={"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "PYTHONPATH": "."},
    ).stdout.split()
    assert len(set(there)) == 2
    assert there == digests()


def test_a_chart_is_drawn_with_text_and_the_pages_own_colours() -> None:
    facts, tables = example_release()
    page = render_report(facts, tables, formats=PARQUET)
    chart = page[page.index("<svg") : page.index("</svg>")]
    for text in ("Size of the group", ">3+<", ">0<"):
        assert text in chart
    assert "var(--bar)" in chart
    # Nothing is measured in fonts, of which machines have different ones.
    assert 'width="456"' in chart


def test_the_runtime_of_the_charts_is_that_of_the_installed_library() -> None:
    assert vega.RUNTIME.read_text(encoding="utf-8") == vega.runtime(), (
        "run python -m tasks.pages.vega"
    )


def test_the_policy_of_a_page_names_its_scripts_and_no_source() -> None:
    policy = content_policy(["alert(1)"])
    assert policy.startswith("default-src 'none'; ")
    # SHA-256 of the script, as `openssl dgst -sha256 -binary | base64` gives it.
    assert "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='" in policy
    assert not re.search(r"https?:|\*", policy)
    assert "script-src 'sha256-" in policy
    assert "unsafe-eval" not in policy


@pytest.mark.parametrize(
    ("smallest", "largest", "ticks"),
    [(0, 0, [0]), (0, 250, [0, 1, 10, 100]), (-40, 3, [-10, -1, 0, 1]), (0.2, 0.9, [0])],
)
def test_ticks_are_zero_and_the_powers_of_ten(
    smallest: float, largest: float, ticks: list[int]
) -> None:
    assert decades(smallest, largest) == ticks


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (1234567, "1,234,567"),
        (2.0, "2"),
        (1999.6, "2,000"),
        (999.7, "1,000"),
        (12.34, "12.3"),
        (0.456, "0.46"),
        (0.0004, "< 0.01"),
    ],
)
def test_numbers_are_short_and_never_in_powers(number: float, written: str) -> None:
    assert thousands(number) == written


def test_the_benchmark_of_the_report_makes_a_release_like_a_real_one() -> None:
    facts, tables = release(tiny(US))
    (numbers,) = numbers_of(render_report(facts, tables, formats=PARQUET))
    assert tables.bounds is not None
    assert bounds_hold(tables.released, tables.bounds)
    assert len(numbers["released"]) == facts.regions == 45


def test_ticks_of_sizes_are_round_apart_and_reach_the_ends() -> None:
    assert round_sizes(0, 1000) == [0, 1, 2, 5, 10, 20, 50, 100, 200, 1000]
    assert np.all(np.diff(round_sizes(1, 13_282)) > 0)
