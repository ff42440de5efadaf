"""What is in a bundle: tables, documents and report, and what is never in one."""

from __future__ import annotations

import csv
import hashlib
import html
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from pgsr_core.documents.wordings import CURRENT
from pgsr_core.documents.words import in_words, sensitivity_formula
from pgsr_core.errors import InputError, PgsrError, Refused
from pgsr_core.margins import BOUNDS, HALF_WIDTHS
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.sensitivity import Neighbours
from tasks.publication.bundle import build_bundle
from tasks.publication.errors import FormulaLikeName, GateNotPassed, InconsistentFacts
from tasks.publication.facts import SIMULATION_NOTICE, BundleFacts, CheckFacts, StatedLevel
from tasks.publication.place import publish_bundle, staging_folder
from tasks.publication.report.levels import distribution
from tasks.publication.report.reading import LevelSizes
from tasks.storage.duck import connect

NAMES = {
    "country": "The Country",
    "north": "North, <b>cold</b> & 'wild'",
    "south": None,
    "s1": "Süd",
}
# A ragged tree: country → north, south; south → s1.
REGIONS = [
    (0, "country", None, 1, NAMES["country"], 10),
    (1, "north", "country", 2, NAMES["north"], 6),
    (2, "south", "country", 2, NAMES["south"], 4),
    (3, "s1", "south", 3, NAMES["s1"], 4),
]
COUNTS = [[3, 4, 3], [2, 2, 2], [1, 2, 1], [1, 2, 1]]  # sizes 0, 1, 2
NOISY = [[8, 2], [3, -1], [5, 1], [3, 0]]  # at least 1, at least 2
# lower and upper, at 90% and at 95%: (bounds, regions, sizes)
SIDES = [[[max(0, c - w) for c in row] for row in COUNTS] for w in (1, 2)]
REACH = [[[c + w for c in row] for row in COUNTS] for w in (1, 2)]
MARGINS = [SIDES[0], REACH[0], SIDES[1], REACH[1]]
CHECK = CheckFacts("totals", "release", "Counts add up to G at every level.", True, 2)


