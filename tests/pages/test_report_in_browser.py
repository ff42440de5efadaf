"""The report of a real release, opened from a file in Debian's Chromium."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest
from playwright.sync_api import Browser, expect

from tasks.publication.report.page import outline_plain_report, render_report
from tasks.publication.report.reading import read_report_tables
from tasks.storage.duck import connect
from tests.pages.browsing import Visit, visiting
from tests.pages.example_release import example_release
from tests.pages.large_release import large_facts, large_store

ROOT, COUNTY, TRACT = "51", "51091", "51091970100"
BLOCK_GROUP = "510919701002"


@pytest.fixture
def report(bundle: Path) -> Path:
    return bundle / "report.html"


def table(bundle: Path, name: str, region: str, value: str) -> list[int]:
    """A region's numbers in a published table, by size."""
    with duckdb.connect() as connection:
        rows = connection.execute(
            f"SELECT {value} FROM '{bundle}/{name}.parquet' WHERE region = $region ORDER BY size",
            {"region": region},
        ).fetchall()
    return [number for (number,) in rows]


def column(rows: Sequence[Sequence[str]], position: int) -> list[int]:
    return [int(row[position].replace(",", "")) for row in rows]


def search(visit: Visit, box: str, text: str) -> None:
    visit.page.get_by_label("Find a region").nth(0 if box == "region" else 1).fill(text)
    visit.page.keyboard.press("Enter")


def shows(visit: Visit, region: str) -> None:
    expect(visit.page.locator("body")).to_have_attribute("data-region", region)
    expect(visit.page.locator("#region-title")).to_have_text(region)


def test_it_opens_from_a_file_fetches_nothing_and_the_console_stays_empty(
    browser: Browser, report: Path
) -> None:
    with visiting(browser, report) as visit:
        search(visit, "region", BLOCK_GROUP)
        shows(visit, BLOCK_GROUP)
        visit.page.get_by_role("button", name="Dark mode").click()
        assert visit.requests == [report.as_uri()]
        assert visit.complaints == []
        visit.page.evaluate("fetch('https://example.org/').catch(() => null)")
        assert any("Content Security Policy" in complaint for complaint in visit.complaints)


def test_a_region_is_found_by_typing_and_its_numbers_are_the_published_ones(
    browser: Browser, bundle: Path, report: Path
) -> None:
    with visiting(browser, report) as visit:
        box = visit.page.get_by_role("combobox").first
        box.fill(COUNTY)
        options = visit.page.get_by_role("option")
        expect(options.first).to_contain_text(COUNTY)
        expect(box).to_have_attribute("aria-expanded", "true")
        visit.page.keyboard.press("ArrowDown")
        visit.page.keyboard.press("ArrowDown")
        expect(options.nth(1)).to_have_attribute("aria-selected", "true")
        visit.page.keyboard.press("Escape")
        expect(options).to_have_count(0)
        for region in (COUNTY, BLOCK_GROUP):
            search(visit, "region", region)
            shows(visit, region)
            counts = table(bundle, "group_sizes", region, '"count"')
            rows = visit.rows("#sizes-table")
            assert column(rows, 1) == counts
            for position, percent in ((3, 90), (4, 95)):
                ends = [row[position].split(" – ") for row in rows]
                for place, side in enumerate(("lower", "upper")):
                    published = table(bundle, "margins", region, f"{side}_{percent}")
                    assert column(ends, place) == published
            bars = visit.page.locator("#sizes-chart .mark-rect path")
            expect(bars).to_have_count(3 * len(counts))  # a bar, and both ends of its margin
        box.fill(BLOCK_GROUP[-6:])  # the end of an id will do
        expect(options.first).to_contain_text(BLOCK_GROUP)
        box.fill("nowhere")
        expect(visit.page.get_by_role("status").first).to_have_text("Nothing of that name.")


