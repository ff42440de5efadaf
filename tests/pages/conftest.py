"""One real release and one browser for the tests that look at pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tasks.keys import create_key
from tasks.stages.prepare import prepare
from tests.pages.browsing import chromium
from tests.tasks.in_process import run_stages


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="session")
def bundle(virginia_population: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed release of a few places of Virginia in 2000."""
    folder = tmp_path_factory.mktemp("pages") / "virginia"
    shutil.copytree(virginia_population, folder)
    create_key(folder / "release.key")
    configuration = folder / "product.yaml"
    signed = configuration.read_text().replace(
        "  to: public\n", "  to: public\n  signing_key: release.key\n"
    )
    configuration.write_text(signed)
    return run_stages(prepare(configuration, slot=date(2026, 1, 1)))
