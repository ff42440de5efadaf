"""What the documents of a bundle claim, read strictly into frozen facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any

from pgsr_core.attestation.provenance import exact_fraction
from pgsr_core.attestation.strict_json import NotStrictJson, read_object
from pgsr_core.documents.names import CHECKS_FILE, PACKAGE_FILE, PRIVACY_FILE
from pgsr_core.documents.stated import StatedLevel
from pgsr_core.lineage import Lineage
from pgsr_core.margins import MARGINS
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.sensitivity import Neighbours

_LARGEST = 2**63 - 1
_LARGEST_SIZE = 2**31 - 1


class Malformed(Exception):
    """A document does not say what it must; the sentence names the field."""


@dataclass(frozen=True)
class Heading:
    """What every document says of the release it belongs to."""

    release: str
    published_on: date
    simulation: bool


@dataclass(frozen=True)
class PrivacyStatement:
    """What privacy.json says in numbers and names; `document` is all of it, words included."""

    document: Mapping[str, Any]
    wording: int
    product: str
    heading: Heading
    population: str
    budget_population: str
    unit_of_privacy: str
    neighbours: Neighbours
    epsilon: Fraction
    levels: tuple[StatedLevel, ...]
    mechanism: str
    sampler: str
    query: Query
    sensitivity: int
    largest_contribution: int
    top_coded_at: int
    smallest_size: int
    largest_size: int
    units: str
    groups: int
    keeps_region_totals: bool
    has_proviso: bool
    spent: Fraction
    budget: Fraction
    lineage: Lineage

    @property
    def regions(self) -> int:
        """How many regions the levels have in all."""
        return sum(level.regions for level in self.levels)

    @property
    def sizes(self) -> range:
        """The published sizes."""
        return range(self.smallest_size, self.largest_size + 1)

    @property
    def measured_sizes(self) -> range:
        """The sizes of the measurements."""
        return self.query.measured_sizes(self.sizes)

    @property
    def units_are_public(self) -> bool:
        """Whether a public table of units gives the number of groups of each region."""
        return self.units == "public-table"


@dataclass(frozen=True)
class CheckClaim:
    """One gate in checks.json."""

    name: str
    passed: bool
    expectations: int


@dataclass(frozen=True)
class ChecksDocument:
    """What is read of checks.json; `document` is all of it."""

    document: Mapping[str, Any]
    product: str
    heading: Heading
    passed: bool
    checks: tuple[CheckClaim, ...]
    failed_certificates: tuple[str, ...]
    table_digests: Mapping[str, str]
    margin_repetitions: int


@dataclass(frozen=True)
class Listed:
    """A file in datapackage.json."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class PackageDocument:
    """What is read of datapackage.json; `document` is all of it."""

    document: Mapping[str, Any]
    heading: Heading
    generator: str
    files: tuple[Listed, ...]


class Fields:
    """Typed access to a JSON object; what is missing or mistyped is named by its path."""

    def __init__(self, file: str, values: Mapping[str, Any], path: str = "") -> None:
        self.values = values
        self._file = file
        self._path = path

    @classmethod
    def read(cls, file: str, content: bytes) -> Fields:
        """Parse a document.

        Raises:
            Malformed: it is no strict JSON object.
        """
        try:
            return cls(file, read_object(content))
        except NotStrictJson as error:
            raise Malformed(f"{file} cannot be read: {error}") from None

    def text(self, key: str) -> str:
        """A string."""
        value = self.values.get(key)
        if not isinstance(value, str):
            raise self._malformed(key, "a text")
        return value

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self.values.get(key)
        if not isinstance(value, bool):
            raise self._malformed(key, "true or false")
        return value

    def whole(self, key: str, *, least: int = 0, most: int = _LARGEST) -> int:
        """An integer within bounds."""
        value = self.values.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._malformed(key, f"a whole number from {least} to {most}")
        return value

    def number(self, key: str) -> float:
        """Any number."""
        value = self.values.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._malformed(key, "a number")
        try:
            return float(value)
        except OverflowError:
            raise self._malformed(key, "a number within the range of floats") from None

    def exact(self, key: str) -> Fraction:
        """A fraction that is given exactly and as a decimal, which must agree."""
        inner = self.inner(key)
        try:
            value = exact_fraction(inner.text("exact"))
            agrees = float(value) == inner.number("decimal")
        except (ValueError, OverflowError):
            raise self._malformed(key, "a fraction, exact and as a decimal") from None
        if not agrees:
            raise Malformed(f"{self._file}: the two forms of {self._path}{key} differ")
        return value

    def inner(self, key: str) -> Fields:
        """An object in this one."""
        value = self.values.get(key)
        if not isinstance(value, dict):
            raise self._malformed(key, "an object")
        return Fields(self._file, value, f"{self._path}{key}.")

    def each(self, key: str) -> list[Fields]:
        """A list of objects."""
        values = self.values.get(key)
        if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
            raise self._malformed(key, "a list of objects")
        return [
            Fields(self._file, value, f"{self._path}{key}[{place}].")
            for place, value in enumerate(values)
        ]

    def heading(self, *, release: str = "release") -> Heading:
        """What every document says of its release."""
        try:
            day = date.fromisoformat(self.text("published_on"))
        except ValueError:
            raise self._malformed("published_on", "a day") from None
        return Heading(self.text(release), day, self.flag("simulation"))

    def texts(self, key: str) -> dict[str, str]:
        """An object whose values are strings."""
        inner = self.inner(key)
        return {name: inner.text(name) for name in inner.names}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(self.values)

    def has(self, key: str) -> bool:
        """Whether a field says something."""
        return self.values.get(key) not in (None, "")

    def says_no(self) -> bool:
        """Whether any field is false."""
        return any(value is False for value in self.values.values())

    def _malformed(self, key: str, expected: str) -> Malformed:
        return Malformed(f"{self._file}: {self._path}{key} is not {expected}")