def test_one_drills_down_by_links_and_comes_back_by_the_path_and_the_browsers_button(
    browser: Browser, report: Path
) -> None:
    with visiting(browser, report) as visit:
        shows(visit, ROOT)
        within = visit.page.locator("#children-table")
        for region in (COUNTY, TRACT, BLOCK_GROUP):
            within.get_by_role("link", name=region, exact=True).click()
            shows(visit, region)
            expect(visit.page.locator("#region-title")).to_be_focused()
        expect(within).to_be_hidden()
        path = visit.page.get_by_role("navigation", name="Where the region lies")
        assert path.inner_text().split() == [ROOT, COUNTY, TRACT, BLOCK_GROUP]
        path.get_by_role("link", name=COUNTY, exact=True).click()
        shows(visit, COUNTY)
        visit.page.go_back()
        shows(visit, BLOCK_GROUP)
        visit.page.evaluate("history.go(-3)")
        shows(visit, ROOT)
    with visiting(browser, report) as visit:
        visit.page.goto(f"{report.as_uri()}#region={TRACT}")
        shows(visit, TRACT)


def test_the_picture_of_the_stages_follows_the_region_that_one_picks(
    browser: Browser, bundle: Path, report: Path
) -> None:
    with visiting(browser, report) as visit:
        search(visit, "stages", BLOCK_GROUP)
        shows(visit, BLOCK_GROUP)
        expect(visit.page.locator("#stages-table caption")).to_contain_text(BLOCK_GROUP)
        rows = visit.rows("#stages-table")
        noisy = table(bundle, "measurements", BLOCK_GROUP, "value")
        counts = table(bundle, "group_sizes", BLOCK_GROUP, '"count"')
        assert column([[row[1].replace("−", "-")] for row in rows], 0) == noisy
        assert column(rows, 3) == [sum(counts[k:]) for k in range(1, len(counts))]
        fitted = column(rows, 2)
        assert fitted == sorted(fitted, reverse=True)
        for chart in ("#stages-chart", "#changes-chart"):
            dots = visit.page.locator(f"{chart} .mark-symbol path")
            expect(dots).to_have_count(len(noisy))
            expect(visit.page.locator(f"{chart} svg")).to_contain_text("≥ 3")


def test_dark_is_a_button_away_follows_the_system_and_is_remembered(
    browser: Browser, report: Path
) -> None:
    with visiting(browser, report, color_scheme="light") as visit:
        paper, bar = visit.color("body", "background-color"), "#sizes-chart .mark-rect path"
        light = visit.color(bar, "fill")
        assert paper == "rgb(255, 255, 255)"
        visit.page.get_by_role("button", name="Dark mode").click()
        dark = visit.color("body", "background-color")
        assert dark != paper
        assert visit.color(bar, "fill") != light
        visit.page.reload()
        assert visit.color("body", "background-color") == dark
        visit.page.get_by_role("button", name="Light mode").click()
        assert visit.color("body", "background-color") == paper
    with visiting(browser, report, color_scheme="dark") as visit:
        assert visit.color("body", "background-color") == dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_barrier(browser: Browser, report: Path, scheme: str) -> None:
    with visiting(browser, report, color_scheme=scheme) as visit:
        for details in visit.page.locator("details:not([open]) summary").all():
            if details.is_visible():
                details.click()
        visit.page.get_by_role("combobox").first.fill("51")
        visit.page.keyboard.press("ArrowDown")
        assert visit.barriers() == []


def test_the_keyboard_reaches_the_content_first_and_every_table_has_a_caption(
    browser: Browser, report: Path
) -> None:
    with visiting(browser, report) as visit:
        visit.page.keyboard.press("Tab")
        expect(visit.page.get_by_role("link", name="Skip to the content")).to_be_focused()
        visit.page.keyboard.press("Enter")
        expect(visit.page.locator("main")).to_be_focused()
        tables = visit.page.locator("table")
        assert visit.page.locator("table > caption").count() == tables.count() > 6


