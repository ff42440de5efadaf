"""What is asserted: the checks of every suite, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from expectations.frames import PUBLISHED_COLUMNS, View
from expectations.promises import Promises
from expectations.report import Suite

INTEGER_TYPES = (
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"),
)


@dataclass(frozen=True)
class Assertion:
    """One expectation of Great Expectations, named here so that its absence can be noticed.

    Attributes:
        name: unique within its check.
        kind: the class in ``great_expectations.expectations``.
        arguments: its arguments; public facts and column names only, since they are kept.
    """

    name: str
    kind: str
    arguments: Mapping[str, object]


@dataclass(frozen=True)
class Check:
    """A statement to auditors and the assertions that, together, establish it."""

    name: str
    suite: Suite
    statement: str
    view: View
    assertions: tuple[Assertion, ...]


def known(what: str, column: str) -> Assertion:
    """No value is missing; all other expectations pass over missing values in silence."""
    return Assertion(f"{what} known", "ExpectColumnValuesToNotBeNull", {"column": column})


def exact(what: str, column: str) -> Assertion:
    """The frame holds 64-bit integers; floats compare as equal above 2^53."""
    return Assertion(
        f"{what} exact", "ExpectColumnValuesToBeOfType", {"column": column, "type_": "int64"}
    )


def equal(name: str, left: str, right: str) -> Assertion:
    """Two columns agree in every row."""
    return Assertion(name, "ExpectColumnPairValuesToBeEqual", {"column_A": left, "column_B": right})


def among(name: str, column: str, values: tuple[object, ...]) -> Assertion:
    """Every value is one of those given."""
    return Assertion(
        name, "ExpectColumnValuesToBeInSet", {"column": column, "value_set": list(values)}
    )


def at_least(name: str, larger: str, smaller: str) -> Assertion:
    """One column is nowhere below another."""
    return Assertion(
        name,
        "ExpectColumnPairValuesAToBeGreaterThanB",
        {"column_A": larger, "column_B": smaller, "or_equal": True},
    )


CHILDREN_SUM_TO_PARENT = Check(
    "children-sum-to-parent",
    Suite.CONSISTENCY,
    "For every region and every size, the counts of the region's children add up to its own.",
    View.CELLS,
    (
        known("count", "value"),
        exact("count", "value"),
        known("children's sum", "children_total"),
        exact("children's sum", "children_total"),
        equal("count equals children's sum", "value", "children_total"),
    ),
)

NO_NEGATIVE_COUNT = Check(
    "no-negative-count",
    Suite.NON_NEGATIVITY,
    "No count is below zero.",
    View.CELLS,
    (
        known("count", "value"),
        Assertion(
            "count at least 0",
            "ExpectColumnValuesToBeBetween",
            {"column": "value", "min_value": 0},
        ),
    ),
)

COUNTS_ARE_WHOLE = Check(
    "counts-are-whole",
    Suite.INTEGRALITY,
    "Every count is a whole number that fits 64 bits; none is missing.",
    View.CELLS,
    (known("count", "value"), exact("count", "value")),
)

COLUMNS_HOLD_INTEGERS = Check(
    "columns-hold-integers",
    Suite.INTEGRALITY,
    "Regions, sizes and counts are stored in columns of an integer type.",
    View.COLUMNS,
    (known("type", "type"), among("type is an integer type", "type", INTEGER_TYPES)),
)

LEVELS_SUM_TO_GROUPS = Check(
    "levels-sum-to-groups",
    Suite.FAITHFULNESS,
    "At every level, together with the regions that end above it, the counts add up to the "
    "number of groups G.",
    View.LEVELS,
    (
        known("level's sum", "total"),
        exact("level's sum", "total"),
        known("number of groups", "groups"),
        exact("number of groups", "groups"),
        equal("level's sum equals number of groups", "total", "groups"),
    ),
)

EVERY_CELL_ONCE = Check(
    "every-cell-once",
    Suite.COMPLETENESS,
    "Every public region has exactly one row for every public size.",
    View.CELLS,
    (known("occurrences", "occurrences"), among("one occurrence", "occurrences", (1,))),
)

NOTHING_EXTRA = Check(
    "nothing-extra",
    Suite.COMPLETENESS,
    "There are as many rows as public regions times public sizes, and none outside them.",
    View.EXTENT,
    (
        known("row count", "rows"),
        equal("row count as public", "rows", "cells"),
        among("no row outside", "outside", (0,)),
    ),
)

PUBLISHED_COLUMNS_ONLY = Check(
    "published-columns",
    Suite.COMPLETENESS,
    "The table has the columns region, size and count, and no other.",
    View.COLUMNS,
    (
        Assertion(
            "column names as published",
            "ExpectColumnDistinctValuesToEqualSet",
            {"column": "column", "value_set": list(PUBLISHED_COLUMNS)},
        ),
    ),
)

REGIONS_AS_PUBLIC = Check(
    "regions-as-public",
    Suite.PUBLIC_FACTS,
    "The table of regions is the public region tree: the same regions, parents and levels.",
    View.REGION_TABLE,
    (
        known("region", "region"),
        known("public region", "promised_region"),
        equal("region as public", "region", "promised_region"),
        equal("parent as public", "parent", "promised_parent"),
        known("level", "level"),
        exact("level", "level"),
        equal("level as public", "level", "promised_level"),
    ),
)

ROOT_SUMS_TO_GROUPS = Check(
    "root-sums-to-groups",
    Suite.PUBLIC_FACTS,
    "The counts of the whole add up to the public number of groups G.",
    View.ROOT,
    (
        known("root's sum", "total"),
        exact("root's sum", "total"),
        known("number of groups", "groups"),
        exact("number of groups", "groups"),
        equal("root's sum equals number of groups", "total", "groups"),
    ),
)

REGION_GROUPS_AS_PUBLIC = Check(
    "region-groups-as-public",
    Suite.PUBLIC_FACTS,
    "The number of groups stated beside each region is the public one.",
    View.REGION_TABLE,
    (
        known("region's groups", "exact_groups"),
        exact("region's groups", "exact_groups"),
        known("public groups", "promised_groups"),
        exact("public groups", "promised_groups"),
        equal("region's groups as public", "exact_groups", "promised_groups"),
    ),
)

REGION_GROUPS_WITHHELD = Check(
    "region-groups-withheld",
    Suite.PUBLIC_FACTS,
    "No number of groups is stated beside any region, since none is public.",
    View.REGION_TABLE,
    (among("no region's groups", "has_groups", (False,)),),
)

REGIONS_SUM_TO_GROUPS = Check(
    "regions-sum-to-groups",
    Suite.PUBLIC_FACTS,
    "The counts of every region add up to its public number of groups.",
    View.REGION_TOTALS,
    (
        known("region's sum", "total"),
        exact("region's sum", "total"),
        known("public groups", "promised_groups"),
        exact("public groups", "promised_groups"),
        equal("region's sum equals public groups", "total", "promised_groups"),
    ),
)

EVERY_CELL_HAS_MARGINS = Check(
    "every-cell-has-margins",
    Suite.MARGINS,
    "Every released count has exactly one row of margins, of whole numbers.",
    View.MARGINS,
    (
        known("occurrences", "occurrences"),
        among("one occurrence", "occurrences", (1,)),
        *(
            state(f"{side} {percent}", f"{side}_{percent}")
            for percent in (90, 95)
            for side in ("lower", "upper")
            for state in (known, exact)
        ),
    ),
)

MARGINS_HOLD_THE_COUNT = Check(
    "margins-hold-the-count",
    Suite.MARGINS,
    "No lower margin is below zero, every count lies within its 90% margins, and those lie "
    "within the 95% margins.",
    View.MARGINS,
    (
        known("count", "value"),
        exact("count", "value"),
        Assertion(
            "lower 95 at least 0",
            "ExpectColumnValuesToBeBetween",
            {"column": "lower_95", "min_value": 0},
        ),
        at_least("lower 90 at least lower 95", "lower_90", "lower_95"),
        at_least("count at least lower 90", "value", "lower_90"),
        at_least("upper 90 at least count", "upper_90", "value"),
        at_least("upper 95 at least upper 90", "upper_95", "upper_90"),
    ),
)

NO_EXTRA_MARGINS = Check(
    "no-extra-margins",
    Suite.MARGINS,
    "There are as many rows of margins as released counts, and none outside them.",
    View.MARGINS_EXTENT,
    (
        known("row count", "rows"),
        equal("row count as public", "rows", "cells"),
        among("no row outside", "outside", (0,)),
    ),
)

TYPICAL_MARGINS_IN_ORDER = Check(
    "typical-margins-in-order",
    Suite.MARGINS,
    "Every level and size has one row of typical half-widths, whole numbers from zero on, the "
    "95% one no smaller than the 90% one.",
    View.TYPICAL_MARGINS,
    (
        known("occurrences", "occurrences"),
        among("one occurrence", "occurrences", (1,)),
        known("half-width 90", "half_width_90"),
        exact("half-width 90", "half_width_90"),
        known("half-width 95", "half_width_95"),
        exact("half-width 95", "half_width_95"),
        Assertion(
            "half-width 90 at least 0",
            "ExpectColumnValuesToBeBetween",
            {"column": "half_width_90", "min_value": 0},
        ),
        at_least("half-width 95 at least half-width 90", "half_width_95", "half_width_90"),
    ),
)

NO_EXTRA_TYPICAL_MARGINS = Check(
    "no-extra-typical-margins",
    Suite.MARGINS,
    "There are as many rows of typical margins as levels times public sizes, and none outside.",
    View.TYPICAL_MARGINS_EXTENT,
    NO_EXTRA_MARGINS.assertions,
)

_OF_MARGINS = (
    EVERY_CELL_HAS_MARGINS,
    MARGINS_HOLD_THE_COUNT,
    NO_EXTRA_MARGINS,
    TYPICAL_MARGINS_IN_ORDER,
    NO_EXTRA_TYPICAL_MARGINS,
)


def checks_for(promises: Promises) -> tuple[Check, ...]:
    """The checks that these promises call for."""
    return (
        CHILDREN_SUM_TO_PARENT,
        NO_NEGATIVE_COUNT,
        COUNTS_ARE_WHOLE,
        COLUMNS_HOLD_INTEGERS,
        LEVELS_SUM_TO_GROUPS,
        EVERY_CELL_ONCE,
        NOTHING_EXTRA,
        PUBLISHED_COLUMNS_ONLY,
        REGIONS_AS_PUBLIC,
        ROOT_SUMS_TO_GROUPS,
        REGION_GROUPS_AS_PUBLIC if promises.region_groups_are_public else REGION_GROUPS_WITHHELD,
        *((REGIONS_SUM_TO_GROUPS,) if promises.region_totals_are_promised else ()),
        *(_OF_MARGINS if promises.states_margins else ()),
    )
