"""A product's configuration: one frozen model, unknown keys fatal, numbers exact."""

from __future__ import annotations

import re
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from pgsr_core.description import FROM_DATA
from pgsr_core.mechanisms import AUTO, MECHANISMS, why_not
from pgsr_core.noise.catalogue import ReleaseSampler
from pgsr_core.sensitivity import Neighbours
from tasks.configuration.alerts import Alerts
from tasks.configuration.dates import check_template, has_template, on_the_clock, render
from tasks.configuration.schedule import Schedule
from tasks.configuration.section import Exact, Section

IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_ ]{0,62}")
MEMORY = re.compile(r"[1-9][0-9]{0,5}(MB|GB|MiB|GiB)")
LARGEST_MAX_SIZE = 1_000_000
MOST_REPETITIONS = 1_000
# Date directives have one width each, so a name that is safe on one day is safe on all.
ANY_DAY = date(2000, 1, 1)


def identifier(value: Any) -> str:
    """Accept names that are safe as folder names, identifiers and table cells."""
    if not isinstance(value, str) or not IDENTIFIER.fullmatch(value):
        raise ValueError(
            "must start with a letter or digit and hold only letters, digits, '_', '-' and '.' "
            "(at most 64)"
        )
    return value


def column_name(value: Any) -> str:
    """Accept plain column names only; they end up, quoted, in SQL."""
    if not isinstance(value, str) or not COLUMN.fullmatch(value):
        raise ValueError(
            "must be a plain column name: letters, digits, '_' and spaces, at most 63, "
            "not starting with a digit"
        )
    return value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Identifier = Annotated[str, BeforeValidator(identifier)]
Column = Annotated[str, BeforeValidator(column_name)]


class Population(Section):
    """Whom the budget belongs to: the same people next month are the same population."""

    name: Identifier
    budget: Exact = Field(gt=0)
    unit_of_privacy: str = Field(min_length=1, max_length=200)


class Columns(Section):
    """Names of the columns of the person table."""

    person: Column
    unit: Column
    region: Column
    quantity: Column | None = None