def test_without_javascript_the_page_still_tells_everything_but_the_lower_levels(
    browser: Browser, report: Path
) -> None:
    with visiting(browser, report, java_script_enabled=False) as visit:
        page = visit.page
        assert "Without JavaScript" in visit.text
        assert "hardly depends on whether the record" in visit.text
        for heading in page.locator("h2").all():
            expect(heading).to_be_visible()
        expect(page.get_by_role("combobox")).to_have_count(0)
        expect(page.get_by_role("button")).to_have_count(0)
        drawn = page.locator("main svg")
        assert drawn.count() == 6  # four levels, and two pictures of the stages
        for chart in drawn.all():
            expect(chart).to_be_visible()
        page.locator("summary", has_text="Level 2:").click()
        expect(page.get_by_role("rowheader", name=COUNTY, exact=True)).to_be_visible()


def test_on_paper_the_page_is_light_whole_and_as_wide_as_the_sheet(
    browser: Browser, report: Path
) -> None:
    size = {"width": 680, "height": 1000}
    with visiting(browser, report, color_scheme="dark", viewport=size) as visit:
        expect(visit.page.get_by_text("with double-geometric noise")).to_be_hidden()
        visit.page.emulate_media(media="print")
        assert visit.color("body", "color") == "rgb(0, 0, 0)"
        expect(visit.page.get_by_text("with double-geometric noise")).to_be_visible()
        for hidden in ("nav.contents", "#theme", "#region-search"):
            expect(visit.page.locator(hidden)).to_be_hidden()
        assert visit.sideways() == 0


@pytest.mark.parametrize("width", [320, 390])
def test_a_narrow_screen_is_never_scrolled_sideways(
    browser: Browser, report: Path, width: int
) -> None:
    with visiting(browser, report, viewport={"width": width, "height": 800}) as visit:
        search(visit, "region", BLOCK_GROUP)
        shows(visit, BLOCK_GROUP)
        assert visit.sideways() == 0


def test_hostile_names_are_shown_and_found_and_never_run(browser: Browser, tmp_path: Path) -> None:
    names = (
        "</script><script>document.title = 'run'</script>",
        "<img src=x onerror=\"document.title = 'run'\">",
        'Süd "&" \\u003c%} {{ 7 * 7 }}',
        "javascript:alert(1)",
        None,
    )
    facts, tables = example_release(names=names)
    page = tmp_path / "report.html"
    page.write_text(render_report(facts, tables, formats=("csv",)), encoding="utf-8")
    with visiting(browser, page) as visit:
        for name, region in zip(names[:4], tables.ids, strict=False):
            visit.page.get_by_role("combobox").first.fill(str(name).upper())
            visit.page.keyboard.press("Enter")
            expect(visit.page.locator("body")).to_have_attribute("data-region", region)
            expect(visit.page.locator("#region-title")).to_have_text(str(name))
        visit.page.get_by_role("combobox").first.fill("sud")
        expect(visit.page.get_by_role("option")).to_have_count(1)
        assert "run" not in visit.page.title()
        assert visit.complaints == []
        assert visit.requests == [page.as_uri()]


def test_many_sizes_are_drawn_as_steps_and_runs_of_zeros_share_a_row(
    browser: Browser, tmp_path: Path
) -> None:
    facts, tables = example_release(sizes=range(301))
    tables.released[4, 50:290] = 0
    assert tables.bounds is not None
    tables.bounds[1, 4, 50:290], tables.bounds[3, 4, 50:290] = 3, 5
    page = tmp_path / "report.html"
    page.write_text(render_report(facts, tables, formats=("csv",)), encoding="utf-8")
    with visiting(browser, page, viewport={"width": 390, "height": 800}) as visit:
        search(visit, "region", "a2")
        expect(visit.page.locator("body")).to_have_attribute("data-region", "a2")
        rows = {row[0]: row[1:] for row in visit.rows("#sizes-table")}
        run = next(label for label in rows if re.fullmatch(r"\d+ to 2\d\d|\d+ to 300\+", label))
        assert int(run.split()[0]) <= 50
        assert rows[run] == ["0 each", "0.00 %", "up to 3 each", "up to 5 each"]
        assert len(visit.rows("#stages-table")) == 40
        visit.page.get_by_role("button", name="Show all 300 rows").click()
        assert len(visit.rows("#stages-table")) == 300
        assert visit.page.locator("#sizes-chart .mark-rect path").count() == 0
        assert visit.page.locator("#sizes-chart .mark-line path").count() == 1
        ticks = visit.page.locator("#sizes-chart .role-axis-label text").all_text_contents()
        assert {"0", "10", "100", "300"} <= set(ticks)
        assert visit.sideways() == 0
        assert visit.complaints == []