def example_facts(**changes: object) -> BundleFacts:
    epsilon, scale = Fraction(1, 6), Fraction(6)
    facts = BundleFacts(
        product="household-sizes",
        release="2026-Q3",
        published_on=date(2026, 10, 1),
        code_version="0.1.0",
        simulation=False,
        population="residents-2026",
        unit_of_privacy="person",
        epsilon=Fraction(1, 2),
        levels=tuple(
            StatedLevel(level, regions, 2 * regions, epsilon, scale, 5.97)
            for level, regions in ((1, 1), (2, 2), (3, 1))
        ),
        neighbours=Neighbours.ADD_REMOVE,
        sensitivity=1,
        query=Query.CUMULATIVE,
        mechanism="cumulative",
        notation="M_c^dp",
        sampler="fast-exact",
        units_from_data=False,
        groups=10,
        smallest_size=0,
        largest_size=2,
        largest_contribution=1,
        keeps_region_totals=False,
        spent_on_population=Fraction(3, 2),
        budget=Fraction(4),
        checks=(CHECK,),
        certificates={"cpwl": {"optimal": True, "objective": "12"}},
        digests={"group_sizes": "a" * 64, "measurements": "b" * 64},
        margin_repetitions=40,
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


def make_store(path: Path, *, regions: list[tuple] = REGIONS) -> Path:  # type: ignore[type-arg]
    with connect(path) as store:
        store.execute(
            'CREATE TABLE regions (region_index INTEGER, region VARCHAR, parent VARCHAR, "level" '
            'INTEGER, "name" VARCHAR, groups BIGINT)'
        )
        # In reverse, so that a bundle in order owes it to nothing but its own ORDER BY.
        store.executemany("INSERT INTO regions VALUES (?, ?, ?, ?, ?, ?)", regions[::-1])
        for table, matrix, first in (("group_sizes", COUNTS, 0), ("measurements", NOISY, 1)):
            store.execute(
                f"CREATE TABLE {table} (region_index INTEGER, size INTEGER, value BIGINT)"
            )
            cells = [
                (region, size, value)
                for region, row in enumerate(matrix)
                for size, value in enumerate(row, start=first)
            ]
            store.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", cells[::-1])
        add_margins(store)
    return path


def add_margins(store: duckdb.DuckDBPyConnection) -> None:
    for table, row, values in (
        ("margins", "region_index", BOUNDS),
        ("margins_by_level", "level_index", HALF_WIDTHS),
    ):
        columns = "".join(f", {name} BIGINT" for name in values)
        store.execute(f"CREATE TABLE {table} ({row} INTEGER, size INTEGER{columns})")
    cells = [
        (region, size, *(side[region][size] for side in MARGINS))
        for region in range(4)
        for size in range(3)
    ]
    store.executemany("INSERT INTO margins VALUES (?, ?, ?, ?, ?, ?)", cells[::-1])
    typical = [(level, size, 1 + level, 2 + level) for level in range(3) for size in range(3)]
    store.executemany("INSERT INTO margins_by_level VALUES (?, ?, ?, ?)", typical[::-1])


@contextmanager
def reading(store: Path, folder: Path, *, threads: int = 2) -> Iterator[object]:
    with connect(store, read_only=True, writable_folder=folder, threads=threads) as connection:
        yield connection


def build(
    base: Path,
    facts: BundleFacts | None = None,
    *,
    name: str = "bundle",
    formats: tuple[str, ...] = ("parquet", "csv"),
    **store: object,
) -> Path:
    base.mkdir(exist_ok=True)
    path = base / "safe.duckdb"
    if not path.exists():
        make_store(path, **store)  # type: ignore[arg-type]
    folder = base / name
    folder.mkdir()
    with reading(path, base) as connection:
        build_bundle(connection, folder, facts or example_facts(), formats=formats)
    return folder


def load(folder: Path, name: str) -> dict:  # type: ignore[type-arg]
    return json.loads((folder / name).read_text(encoding="utf-8"))


def rows_of(path: Path) -> tuple[list[str], list[tuple[str, ...]]]:
    with path.open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    return header, [tuple(row) for row in rows]


def test_a_bundle_has_exactly_the_files_and_columns_that_others_rely_on(tmp_path: Path) -> None:
    folder = build(tmp_path)
    columns = {
        "regions": ["region", "parent", "level", "name", "groups"],
        "group_sizes": ["level", "region", "size", "count"],
        "measurements": ["level", "region", "size", "value", "scale"],
        "margins": ["level", "region", "size", "lower_90", "upper_90", "lower_95", "upper_95"],
        "margins_by_level": ["level", "size", "half_width_90", "half_width_95"],
    }
    documents = {"privacy.json", "checks.json", "datapackage.json", "report.html"}
    tables = {f"{table}.{form}" for table in columns for form in ("parquet", "csv")}
    assert {path.name for path in folder.iterdir()} == documents | tables
    for table, expected in columns.items():
        assert rows_of(folder / f"{table}.csv")[0] == expected
        assert pq.read_schema(folder / f"{table}.parquet").names == expected


def test_a_release_without_margins_has_no_tables_of_them(tmp_path: Path) -> None:
    folder = build(tmp_path, example_facts(margin_repetitions=0))
    assert not [path for path in folder.iterdir() if path.name.startswith("margins")]


def test_one_format_alone_is_published_when_one_is_asked_for(tmp_path: Path) -> None:
    folder = build(tmp_path, formats=("csv",))
    assert not list(folder.glob("*.parquet"))
    listed = {resource["path"] for resource in load(folder, "datapackage.json")["resources"]}
    assert listed | {"datapackage.json"} == {path.name for path in folder.iterdir()}


def test_csv_tables_hold_every_cell_in_order_of_region_and_size(tmp_path: Path) -> None:
    folder = build(tmp_path)
    _, counts = rows_of(folder / "group_sizes.csv")
    assert counts == [
        (str(REGIONS[region][3]), REGIONS[region][1], str(size), str(COUNTS[region][size]))
        for region in range(4)
        for size in range(3)
    ]
    _, measured = rows_of(folder / "measurements.csv")
    assert [(row[1], row[2], row[3]) for row in measured] == [
        (REGIONS[region][1], str(size), str(NOISY[region][size - 1]))
        for region in range(4)
        for size in (1, 2)
    ]
    assert {float(row[4]) for row in measured} == {6.0}
    _, margins = rows_of(folder / "margins.csv")
    assert margins == [
        (*counts[3 * region + size][:3], *(str(side[region][size]) for side in MARGINS))
        for region in range(4)
        for size in range(3)
    ]
    _, typical = rows_of(folder / "margins_by_level.csv")
    assert typical == [
        (str(level), str(size), str(level), str(level + 1))
        for level in (1, 2, 3)
        for size in range(3)
    ]
    _, regions = rows_of(folder / "regions.csv")
    assert regions[0] == ("country", "", "1", "The Country", "10")
    assert regions[2] == ("south", "country", "2", "", "4")
    for path in folder.glob("*.csv"):
        assert b"\r" not in path.read_bytes()
        assert path.read_bytes().endswith(b"\n")


def test_parquet_tables_equal_the_csv_tables_and_are_compressed(tmp_path: Path) -> None:
    folder = build(tmp_path)
    for table in ("regions", "group_sizes", "measurements", "margins", "margins_by_level"):
        parquet = pq.read_table(folder / f"{table}.parquet")
        as_text = [
            tuple("" if value is None else str(value) for value in row.values())
            for row in parquet.to_pylist()
        ]
        assert as_text == rows_of(folder / f"{table}.csv")[1]
        metadata = pq.read_metadata(folder / f"{table}.parquet")
        assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_each_level_is_published_with_its_own_scale(tmp_path: Path) -> None:
    levels = tuple(
        replace(level, epsilon=epsilon, scale=1 / epsilon)
        for level, epsilon in zip(
            example_facts().levels, (Fraction(1, 4), Fraction(1, 8), Fraction(1, 8)), strict=True
        )
    )
    folder = build(tmp_path, example_facts(levels=levels))
    _, rows = rows_of(folder / "measurements.csv")
    assert {(row[0], float(row[4])) for row in rows} == {("1", 4.0), ("2", 8.0), ("3", 8.0)}


def test_the_data_package_lists_every_other_file_with_its_checksum(tmp_path: Path) -> None:
    folder = build(tmp_path)
    package = load(folder, "datapackage.json")
    assert package["$schema"] == "https://datapackage.org/profiles/2.0/datapackage.json"
    resources = package["resources"]
    assert len({resource["name"] for resource in resources}) == len(resources)
    others = {path.name for path in folder.iterdir()} - {"datapackage.json"}
    assert {resource["path"] for resource in resources} == others
    for resource in resources:
        content = (folder / resource["path"]).read_bytes()
        assert resource["bytes"] == len(content)
        assert resource["hash"] == f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_the_data_package_describes_every_column_and_refers_within_one_format(
    tmp_path: Path,
) -> None:
    folder = build(tmp_path)
    package = load(folder, "datapackage.json")
    by_name = {resource["name"]: resource for resource in package["resources"]}
    tables = [resource for resource in package["resources"] if resource.get("type") == "table"]
    assert len(tables) == 10
    for resource in tables:
        fields = resource["schema"]["fields"]
        stem, form = resource["path"].split(".")
        assert [field["name"] for field in fields] == rows_of(folder / f"{stem}.csv")[0]
        assert all(field["description"] for field in fields)
        if stem == "margins_by_level":
            assert "foreignKeys" not in resource["schema"]
            continue
        (key,) = resource["schema"]["foreignKeys"]
        target = by_name[key["reference"].get("resource", resource["name"])]
        assert target["path"] == f"regions.{form}"
        assert target["schema"]["primaryKey"] == key["reference"]["fields"]


def test_the_same_store_and_facts_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = build(tmp_path, name="one"), build(tmp_path, name="two")
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_tables_of_several_row_groups_are_in_order_and_do_not_depend_on_threads(
    tmp_path: Path,
) -> None:
    regions, sizes = 260, 500
    levels = tuple(
        StatedLevel(level, count, count * sizes, Fraction(1, 2), Fraction(2), 1.9)
        for level, count in ((1, 1), (2, regions - 1))
    )
    facts = example_facts(
        levels=levels,
        epsilon=Fraction(1),
        largest_size=sizes,
        smallest_size=1,
        groups=regions,
        margin_repetitions=0,
    )
    store = tmp_path / "safe.duckdb"
    with connect(store) as connection:
        connection.execute(f"""
            CREATE TABLE regions AS SELECT i::INTEGER AS region_index, 'r' || i AS region,
            CASE WHEN i > 0 THEN 'r0' END AS parent, CASE WHEN i > 0 THEN 2 ELSE 1 END AS "level",
            NULL::VARCHAR AS "name", NULL::BIGINT AS groups FROM range({regions}) AS t(i)
        """)
        for table in ("group_sizes", "measurements"):
            connection.execute(f"""
                CREATE TABLE {table} AS SELECT i::INTEGER AS region_index, k::INTEGER AS size,
                (hash(i * {sizes} + k) % 1000)::BIGINT AS value
                FROM range({regions}) AS t(i), range(1, {sizes} + 1) AS s(k) ORDER BY hash(i + k)
            """)
    digests = set()
    for threads in (1, 2, 4):
        folder = tmp_path / f"with-{threads}"
        folder.mkdir()
        with reading(store, tmp_path, threads=threads) as connection:
            build_bundle(connection, folder, facts, formats=("parquet", "csv"))
        digests.add((folder / "datapackage.json").read_bytes())
    assert len(digests) == 1
    table = pq.read_table(folder / "group_sizes.parquet", columns=["region", "size"])
    assert pq.read_metadata(folder / "group_sizes.parquet").num_row_groups > 1
    order = [
        int(region[1:]) * sizes + size - 1
        for region, size in zip(*table.to_pydict().values(), strict=True)
    ]
    assert order == list(range(regions * sizes))


def test_a_simulation_says_so_first_and_everywhere(tmp_path: Path) -> None:
    folder = build(tmp_path, example_facts(simulation=True))
    for path in folder.glob("*.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        assert next(iter(document.items())) == ("notice", SIMULATION_NOTICE)
        assert document["simulation"] is True
    assert load(folder, "privacy.json")["statement"][0].startswith(SIMULATION_NOTICE)
    assert load(folder, "datapackage.json")["title"].startswith(SIMULATION_NOTICE)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert f"<title>{SIMULATION_NOTICE}" in page
    assert page.index(SIMULATION_NOTICE, page.index("<body>")) < page.index("<h1>")
    for path in folder.glob("*.parquet"):
        assert pq.read_metadata(path).metadata[b"notice"].decode() == SIMULATION_NOTICE


def test_a_simulation_is_not_charged_and_says_so() -> None:
    facts = example_facts(simulation=True, spent_on_population=Fraction(0))
    words = " ".join(CURRENT.paragraphs(facts))
    assert "ε = 0 has been spent (a simulation is not charged)" in words


def test_a_release_never_says_that_it_is_a_simulation(tmp_path: Path) -> None:
    folder = build(tmp_path)
    for path in folder.iterdir():
        assert SIMULATION_NOTICE.encode() not in path.read_bytes()
    assert load(folder, "privacy.json")["simulation"] is False


def test_no_path_host_name_or_time_of_day_is_in_any_file(tmp_path: Path) -> None:
    folder = build(tmp_path)
    for path in folder.iterdir():
        content = path.read_bytes()
        assert str(tmp_path).encode() not in content
        assert b"/tmp/" not in content
        assert str(Path.home()).encode() + b"/" not in content
        assert re.search(rb"\b\d\d:\d\d:\d\d\b", content) is None
        host = socket.gethostname()
        if len(host) > 3:
            assert host.encode() not in content


class Page(HTMLParser):
    """Collects tags and text, and refuses a tag that is closed out of turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "input"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self.text += data


def test_the_report_is_one_well_formed_page_that_loads_nothing(tmp_path: Path) -> None:
    text = (build(tmp_path) / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert not {"link", "img", "iframe", "image", "use"} & {tag for tag, _ in page.tags}
    assert not any("src" in attributes for _, attributes in page.tags)
    addresses = [attributes["href"] for _, attributes in page.tags if "href" in attributes]
    assert all(address.startswith("#") for address in addresses)
    assert not re.search(r"url\(|@import", text[: text.index("</style>")])
    assert """content="default-src &#39;none&#39;;""" in text
    assert [tag for tag, _ in page.tags].count("h1") == 1
    tables = sum(tag == "table" for tag, _ in page.tags)
    assert tables == sum(tag == "caption" for tag, _ in page.tags) > 3
    assert all(attributes.get("scope") for tag, attributes in page.tags if tag == "th")
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_the_report_shows_released_numbers_and_every_check(tmp_path: Path) -> None:
    text = (build(tmp_path) / "report.html").read_text(encoding="utf-8")
    cells = re.findall(
        r'<th scope="row">([^<]*)</th><td class="number">([^<]*)</td><td class="number">[\d.]+ %',
        text,
    )
    assert cells[:3] == [("0", "3"), ("1", "4"), ("2 or more", "3")]
    # North is a leaf of level 2: together with level 3 it makes up G again.
    totals = re.findall(
        r"<th scope=\"row\">(\d)[^<]*</th><td[^>]*>\d+</td><td[^>]*>(\d+)</td>", text
    )
    assert totals == [("1", "10"), ("2", "10"), ("3", "10")]
    assert "✓ passed" in text
    assert CHECK.statement in text


def test_markup_in_a_name_is_escaped_in_the_report(tmp_path: Path) -> None:
    evil = "<script>alert('x')</script>"
    regions = [(*REGIONS[0][:4], evil, 10), *REGIONS[1:]]
    facts = example_facts(unit_of_privacy="<i>person</i>", checks=(replace(CHECK, statement=evil),))
    text = (build(tmp_path, facts, regions=regions) / "report.html").read_text(encoding="utf-8")
    assert evil not in text
    assert "<i>" not in text
    assert "<b>" not in text
    assert html.escape(evil, quote=True).replace("&#x27;", "&#39;") in text


def test_the_command_in_the_report_verifies_the_bundle_and_finds_a_change(tmp_path: Path) -> None:
    folder = build(tmp_path)
    page = (folder / "report.html").read_text(encoding="utf-8")
    found = re.search(r"&lt;&lt;'END'\n(.*)END</code>", page, re.DOTALL)
    assert found is not None
    script = html.unescape(found[1])

    def verify() -> str:
        command = [sys.executable, "-c", script]
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True
        ).stdout

    assert len(verify().splitlines()) == 13
    assert "BAD" not in verify()
    with (folder / "regions.csv").open("ab") as stream:
        stream.write(b"x")
    assert "BAD regions.csv" in verify()


def test_the_privacy_statement_is_exact_in_fields_and_plain_in_words(tmp_path: Path) -> None:
    document = load(build(tmp_path), "privacy.json")
    assert document["epsilon"] == {"exact": "1/2", "decimal": 0.5}
    assert [level["epsilon"]["exact"] for level in document["levels"]] == ["1/6"] * 3
    assert document["levels"][0]["scale"] == {"exact": "6", "decimal": 6.0}
    assert document["budget"]["spent"] == {"exact": "3/2", "decimal": 1.5}
    assert document["budget"]["total"]["exact"] == "4"
    assert document["neighbours"] == "add-remove"
    assert document["sensitivity"]["formula"] == "min(Z, N) = min(1, 2) = 1"
    assert document["proviso"] is None
    words = " ".join(document["statement"])
    for phrase in (
        "ε = 1/2 (0.5)",
        "person",
        "one record added or removed",
        "level 2: ε = 1/6 (about 0.166667), scale 6",
        "the number of groups in each region",
        "ε = 3/2 (1.5) has been spent (this release included)",
        "size at least k",
        "drawn by the sampler fast-exact",
        "Canonne, Kamath and Steinke",
    ):
        assert phrase in words
    assert document["mechanism"]["sampler"] == "fast-exact"
    assert any("Timing" in line for line in document["not_protected"])


@pytest.mark.parametrize("from_data", [True, False])
def test_the_statement_says_what_an_input_is_and_that_a_stop_is_not_protected(
    from_data: bool, tmp_path: Path
) -> None:
    document = load(build(tmp_path, example_facts(units_from_data=from_data)), "privacy.json")
    assumed = " ".join(document["assumptions"])
    assert "no records at all are one. Neighbours are taken among inputs" in assumed
    assert "Whether, when and how often a run stopped depends on the data" in assumed
    assert ("records of one group that name different regions are not an input" in assumed) is (
        from_data
    )
    assert ("Each record names a group of the public table" in assumed) is not from_data
    assert any("stopped on their input" in line for line in document["not_protected"])


def test_units_from_data_come_with_the_proviso_in_statement_and_report(tmp_path: Path) -> None:
    facts = example_facts(units_from_data=True)
    folder = build(tmp_path, facts)
    proviso = (
        "ε holds between neighbours with equal G, and whether the only member of a unit is in "
        "the data is not protected by it; the measurements alone are ε-differentially private "
        "without that proviso."
    )
    document = load(folder, "privacy.json")
    assert document["proviso"] == proviso
    assert any(proviso in paragraph for paragraph in document["statement"])
    assert "public table of units" not in " ".join(document["statement"])
    assert proviso in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "formula"),
    [
        ({"neighbours": Neighbours.REPLACE, "sensitivity": 2}, "2 · min(Z, N) = 2 · min(1, 2) = 2"),
        ({"query": Query.COUNTS, "sensitivity": 2}, "2 = 2"),
        (
            {"query": Query.COUNTS, "neighbours": Neighbours.REPLACE, "sensitivity": 4},
            "2 · 2 = 4",
        ),
        (
            {
                "query": Query.COUNTS,
                "sensitivity": 1,
                "units_from_data": True,
                "smallest_size": 1,
                "largest_size": 1,
            },
            "1 = 1",
        ),
    ],
)
def test_the_sensitivity_comes_with_its_formula(changes: dict[str, object], formula: str) -> None:
    sensitivity = changes["sensitivity"]
    cells = 1 if sensitivity == 1 else 3 if "query" in changes else 2
    levels = tuple(
        replace(level, scale=Fraction(6) * sensitivity, cells=cells * level.regions)  # type: ignore[operator]
        for level in example_facts().levels
    )
    facts = example_facts(**changes, levels=levels)
    assert sensitivity_formula(facts) == formula
    assert formula in " ".join(CURRENT.paragraphs(facts))
    replaced = "with one record replaced by another" in " ".join(CURRENT.paragraphs(facts))
    assert replaced is (facts.neighbours is Neighbours.REPLACE)