def read_privacy(content: bytes) -> PrivacyStatement:
    """Read privacy.json.

    Raises:
        Malformed: the field that is missing, mistyped or unknown.
    """
    fields = Fields.read(PRIVACY_FILE, content)
    mechanism, sensitivity = fields.inner("mechanism"), fields.inner("sensitivity")
    budget, sizes = fields.inner("budget"), fields.inner("sizes")
    try:
        neighbours, query = Neighbours(fields.text("neighbours")), Query(mechanism.text("query"))
    except ValueError:
        raise Malformed(f"{PRIVACY_FILE}: neighbours or mechanism.query is not known") from None
    statement = PrivacyStatement(
        document=fields.values,
        wording=fields.whole("wording", least=2) if "wording" in fields.names else 1,
        product=fields.text("product"),
        heading=fields.heading(),
        population=fields.text("population"),
        budget_population=budget.text("population"),
        unit_of_privacy=fields.text("unit_of_privacy"),
        neighbours=neighbours,
        epsilon=fields.exact("epsilon"),
        levels=tuple(_level(level) for level in fields.each("levels")),
        mechanism=mechanism.text("name"),
        sampler=mechanism.text("sampler"),
        query=query,
        sensitivity=sensitivity.whole("value", least=1),
        largest_contribution=sensitivity.whole("largest_contribution", least=1),
        top_coded_at=sensitivity.whole("largest_size", least=1),
        smallest_size=sizes.whole("smallest"),
        largest_size=sizes.whole("largest", least=1, most=_LARGEST_SIZE),
        units=fields.text("units"),
        groups=fields.whole("groups"),
        keeps_region_totals=fields.flag("keeps_region_totals"),
        has_proviso=fields.has("proviso"),
        spent=budget.exact("spent"),
        budget=budget.exact("total"),
        lineage=_lineage(fields),
    )
    if statement.units not in {"public-table", "from-data"}:
        raise Malformed(f"{PRIVACY_FILE}: units is neither public-table nor from-data")
    return statement


def _lineage(fields: Fields) -> Lineage:
    if not fields.has("lineage"):
        return Lineage()
    said = fields.inner("lineage")
    names = ("replaces", "reposted_from")
    try:
        return Lineage(*(said.text(name) if said.has(name) else None for name in names))
    except ValueError:
        raise Malformed(f"{PRIVACY_FILE}: lineage refers to no plain name") from None


def _level(fields: Fields) -> StatedLevel:
    return StatedLevel(
        level=fields.whole("level", least=1),
        regions=fields.whole("regions", least=1),
        cells=fields.whole("cells", least=1),
        epsilon=fields.exact("epsilon"),
        scale=fields.exact("scale"),
        expected_absolute_noise=fields.number("expected_absolute_noise"),
    )


def read_checks(content: bytes) -> ChecksDocument:
    """Read checks.json.

    Raises:
        Malformed: the field that is missing or mistyped.
    """
    fields = Fields.read(CHECKS_FILE, content)
    certificates = fields.inner("certificates")
    return ChecksDocument(
        document=fields.values,
        product=fields.text("product"),
        heading=fields.heading(),
        passed=fields.flag("passed"),
        checks=tuple(
            CheckClaim(check.text("name"), check.flag("passed"), check.whole("expectations"))
            for check in fields.each("checks")
        ),
        failed_certificates=tuple(
            step for step in certificates.names if certificates.inner(step).says_no()
        ),
        table_digests=fields.texts("table_digests"),
        margin_repetitions=certificates.inner(MARGINS).whole("repetitions", least=1)
        if MARGINS in certificates.names
        else 0,
    )


def read_package(content: bytes) -> PackageDocument:
    """Read datapackage.json.

    Raises:
        Malformed: the field that is missing or mistyped.
    """
    fields = Fields.read(PACKAGE_FILE, content)
    return PackageDocument(
        document=fields.values,
        heading=fields.heading(release="version"),
        generator=fields.text("generator"),
        files=tuple(
            Listed(
                name=resource.text("path"),
                sha256=resource.text("hash").removeprefix("sha256:"),
                size=resource.whole("bytes"),
            )
            for resource in fields.each("resources")
        ),
    )
