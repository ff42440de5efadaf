"""Distinctive values planted in the raw data are found nowhere outside the confidential zone."""

from __future__ import annotations

import base64
import json
import re
import sqlite3
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

from pgsr_core.errors import PgsrError
from tasks.outside import IN_WORDS, LEFT_OF_THE_BARRIER
from tasks.pages.packing import pack
from tasks.site.build import build_site
from tasks.storage.zones import Home
from tests.pages.packed import numbers_of

PERSON = "PERSONCANARYxq7"
UNIT = "UNITCANARYzk3"
QUANTITY = 918_273
CANARIES = (PERSON, UNIT, str(QUANTITY))
CONFIGURATION = f"""\
product: canaries
release: first
population: {{name: birds, budget: "4", unit_of_privacy: bird}}
source:
  persons: persons.parquet
  columns: {{person: bird, unit: nest, region: tree, quantity: eggs}}
regions: regions.csv
units: UNITS
sizes: {{max: 6, largest_contribution: {10**6}}}
privacy: {{epsilon: "2", neighbours: add-remove, split: uniform}}
publish: {{to: public}}
"""
STAGES = [
    *("recall", "ingest", "cumulative", "noise", "isotonic", "cpwl", "margins"),
    *("validate", "publish"),
]


@pytest.fixture
def nests(tmp_path: Path) -> Path:
    """A small population whose ids and one quantity are unmistakable."""
    folder = tmp_path / "nests"
    folder.mkdir()
    rows = [(f"{PERSON}{i}", f"{UNIT}{i // 3}", ("oak", "elm")[(i // 3) % 2], 1) for i in range(60)]
    rows[7] = (*rows[7][:3], QUANTITY)
    persons = pd.DataFrame(rows, columns=["bird", "nest", "tree", "eggs"])
    persons.to_parquet(folder / "persons.parquet")
    (folder / "regions.csv").write_text("region,parent\nwood,\noak,wood\nelm,wood\n")
    (folder / "product.yaml").write_text(CONFIGURATION.replace("UNITS", "from-data"))
    Home(folder / ".pgsr").create_for_example("birds")
    return folder


def encodings(canary: str) -> Iterator[bytes]:
    yield canary.encode()
    yield canary.encode("utf-16-le")
    yield canary.encode().hex().encode()


def unpacked(content: bytes) -> Iterator[bytes]:
    """The content, and what its runs of base64 letters say, wherever in them the text begins."""
    yield content
    for run in re.findall(rb"[A-Za-z0-9+/]{8,}", content):
        for start in range(4):
            letters = run[start:]
            yield base64.b64decode(letters[: len(letters) // 4 * 4])


def readings(path: Path) -> Iterator[bytes]:
    """A file's bytes, and what is inside where it is a compressed or a database file."""
    raw = path.read_bytes()
    yield raw
    if path.suffix == ".parquet":
        yield pd.read_parquet(path).to_csv().encode()
    elif path.name == "report.html":
        for block in numbers_of(raw.decode()):
            yield str(block).encode()
    elif path.suffix == ".duckdb":
        yield from duckdb_tables(path)
    elif raw.startswith(b"SQLite format 3"):
        yield from sqlite_blobs(path)
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield from (archive.read(name) for name in archive.namelist())


def duckdb_tables(path: Path) -> Iterator[bytes]:
    with duckdb.connect(str(path), read_only=True) as connection:
        for (table,) in connection.sql("SELECT table_name FROM duckdb_tables()").fetchall():
            yield connection.sql(f'FROM "{table}"').df().to_csv().encode()


def sqlite_blobs(path: Path) -> Iterator[bytes]:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in tables.fetchall():
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                for cell in row:
                    if isinstance(cell, bytes):
                        yield cell
                        try:
                            yield zlib.decompress(cell)
                        except zlib.error:
                            continue
                    else:
                        yield str(cell).encode()


def leaks(root: Path, *, besides: tuple[Path, ...]) -> list[tuple[str, str]]:
    found = []
    for path in sorted(root.rglob("*")):
        if not path.is_file() or any(path.is_relative_to(zone) for zone in besides):
            continue
        for content in readings(path):
            forms = tuple(unpacked(content))
            found += [
                (str(path), canary)
                for canary in CANARIES
                if any(code in form for code in encodings(canary) for form in forms)
            ]
    return found


@pytest.fixture
def leaked(
    nests: Path, prefect_server: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> Callable[[], list[tuple[str, str]]]:
    """Looks through the run's files, Prefect's, and everything that was printed."""

    def look() -> list[tuple[str, str]]:
        allowed = (nests / "persons.parquet", nests / ".pgsr" / "confidential")
        printed = capfd.readouterr()
        terminal = [
            ("terminal", canary) for canary in CANARIES if canary in printed.out + printed.err
        ]
        prefect = leaks(Path(prefect_server["PREFECT_HOME"]), besides=())
        return terminal + prefect + leaks(nests, besides=allowed)

    return look


def test_the_search_itself_finds_what_is_there(nests: Path) -> None:
    found = {canary for _, canary in leaks(nests, besides=())}
    assert found == set(CANARIES)
    (nests / "note.txt").write_bytes(b"##" + base64.b64encode(b"x" + PERSON.encode() + b"yy"))
    assert any(path.endswith("note.txt") for path, _ in leaks(nests, besides=()))
    (nests / "sealed.json").write_bytes(
        b'{"payload":"' + base64.b64encode(b'{"most":%d}' % QUANTITY) + b'"}'
    )
    assert (str(nests / "sealed.json"), str(QUANTITY)) in leaks(nests, besides=())
    packed = pack({"numbers": np.array([[1, QUANTITY, 2]])})
    index = {"packed": {"columns": packed.columns, "width": packed.width}}
    (nests / "report.html").write_text(
        f'<script type="application/json" id="release">{json.dumps(index)}</script>'
        f'<script type="text/plain" id="block-0">{packed.blocks[0]}</script>'
    )
    found_in_page = [c for path, c in leaks(nests, besides=()) if path.endswith("report.html")]
    assert found_in_page == [str(QUANTITY)]


def test_nothing_confidential_leaves_its_zone_in_a_successful_run(
    nests: Path,
    release_in_process: Callable[[Path], None],
    leaked: Callable[[], list[tuple[str, str]]],
) -> None:
    release_in_process(nests / "product.yaml")
    assert (nests / "public" / "canaries" / "first" / "group_sizes.parquet").is_file()
    build_site(Home(nests / ".pgsr"), nests / "site")
    assert (nests / "site" / "products/canaries/releases/first/report.html").is_file()
    assert leaked() == []
    assert leaks(internal_site(nests), besides=()) == []


@pytest.mark.parametrize("stage", STAGES)
def test_nothing_confidential_leaves_its_zone_when_a_stage_fails(
    nests: Path,
    stage: str,
    release_in_process: Callable[[Path], None],
    leaked: Callable[[], list[tuple[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_in(stage, monkeypatch)
    with pytest.raises(PgsrError) as caught:
        release_in_process(nests / "product.yaml")
    assert stage in str(caught.value)
    log = nests / ".pgsr" / "confidential" / "canaries" / "first" / "operator.log"
    assert PERSON in log.read_text()  # the operator is told everything, where only he can read
    assert log.stat().st_mode & 0o777 == 0o600
    assert leaked() == []
    inside = internal_site(nests)
    left = stage in LEFT_OF_THE_BARRIER
    assert (IN_WORDS if left else "RuntimeError") in (inside / "operations.html").read_text()
    assert leaks(inside, besides=()) == []
    assert not (nests / "public" / "canaries").exists() or not list(
        (nests / "public" / "canaries").iterdir()
    )


def internal_site(nests: Path) -> Path:
    """The operator's view, which stands among what is confidential and holds nothing of it."""
    home = Home(nests / ".pgsr")
    return build_site(home, home.root / "confidential" / "audit-site", internal=True).folder


def fail_in(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a stage die of an unforeseen error whose text, cause and frames hold the canaries."""
    from tasks.stages import cumulative, ingest, margins, noise, post_process, publish, validate

    def explode(*_args: object, **_kwargs: object) -> None:
        secret = f"{PERSON}1 of {UNIT}2 has {QUANTITY}"
        try:
            raise KeyError(secret)
        except KeyError as error:
            raise RuntimeError(secret) from error

    target, name = {
        "recall": (noise, "_recalled"),
        "ingest": (ingest, "ingest_persons"),
        "cumulative": (cumulative, "cumulative_from_counts"),
        "noise": (noise, "_draw"),
        "isotonic": (post_process, "_compute"),
        "cpwl": (post_process, "_compute"),
        "margins": (margins, "margins_of"),
        "validate": (validate, "run_gates"),
        "publish": (publish, "build_bundle"),
    }[stage]
    original = getattr(target, name)

    def only_here(*args: object, **kwargs: object) -> object:
        if stage in {"isotonic", "cpwl"} and args[2].name != stage:  # type: ignore[attr-defined]
            return original(*args, **kwargs)
        return explode()

    monkeypatch.setattr(target, name, only_here)
    steps = (post_process.post_process("isotonic"), post_process.post_process("cpwl"))
    stages = (noise.recall, ingest.ingest, cumulative.cumulative, *steps)
    for task in (*stages, margins.margins, validate.validate, publish.publish):
        monkeypatch.setattr(task, "retries", 0)