def test_a_huge_epsilon_is_still_put_into_words() -> None:
    levels = tuple(replace(level, epsilon=Fraction(1000)) for level in example_facts().levels)
    facts = example_facts(epsilon=Fraction(3000), levels=levels, spent_on_population=Fraction(3000))
    assert "more than 1e+308" in CURRENT.paragraphs(facts)[0]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Fraction(2), "2"),
        (Fraction(1, 2), "1/2 (0.5)"),
        (Fraction(1, 3), "1/3 (about 0.333333)"),
        (Fraction(1234567, 1000), "1234567/1000 (about 1234.57)"),
    ],
)
def test_fractions_are_exact_and_say_when_a_decimal_is_not(value: Fraction, words: str) -> None:
    assert in_words(value) == words


def test_checks_certificates_and_digests_are_on_record(tmp_path: Path) -> None:
    document = load(build(tmp_path), "checks.json")
    assert document["passed"] is True
    assert document["checks"] == [
        {
            "name": "totals",
            "suite": "release",
            "statement": CHECK.statement,
            "passed": True,
            "expectations": 2,
        }
    ]
    assert document["certificates"] == {"cpwl": {"optimal": True, "objective": "12"}}
    assert document["table_digests"] == {"group_sizes": "a" * 64, "measurements": "b" * 64}


