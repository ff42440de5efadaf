"""A page in a real browser, and everything that it asked for or complained of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
# Read when the tests are collected: tests themselves see no settings of pgsr.
REQUIRED = os.environ.get("PGSR_BROWSER") == "required"
MISSING = f"no browser at {CHROMIUM}; .ci/install-browser installs Debian's chromium"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium; where there is none, tests are skipped, or fail where it must be.

    Not for longer than a module: as long as Playwright runs, its thread can run no other loop.
    """
    if not CHROMIUM.exists():
        if REQUIRED:
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    # Chromium refuses to be root in its sandbox.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@dataclass
class Visit:
    """An open page."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.page.locator("body").inner_text()

    def color(self, selector: str, name: str) -> str:
        """What the browser makes of a property of an element."""
        script = "(element, name) => getComputedStyle(element).getPropertyValue(name)"
        return str(self.page.locator(selector).first.evaluate(script, name))

    def sideways(self) -> int:
        """How many pixels the page can be scrolled sideways."""
        root = "document.documentElement"
        return int(self.page.evaluate(f"{root}.scrollWidth - {root}.clientWidth"))

    def barriers(self) -> list[str]:
        """What keeps people out, in the eyes of axe: serious and critical issues."""
        found = Axe().run(self.page).response["violations"]
        return [
            f"{issue['id']} ({issue['impact']}): {node['target']} {node['failureSummary']}"
            for issue in found
            if issue["impact"] in {"serious", "critical"}
            for node in issue["nodes"]
        ]

    def rows(self, table: str) -> list[list[str]]:
        """The cells of a table's body, as text."""
        script = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
        found: list[list[str]] = self.page.locator(f"{table} tbody tr").evaluate_all(script)
        return found


@contextmanager
def visiting(
    browser: Browser, path: Path, *, ready: str = "body[data-region]", **settings: Any
) -> Iterator[Visit]:
    """Open a file in a browser that remembers nothing, and wait until its scripts are done."""
    context = browser.new_context(**settings)
    visit = Visit(context.new_page())
    visit.page.on("request", lambda request: visit.requests.append(request.url))
    visit.page.on("console", lambda message: visit.complaints.append(message.text))
    visit.page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    visit.page.goto(path.as_uri())
    if settings.get("java_script_enabled", True):
        visit.page.wait_for_selector(ready)
    yield visit
    context.close()