def texts_that_overlap(visit: Visit, chart: str) -> list[str]:
    """Labels along the bottom of a chart that run into the one before."""
    script = """texts => texts.map(text => {
        const box = text.getBoundingClientRect();
        return [text.textContent, box.left, box.right, box.top];
    })"""
    labels = visit.page.locator(f"{chart} .role-axis-label text").evaluate_all(script)
    lowest = max(top for *_, top in labels)
    below = sorted((left, right, text) for text, left, right, top in labels if top > lowest - 3)
    assert len(below) > 2
    return [text for (_, end, _), (start, _, text) in pairwise(below) if text and start < end]


@pytest.mark.parametrize("largest", [20, 30, 31, 2_000, 1_000_000])
@pytest.mark.parametrize("width", [390, 1280])
def test_labels_of_sizes_never_run_into_one_another(
    browser: Browser, tmp_path: Path, largest: int, width: int
) -> None:
    page = tmp_path / "report.html"
    page.write_text(large_page(tmp_path, largest=largest), encoding="utf-8")
    with visiting(browser, page, viewport={"width": width, "height": 800}) as visit:
        for chart in ("#sizes-chart", "#stages-chart", "#changes-chart"):
            assert texts_that_overlap(visit, chart) == []
        assert visit.sideways() == 0
        assert visit.complaints == []


def large_page(folder: Path, *, largest: int) -> str:
    store = large_store(folder / "safe.duckdb", regions=3, largest=largest)
    facts = large_facts(regions=3, largest=largest)
    with connect(store, read_only=True) as connection:
        tables = read_report_tables(connection, facts)
    return render_report(facts, tables, formats=("csv",))


def test_very_many_sizes_are_looked_up_in_ranges(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(large_page(tmp_path, largest=1_000_000), encoding="utf-8")
    with visiting(browser, page) as visit:
        search(visit, "region", "r0002")
        expect(visit.page.locator("body")).to_have_attribute("data-region", "r0002")
        rows = {row[0]: row[1:] for row in visit.rows("#sizes-table")}
        assert rows["5–9"] == ["12,500", "5.30 %"]
        assert list(rows)[-1] == "1,000,000+"
        bars = visit.page.locator("#sizes-chart .mark-rect path")
        expect(bars).to_have_count(len(rows))
        stages = visit.rows("#stages-table")
        assert [row[0] for row in stages[:5]] == ["≥ 1", "≥ 2", "≥ 3", "≥ 5", "≥ 10"]
        released = column(list(rows.values()), 0)
        assert column(stages, 3) == [sum(released[k:]) for k in range(1, len(released))]
        assert visit.barriers() == []


def test_a_plain_page_is_a_page_for_everybody(browser: Browser, tmp_path: Path) -> None:
    facts, _ = example_release()
    page = tmp_path / "report.html"
    page.write_text(outline_plain_report(facts, formats=("csv",)).filled(), encoding="utf-8")
    with visiting(browser, page, ready="main", viewport={"width": 390, "height": 800}) as visit:
        assert "could not be made on this occasion" in visit.text
        assert visit.sideways() == 0
        assert visit.complaints == []
        assert visit.requests == [page.as_uri()]
        assert visit.barriers() == []