@pytest.mark.parametrize(
    "checks",
    [
        (),
        (CHECK, replace(CHECK, name="bad", passed=False)),
        (CHECK, replace(CHECK, name="bad", expectations=0)),
    ],
    ids=["no check", "a failed check", "a check of nothing"],
)
def test_without_passed_checks_nothing_is_built(
    tmp_path: Path, checks: tuple[CheckFacts, ...]
) -> None:
    with pytest.raises(GateNotPassed) as caught:
        build(tmp_path, example_facts(checks=checks))
    assert isinstance(caught.value, Refused)
    assert caught.value.failed == tuple(check.name for check in checks[1:])
    assert list((tmp_path / "bundle").iterdir()) == []


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@sum", "\t=1", " =1", "＝1"])
@pytest.mark.parametrize("column", [1, 4], ids=["region", "name"])
def test_a_name_that_a_spreadsheet_would_run_is_refused_not_altered(
    tmp_path: Path, name: str, column: int
) -> None:
    row = list(REGIONS[3])
    row[column] = name
    with pytest.raises(FormulaLikeName) as caught:
        build(tmp_path, regions=[*REGIONS[:3], tuple(row)])
    assert isinstance(caught.value, InputError)
    assert caught.value.rows == (4,)
    assert name.strip() not in str(caught.value).split("none may start")[0]
    assert list((tmp_path / "bundle").iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM group_sizes WHERE region_index = 2 AND size = 1",
        "UPDATE measurements SET value = NULL WHERE region_index = 2 AND size = 1",
        "UPDATE measurements SET region_index = 99 WHERE region_index = 2 AND size = 1",
        "UPDATE group_sizes SET size = 7 WHERE region_index = 2 AND size = 1",
        "DELETE FROM regions WHERE region_index = 3",
        "DELETE FROM margins WHERE region_index = 2 AND size = 1",
        "UPDATE margins SET upper_95 = NULL WHERE region_index = 2 AND size = 1",
        "DELETE FROM margins_by_level WHERE level_index = 2 AND size = 1",
        "UPDATE margins_by_level SET level_index = 3 WHERE level_index = 2 AND size = 1",
    ],
)
def test_a_store_that_is_not_complete_is_refused(tmp_path: Path, damage: str) -> None:
    store = make_store(tmp_path / "safe.duckdb")
    with connect(store) as connection:
        connection.execute(damage)
    with pytest.raises(InconsistentFacts):
        build(tmp_path)
    assert list((tmp_path / "bundle").iterdir()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": Fraction(1)},
        {"sensitivity": 2},
        {"spent_on_population": Fraction(1, 4)},
        {"levels": example_facts().levels[::-1]},
        {"largest_size": 3},
    ],
    ids=["split", "scale", "spend", "levels", "cells"],
)
def test_claims_that_contradict_one_another_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InconsistentFacts) as caught:
        example_facts(**changes)
    assert isinstance(caught.value, PgsrError)