class Source(Section):
    """Where the persons are: CSV or Parquet files, globs of them, or a table of a DuckDB file."""

    persons: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = Field(min_length=1)
    table: Column | None = None
    columns: Columns

    @field_validator("persons")
    @classmethod
    def _of_one_kind(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            check_template(pattern)
        kinds = {source_kind(pattern) for pattern in patterns}
        if None in kinds or len(kinds) > 1:
            raise ValueError("must end in .csv, .parquet or .duckdb, and all in the same")
        if kinds == {"duckdb"} and len(patterns) > 1:
            raise ValueError("only one .duckdb file can be read")
        return patterns

    @model_validator(mode="after")
    def _table_of_a_database(self) -> Source:
        if (source_kind(self.persons[0]) == "duckdb") != (self.table is not None):
            raise ValueError("table names the table of a .duckdb file: give both or neither")
        return self


class LevelColumns(Section):
    """A region tree as one column a level, coarsest first, one row a leaf."""

    table: str
    columns: tuple[Column, ...] = Field(min_length=1)
    root: Identifier


class Sizes(Section):
    """The public bounds on group sizes and on what one record adds."""

    max: int = Field(ge=1, le=LARGEST_MAX_SIZE)
    largest_contribution: int = Field(default=1, ge=1, le=LARGEST_MAX_SIZE)


class Objective(Section):
    """What an optimised split minimises: the levels' expected errors, each times its weight."""

    weights: tuple[Exact, ...]

    @field_validator("weights")
    @classmethod
    def _positive(cls, weights: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
        if any(weight <= 0 for weight in weights):
            raise ValueError("every level needs a positive weight, or it would get no epsilon")
        return weights


class OptimisedSplit(Section):
    """A split that is computed from public facts for a declared objective."""

    optimise: Objective


def _split_word(word: Any) -> Any:
    if word not in ("uniform", "balanced", "optimise"):
        raise ValueError(
            "must be uniform, balanced, optimise, one share a level such as ['0.3', '0.7'], "
            "or {optimise: {weights: [2, 1]}}"
        )
    return word


def _kind_of_split(split: Any) -> str:
    if isinstance(split, list | tuple):
        return "split[shares]"
    return "split[objective]" if isinstance(split, dict | OptimisedSplit) else "split[word]"


Split = Annotated[
    Annotated[
        Literal["uniform", "balanced", "optimise"],
        BeforeValidator(_split_word),
        Tag("split[word]"),
    ]
    | Annotated[tuple[Exact, ...], Tag("split[shares]")]
    | Annotated[OptimisedSplit, Tag("split[objective]")],
    Discriminator(_kind_of_split),
]


class Privacy(Section):
    """The claim: epsilon, for which neighbours, its split over the levels, and who draws."""

    epsilon: Exact = Field(gt=0)
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    split: Split | None = Field(default=None, description="None: as suits the mechanism")
    sampler: ReleaseSampler = ReleaseSampler.OPENDP

    @field_validator("split")
    @classmethod
    def _shares(cls, split: Split | None) -> Split | None:
        if isinstance(split, tuple):
            if any(share <= 0 for share in split):
                raise ValueError("every level needs a positive share")
            if sum(split) != 1:
                raise ValueError(f"the shares must add up to exactly 1, not {sum(split)}")
        return split


class Publish(Section):
    """Where the bundle goes and what is in it."""

    to: str
    formats: tuple[Literal["parquet", "csv"], ...] = ("parquet", "csv")
    signing_key: str | None = None

    @field_validator("formats")
    @classmethod
    def _some(cls, formats: tuple[str, ...]) -> tuple[str, ...]:
        if not formats or len(set(formats)) < len(formats):
            raise ValueError("name at least one format, each once")
        return formats


class Margins(Section):
    """Margins of error: how often the release is simulated; 0 publishes none."""

    repetitions: int = Field(default=40, ge=0, le=MOST_REPETITIONS)


class Retention(Section):
    """How long what is confidential is kept after publication, for `pgsr purge --due`."""

    confidential_days: int = Field(ge=0, le=36_500)


class Resources(Section):
    """Limits for the machine's sake; they change no result."""

    memory_limit: str = "4GB"
    threads: int | None = Field(default=None, ge=1, le=1024)

    @field_validator("memory_limit")
    @classmethod
    def _memory(cls, limit: str) -> str:
        if not MEMORY.fullmatch(limit):
            raise ValueError("must be a number and a unit, such as 4GB or 512MB")
        return limit


class Configuration(Section):
    """One product. Paths are relative to the folder of the configuration file."""

    product: Identifier
    release: str
    population: Population
    source: Source
    regions: str | LevelColumns
    units: str
    sizes: Sizes
    privacy: Privacy
    mechanism: str = "cumulative"
    margins: Margins = Margins()
    publish: Publish
    replaces: Identifier | None = None
    retention: Retention | None = None
    resources: Resources = Resources()
    schedule: Schedule | None = None
    alerts: Alerts | None = None
    simulate: bool = False
    seed: int | None = Field(default=None, ge=0, lt=2**63)

    @field_validator("release")
    @classmethod
    def _release(cls, release: str) -> str:
        check_template(release)
        identifier(render(release, ANY_DAY))
        return release

    @field_validator("schedule")
    @classmethod
    def _a_series(cls, schedule: Schedule | None, info: ValidationInfo) -> Schedule | None:
        release = info.data.get("release")
        if schedule is not None and release is not None and not has_template(release):
            raise ValueError(
                "every slot is a release of its own, so release must hold a date template, "
                "such as {date:%Y}-Q{quarter}"
            )
        return schedule

    @field_validator("mechanism")
    @classmethod
    def _mechanism(cls, name: str) -> str:
        if name != AUTO and name not in MECHANISMS:
            raise ValueError(why_not(name))
        return name

    @field_validator("replaces")
    @classmethod
    def _one_before(cls, replaces: str | None, info: ValidationInfo) -> str | None:
        release = str(info.data.get("release", ""))
        if replaces is not None and has_template(release):
            raise ValueError("is for one release: give that one a name without a date template")
        if replaces is not None and replaces == release:
            raise ValueError("a release cannot replace itself")
        return replaces

    @field_validator("simulate")
    @classmethod
    def _never_signed(cls, simulate: bool, info: ValidationInfo) -> bool:
        publish = info.data.get("publish")
        if simulate and publish is not None and publish.signing_key is not None:
            raise ValueError("a simulation is not private and cannot be signed")
        return simulate

    @field_validator("seed")
    @classmethod
    def _never_in_a_release(cls, seed: int | None, info: ValidationInfo) -> int | None:
        if seed is not None and not info.data.get("simulate"):
            raise ValueError("is for simulate: true only; a release is never seeded")
        return seed

    @property
    def units_from_data(self) -> bool:
        """Whether the number of groups is taken from the data instead of a public table."""
        return self.units == FROM_DATA

    def on_its_clock(self, slot: date) -> datetime:
        """A slot on the clock that names releases: the schedule's, else this machine's."""
        return on_the_clock(slot, self.schedule.zone if self.schedule is not None else None)

    @property
    def published_sizes(self) -> range:
        """From 0 where a public unit table tells of empty units, else from 1."""
        return range(1 if self.units_from_data else 0, self.sizes.max + 1)


def source_kind(pattern: str) -> str | None:
    """Say which reader a source needs by its ending: csv, parquet or duckdb."""
    suffix = Path(pattern).suffix.lower().lstrip(".")
    return suffix if suffix in {"csv", "parquet", "duckdb"} else None


def render_release(configuration: Configuration, slot: date) -> str:
    """Return the release's name for a slot, checked to be a safe name."""
    return identifier(render(configuration.release, configuration.on_its_clock(slot)))
