"""Every neighbour of every small input: the run stops just where docs/privacy.md says it may."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from functools import cache
from itertools import combinations_with_replacement
from pathlib import Path

import duckdb
import pytest

from pgsr_core.errors import InputError
from tasks.configuration.model import Columns, Sizes, Source
from tasks.ingestion import errors
from tasks.ingestion.persons import ingest_persons
from tasks.ingestion.regions import read_regions
from tasks.ingestion.source_digest import resolve_source
from tasks.ingestion.units import read_units
from tasks.storage.duck import connect

PRIVACY = Path(__file__).parents[2] / "docs" / "privacy.md"
NEVER, ALONE, TOGETHER = "–", "alone", "together"
RELATIONS = ("add-remove", "replace")
UNIT_SOURCES = ("unit table", "from data")
MOST_RECORDS = 3
Z = 1
REGION_OF = {"u1": "oak", "u2": "elm"}
LEAVES = ("oak", "elm")
QUANTITIES = tuple(str(quantity) for quantity in range(Z + 1))
COLUMNS = ("person", "unit", "region", "quantity")

Record = tuple[str, ...]  # unit, region, quantity
Row = tuple[str, ...]  # person, unit, region, quantity; fewer cells where the row is ragged


def documented() -> dict[str, dict[tuple[str, str], str]]:
    """Rule → (relation, unit source) → answer, as the page says it."""
    text = PRIVACY.read_text(encoding="utf-8")
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if re.fullmatch(r"`[A-Z]\w+`", cells[0]) and len(cells) == 6:
            places = [(relation, source) for source in UNIT_SOURCES for relation in RELATIONS]
            found[cells[0].strip("`")] = dict(zip(places, cells[1:5], strict=True))
    return found


def is_possible(record: Record, source: str) -> bool:
    """Whether a record keeps the rules that are about it alone; an oracle of its own."""
    if len(record) != 3 or record[2] not in QUANTITIES or not record[0].isalnum():
        return False
    unit, region, _ = record
    return REGION_OF.get(unit) == region if source == "unit table" else region in LEAVES


def is_input(rows: tuple[Row, ...], source: str) -> bool:
    """Whether a table is in the domain of the guarantee."""
    people = [row[0] for row in rows]
    places = {(row[1], row[2]) for row in rows if len(row) == len(COLUMNS)}
    return (
        all(person.isalnum() for person in people)
        and len(set(people)) == len(people)
        and all(is_possible(row[1:], source) for row in rows)
        and len({unit for unit, _ in places}) == len(places)
    )


def inputs(source: str, *, most: int) -> Iterator[tuple[Row, ...]]:
    """Every table of the domain with a few records of two units, whose order does not matter."""
    possible = [
        (unit, region, quantity)
        for unit in REGION_OF
        for region in LEAVES
        for quantity in QUANTITIES
        if is_possible((unit, region, quantity), source)
    ]
    for size in range(most + 1):
        for records in combinations_with_replacement(possible, size):
            rows = tuple((f"p{n}", *record) for n, record in enumerate(records))
            if is_input(rows, source):
                yield rows


def further_rows(rows: tuple[Row, ...]) -> Iterator[Row]:
    """Records to add: every possible one, and of one unit (the other is its mirror image) every
    one that is wrong in one cell or as a row."""
    for unit in REGION_OF:
        for region in LEAVES:
            for quantity in QUANTITIES:
                yield ("new", unit, region, quantity)
                if rows:
                    yield (rows[0][0], unit, region, quantity)
    sound = ("new", "u1", REGION_OF["u1"], "1")
    for place in range(len(COLUMNS)):
        yield (*sound[:place], "", *sound[place + 1 :])
    for wrong in ("-1", str(Z + 1), "0.5", "NaN", "inf", "many", "9" * 40):
        yield (*sound[:3], wrong)
    yield from (("new", "u1", region, "1") for region in ("wood", "nowhere"))
    yield ("new", "u3", "oak", "1")
    yield sound[:3]
    yield (*sound[:3], '"1')
    yield (*sound[:3], "\udcff")


def neighbours(rows: tuple[Row, ...], relation: str) -> Iterator[tuple[Row, ...]]:
    fewer = [rows[:place] + rows[place + 1 :] for place in range(len(rows))]
    if relation == "add-remove":
        yield from fewer
    kept = [rows] if relation == "add-remove" else fewer
    for rest in kept:
        if len(rest) < MOST_RECORDS:
            yield from ((*rest, row) for row in further_rows(rest))


class Office:
    """A folder with public tables, in which one person table after the other is ingested."""

    def __init__(self, folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self._folder = folder
        self._connection = connection
        (folder / "regions.csv").write_text("region,parent\nwood,\noak,wood\nelm,wood\n")
        lines = [f"{unit},{region}" for unit, region in REGION_OF.items()]
        (folder / "units.csv").write_text("\n".join(["unit,region", *lines]) + "\n")
        self._tree = read_regions("regions.csv", folder=folder).tree
        self._units = read_units("units.csv", self._tree, folder=folder)
        self.outcome = cache(self._outcome)

    def _outcome(self, rows: tuple[Row, ...], source: str) -> str | None:
        """The rule that stops a run on a table; None if it goes on."""
        lines = [",".join(row) for row in (COLUMNS, *rows)]
        content = "\n".join(lines).encode("utf-8", "surrogateescape") + b"\n"
        (self._folder / "persons.csv").write_bytes(content)
        columns = Columns(**dict(zip(COLUMNS, COLUMNS, strict=True)))
        files = resolve_source(
            Source(persons="persons.csv", columns=columns), folder=self._folder, slot=date.min
        )
        units = self._units if source == "unit table" else None
        try:
            ingest_persons(
                self._connection,
                files,
                tree=self._tree,
                units=units,
                sizes=Sizes(max=2, largest_contribution=Z),
            )
        except InputError as error:
            return type(error).__name__
        return None


def canonical(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """The same table as all that differ from it in names of persons or the order of rows only."""
    if not rows:
        return rows
    *first, last = rows
    first.sort(key=lambda row: (row[1:], row[0] != last[0]))
    names = {row[0]: f"p{number}" for number, row in enumerate(first)}
    renamed = tuple((names[row[0]], *row[1:]) for row in first)
    return (*renamed, (names.get(last[0], last[0] and "new"), *last[1:]))


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    readable = [tmp_path / name for name in ("persons.csv", "units.csv")]
    with connect(None, readable=readable, threads=1) as connection:
        yield Office(tmp_path, connection)


@pytest.mark.parametrize("source", UNIT_SOURCES)
def test_neighbours_stop_a_run_exactly_where_the_page_says(source: str, office: Office) -> None:
    seen: dict[str, dict[str, set[str]]] = {relation: defaultdict(set) for relation in RELATIONS}
    stopped = tried = 0
    for rows in inputs(source, most=MOST_RECORDS):
        assert office.outcome(canonical(rows), source) is None, rows
        for relation in RELATIONS:
            for neighbour in neighbours(rows, relation):
                rule = office.outcome(canonical(neighbour), source)
                assert (rule is None) == is_input(neighbour, source), (rows, neighbour, rule)
                tried += 1
                if rule is not None:
                    stopped += 1
                    last = neighbour[-1]
                    possible = is_possible(last[1:], source) and last[0].isalnum()
                    seen[relation][rule].add(TOGETHER if possible else ALONE)
    assert tried > stopped > 1000
    for relation in RELATIONS:
        said = {rule: answers[relation, source] for rule, answers in documented().items()}
        found = {
            rule: TOGETHER if TOGETHER in answers else ALONE
            for rule, answers in seen[relation].items()
        }
        assert {rule: answer for rule, answer in said.items() if answer != NEVER} == found


def test_the_page_answers_for_every_rule_and_names_the_stops_that_are_no_rules() -> None:
    rules = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, InputError) and kind is not InputError
    }
    assert documented().keys() == rules
    answers = {answer for row in documented().values() for answer in row.values()}
    assert answers == {NEVER, ALONE, TOGETHER}
    text = PRIVACY.read_text(encoding="utf-8")
    for stop in ("OutOfMemory", "SourceChanged", "ReleaseHasOtherMeasurements", "InputStopped"):
        assert f"`{stop}`" in text