@pytest.mark.parametrize(("smallest", "largest"), [(0, 1), (1, 30), (0, 31), (1, 47), (0, 2000)])
def test_the_distribution_fits_a_page_and_loses_no_group(smallest: int, largest: int) -> None:
    sizes = range(smallest, largest + 1)
    counts = [size % 7 + 1 for size in sizes]
    rows = distribution(sizes, LevelSizes(1, 1, tuple(counts), sum(counts), None))
    assert sum(row.count for row in rows) == sum(counts)
    assert len(rows) <= 30
    assert rows[-1].label == f"{largest:,} or more"
    assert rows[-1].count == counts[-1]
    assert rows[0].label == str(smallest)


def test_no_groups_at_all_have_no_share() -> None:
    nothing = LevelSizes(1, 1, (0, 0), 0, None)
    assert [row.share for row in distribution(range(1, 3), nothing)] == ["–", "–"]


def test_a_staged_bundle_is_published_whole_and_leaves_nothing_else(tmp_path: Path) -> None:
    store = make_store(tmp_path / "private" / "safe.duckdb")
    public = tmp_path / "public"
    public.mkdir()
    with staging_folder(public, "household-sizes", "2026-Q3") as staging:
        with reading(store, staging.folder) as connection:
            build_bundle(connection, staging.bundle, example_facts(), formats=("parquet", "csv"))
        published = publish_bundle(staging.bundle, staging.destination)
    assert published.folder == public / "household-sizes" / "2026-Q3"
    assert published.report.is_file()
    assert len(published.checksums) == 14
    assert [path.name for path in (public / "household-sizes").iterdir()] == ["2026-Q3"]
