"""What is asserted: the checks of every suite, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from expectations.frames import PUBLISHED_COLUMNS, View
from expectations.promises import Promises
from pgsr_core.documents.checks import ALL_CHECKS, Suite

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


_REQUIRED = {check.name: check for check in ALL_CHECKS}


def _check(name: str, view: View, assertions: tuple[Assertion, ...]) -> Check:
    """Say how a required check is established."""
    return Check(name, _REQUIRED[name].suite, _REQUIRED[name].statement, view, assertions)


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


CHILDREN_SUM_TO_PARENT = _check(
    "children-sum-to-parent",
    View.CELLS,
    (
        known("count", "value"),
        exact("count", "value"),
        known("children's sum", "children_total"),
        exact("children's sum", "children_total"),
        equal("count equals children's sum", "value", "children_total"),
    ),
)

NO_NEGATIVE_COUNT = _check(
    "no-negative-count",
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

COUNTS_ARE_WHOLE = _check(
    "counts-are-whole",
    View.CELLS,
    (known("count", "value"), exact("count", "value")),
)

COLUMNS_HOLD_INTEGERS = _check(
    "columns-hold-integers",
    View.COLUMNS,
    (known("type", "type"), among("type is an integer type", "type", INTEGER_TYPES)),
)

LEVELS_SUM_TO_GROUPS = _check(
    "levels-sum-to-groups",
    View.LEVELS,
    (
        known("level's sum", "total"),
        exact("level's sum", "total"),
        known("number of groups", "groups"),
        exact("number of groups", "groups"),
        equal("level's sum equals number of groups", "total", "groups"),
    ),
)

EVERY_CELL_ONCE = _check(
    "every-cell-once",
    View.CELLS,
    (known("occurrences", "occurrences"), among("one occurrence", "occurrences", (1,))),
)

NOTHING_EXTRA = _check(
    "nothing-extra",
    View.EXTENT,
    (
        known("row count", "rows"),
        equal("row count as public", "rows", "cells"),
        among("no row outside", "outside", (0,)),
    ),
)

PUBLISHED_COLUMNS_ONLY = _check(
    "published-columns",
    View.COLUMNS,
    (
        Assertion(
            "column names as published",
            "ExpectColumnDistinctValuesToEqualSet",
            {"column": "column", "value_set": list(PUBLISHED_COLUMNS)},
        ),
    ),
)

REGIONS_AS_PUBLIC = _check(
    "regions-as-public",
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

ROOT_SUMS_TO_GROUPS = _check(
    "root-sums-to-groups",
    View.ROOT,
    (
        known("root's sum", "total"),
        exact("root's sum", "total"),
        known("number of groups", "groups"),
        exact("number of groups", "groups"),
        equal("root's sum equals number of groups", "total", "groups"),
    ),
)

REGION_GROUPS_AS_PUBLIC = _check(
    "region-groups-as-public",
    View.REGION_TABLE,
    (
        known("region's groups", "exact_groups"),
        exact("region's groups", "exact_groups"),
        known("public groups", "promised_groups"),
        exact("public groups", "promised_groups"),
        equal("region's groups as public", "exact_groups", "promised_groups"),
    ),
)

REGION_GROUPS_WITHHELD = _check(
    "region-groups-withheld",
    View.REGION_TABLE,
    (among("no region's groups", "has_groups", (False,)),),
)

REGIONS_SUM_TO_GROUPS = _check(
    "regions-sum-to-groups",
    View.REGION_TOTALS,
    (
        known("region's sum", "total"),
        exact("region's sum", "total"),
        known("public groups", "promised_groups"),
        exact("public groups", "promised_groups"),
        equal("region's sum equals public groups", "total", "promised_groups"),
    ),
)

EVERY_CELL_HAS_MARGINS = _check(
    "every-cell-has-margins",
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

MARGINS_HOLD_THE_COUNT = _check(
    "margins-hold-the-count",
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

NO_EXTRA_MARGINS = _check(
    "no-extra-margins",
    View.MARGINS_EXTENT,
    (
        known("row count", "rows"),
        equal("row count as public", "rows", "cells"),
        among("no row outside", "outside", (0,)),
    ),
)

TYPICAL_MARGINS_IN_ORDER = _check(
    "typical-margins-in-order",
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

NO_EXTRA_TYPICAL_MARGINS = _check(
    "no-extra-typical-margins",
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
