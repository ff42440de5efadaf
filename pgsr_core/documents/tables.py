"""What the columns of a bundle's tables mean, in words for their users."""

from __future__ import annotations

from dataclasses import dataclass

from pgsr_core.documents.stated import Stated
from pgsr_core.margins import MARGINS, MARGINS_BY_LEVEL
from pgsr_core.postprocessing.protocol import Query


@dataclass(frozen=True)
class Column:
    """A published column: its type in Data Package words and what it means."""

    name: str
    type: str
    description: str
    required: bool = True
    minimum: int | None = None


@dataclass(frozen=True)
class Table:
    """A published table, and what its columns mean."""

    name: str
    title: str
    description: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]


_LEVEL = Column("level", "integer", "Level of the region; 1 is the root's.", minimum=1)
_REGION = Column("region", "string", "Id of the region.")


def published_tables(facts: Stated) -> tuple[Table, ...]:
    """Describe every table of a bundle, in the order in which they are listed."""
    tables = (_regions(facts), _group_sizes(facts), _measurements(facts))
    return (
        (*tables, _margins(facts), _margins_by_level(facts))
        if facts.margin_repetitions > 0
        else tables
    )


def _regions(facts: Stated) -> Table:
    known = "not public here, hence empty" if facts.units_from_data else "from the unit table"
    return Table(
        name="regions",
        title="The region tree",
        description="One row for every region.",
        columns=(
            _REGION,
            Column("parent", "string", "Id of the region above; empty for the root.", False),
            _LEVEL,
            Column("name", "string", "Name of the region, where it has one.", False),
            Column("groups", "integer", f"The public number of groups, {known}.", False, minimum=0),
        ),
        key=("region",),
    )


def _group_sizes(facts: Stated) -> Table:
    return Table(
        name="group_sizes",
        title="Groups by size in each region",
        description="The released counts; one row for every region and size.",
        columns=(
            _LEVEL,
            _REGION,
            _size(facts),
            Column("count", "integer", "Number of groups of that size.", minimum=0),
        ),
        key=("region", "size"),
    )


def _size(facts: Stated) -> Column:
    top = facts.largest_size
    words = f"Size of the groups; {top} stands for {top} and more."
    return Column("size", "integer", words, minimum=facts.smallest_size)


def _margins(facts: Stated) -> Table:
    bounds = [
        Column(
            f"{side}_{percent}",
            "integer",
            f"{words} end of the {percent}% interval for the true number of groups.",
            minimum=0,
        )
        for percent in (90, 95)
        for side, words in (("lower", "Lower"), ("upper", "Upper"))
    ]
    return Table(
        name=MARGINS,
        title="Margins of error",
        description=(
            "For every released count an interval that holds the true number of groups with 90% "
            "and with 95% confidence, whatever that number is: of all releases that could have "
            "been drawn, at least so many have an interval that holds it. Computed from the "
            "measurements and the law of their noise, at no cost to privacy; one row for every "
            "region and size."
        ),
        columns=(_LEVEL, _REGION, _size(facts), *bounds),
        key=("region", "size"),
    )


def _margins_by_level(facts: Stated) -> Table:
    half_widths = [
        Column(
            f"half_width_{percent}",
            "integer",
            f"{percent}% of the level's counts of that size are at most so far from the truth.",
            minimum=0,
        )
        for percent in (90, 95)
    ]
    return Table(
        name=MARGINS_BY_LEVEL,
        title="Typical margins of error",
        description=(
            "How far counts of a level and size typically are from the truth, by simulating noise "
            f"and steps like those of the release {facts.margin_repetitions} times on its result; "
            "one row for every level and size."
        ),
        columns=(_LEVEL, _size(facts), *half_widths),
        key=("level", "size"),
    )


def _measurements(facts: Stated) -> Table:
    if facts.query == Query.CUMULATIVE:
        size = "A size k; the value counts groups of size at least k."
        value = "Noisy number of groups of size at least k; may be negative."
    else:
        size = "Size of the groups."
        value = "Noisy number of groups of that size; may be negative."
    return Table(
        name="measurements",
        title="Noisy measurements",
        description=(
            "The differentially private measurements from which the released counts were "
            "computed; one row for every region and measured size."
        ),
        columns=(
            _LEVEL,
            _REGION,
            Column("size", "integer", size, minimum=facts.measured_sizes.start),
            Column("value", "integer", value),
            Column(
                "scale",
                "number",
                "Scale of the double-geometric noise, P(X = v) ∝ exp(−|v| / scale); exact in "
                "privacy.json.",
            ),
        ),
        key=("region", "size"),
    )
