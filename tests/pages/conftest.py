"""One real product with three releases, its audit site and one browser, for tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import duckdb
import pytest
from playwright.sync_api import Browser

from tasks.corrections.reposting import prepare_repost
from tasks.corrections.withdrawal import key_for, withdraw
from tasks.keys import create_key
from tasks.run import RunRef
from tasks.site.build import build_site
from tasks.stages.prepare import prepare
from tasks.storage.zones import Home
from tests.flows.commandline import edit
from tests.pages.browsing import chromium
from tests.tasks.in_process import run_stages

SLOT = date(2026, 1, 1)
EMPTIED = "51690"
"""The city whose people are missing from the second release."""


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
    edit(configuration, "  to: public\n", "  to: public\n  signing_key: release.key\n")
    return run_stages(prepare(configuration, slot=SLOT))


@pytest.fixture(scope="session")
def office(bundle: Path) -> Home:
    """The same office later: a correction, the first release withdrawn, and a repost."""
    folder = bundle.parents[2]
    configuration = folder / "product.yaml"
    (folder / "later").mkdir()
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (FROM '{folder}/persons/*.parquet' WHERE region_id NOT LIKE '{EMPTIED}%') "
            f"TO '{folder}/later/persons.parquet'"
        )
    edit(configuration, "release: synthetic-1", "release: synthetic-2\nreplaces: synthetic-1")
    edit(configuration, "persons/*.parquet", "later/persons.parquet")
    edit(configuration, "epsilon: '0.5'", "epsilon: '1'")
    run_stages(prepare(configuration, slot=SLOT))
    home = Home(folder / ".pgsr")
    first = RunRef(str(home.root), "household-sizes", "synthetic-1")
    withdraw(first, reason="A city was counted <twice>.", key=key_for(first, None))
    second = replace(first, release="synthetic-2")
    run_stages(prepare_repost(second, release="synthetic-3", mechanism="global"))
    return home


@pytest.fixture(scope="session")
def site(office: Home) -> Path:
    """The public site."""
    folder = office.root.parent / "site"
    build_site(office, folder)
    return folder


@pytest.fixture(scope="session")
def internal_site(office: Home) -> Path:
    """The operator's site, where it belongs."""
    folder = office.root / "confidential" / "audit-site"
    build_site(office, folder, internal=True)
    return folder
