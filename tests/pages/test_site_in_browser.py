"""The audit site of a real product, opened from files in Debian's Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.pages.browsing import Visit, visiting
from tests.pages.test_site import COMPARISON, FIRST, SECOND

BLOCK_GROUP = "510919701002"
PAGES = (
    "index.html",
    "budgets.html",
    "timeline.html",
    "products/household-sizes/index.html",
    f"{FIRST}/index.html",
    COMPARISON,
)


@contextmanager
def opening(browser: Browser, page: Path, **settings: Any) -> Iterator[Visit]:
    with visiting(browser, page, ready="#theme:not([hidden])", **settings) as visit:
        yield visit


def test_one_walks_from_the_index_to_a_region_in_a_report_and_nothing_leaves_the_files(
    browser: Browser, site: Path
) -> None:
    with opening(browser, site / "index.html") as visit:
        page = visit.page
        page.get_by_role("link", name="synthetic-2", exact=True).first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text(
            "household-sizes, release synthetic-2"
        )
        report = page.frame_locator("#report")
        expect(report.locator("body[data-region]")).to_have_count(1)
        report.get_by_role("combobox").first.fill(BLOCK_GROUP)
        report.get_by_role("combobox").first.press("Enter")
        expect(report.locator("#region-title")).to_have_text(BLOCK_GROUP)
        report.locator("#region-path").get_by_role("link", name="51091", exact=True).click()
        expect(report.locator("#region-title")).to_have_text("51091")
        page.get_by_role("link", name="Compared with synthetic-1").click()
        expect(page.get_by_role("heading", name="What changed in the tables")).to_be_visible()
        for link in ("Budgets", "Timeline", "Overview"):
            page.get_by_role("link", name=link, exact=True).click()
            expect(page.locator("[aria-current=page]")).to_have_text(link)
        assert len(visit.requests) == 7  # six pages, and the report inside of one
        assert all(url.startswith(f"{site.as_uri()}/") for url in visit.requests)
        assert visit.complaints == []


def test_dark_reaches_the_report_inside_and_is_remembered_from_page_to_page(
    browser: Browser, site: Path
) -> None:
    with opening(browser, site / SECOND / "index.html", color_scheme="light") as visit:
        report = visit.page.frame_locator("#report")
        expect(report.locator("body[data-region]")).to_have_count(1)
        paper = visit.color("body", "background-color")
        visit.page.get_by_role("button", name="Dark mode").first.click()
        dark = visit.color("body", "background-color")
        assert dark != paper
        expect(report.locator("html")).to_have_attribute("data-theme", "dark")
        expect(report.locator("body")).to_have_css("background-color", dark)
        visit.page.get_by_role("link", name="Budgets").click()
        expect(visit.page.locator("body")).to_have_css("background-color", dark)
        line = visit.color("main svg .mark-line path", "stroke")
        visit.page.get_by_role("button", name="Light mode").click()
        assert visit.color("main svg .mark-line path", "stroke") != line
        assert visit.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_barrier(
    browser: Browser, site: Path, internal_site: Path, scheme: str
) -> None:
    pages = [site / "budgets.html", site / COMPARISON, internal_site / FIRST / "index.html"]
    if scheme == "light":
        pages = [*(site / page for page in PAGES), internal_site / "operations.html"]
    for page in pages:
        with opening(browser, page, color_scheme=scheme) as visit:
            visit.page.locator("details").evaluate_all("all => all.forEach(d => { d.open = true })")
            assert visit.barriers() == [], page


def test_every_page_fits_a_narrow_screen_and_a_sheet_of_paper(browser: Browser, site: Path) -> None:
    for page in PAGES:
        with opening(browser, site / page, viewport={"width": 320, "height": 800}) as visit:
            assert visit.sideways() == 0, page
            expect(visit.page.locator("table > caption")).to_have_count(
                visit.page.locator("table").count()
            )
            visit.page.set_viewport_size({"width": 680, "height": 1000})
            visit.page.emulate_media(media="print", color_scheme="dark")
            assert visit.color("body", "color") == "rgb(0, 0, 0)"
            assert visit.sideways() == 0, page


def test_without_javascript_everything_is_there_but_the_button(
    browser: Browser, site: Path
) -> None:
    with opening(browser, site / COMPARISON, java_script_enabled=False) as visit:
        expect(visit.page.locator("main svg")).to_be_visible()
        expect(visit.page.get_by_text("beyond the margins").first).to_be_visible()
        expect(visit.page.get_by_role("button")).to_have_count(0)
        visit.page.get_by_role("link", name="synthetic-2", exact=True).first.click()
        report = visit.page.frame_locator("#report")
        expect(report.get_by_text("Without JavaScript")).to_be_visible()
        assert visit.complaints == []
