"""The checks that a release must have passed, in order: they follow from what it promises.

The gates compare this list, by name, with what Great Expectations reports to have evaluated, and
a verifier compares it with checks.json. As with the wording of a privacy statement, a verifier
needs to know the lists of earlier bundles: to change one, choose it by the wording's version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any


class Suite(StrEnum):
    """The properties that a released table must have."""

    CONSISTENCY = "consistency"
    NON_NEGATIVITY = "non-negativity"
    INTEGRALITY = "integrality"
    FAITHFULNESS = "faithfulness"
    COMPLETENESS = "completeness"
    PUBLIC_FACTS = "public-facts"
    MARGINS = "margins"


@dataclass(frozen=True)
class RequiredCheck:
    """A check that may not be missing.

    Attributes:
        name: stable over releases.
        suite: the property it belongs to.
        statement: what holds if it passed, in words for an auditor.
        expectations: names of those that must run for it.
    """

    name: str
    suite: Suite
    statement: str
    expectations: frozenset[str]

    def passed(self) -> dict[str, Any]:
        """Return what checks.json says of it in a release that may be published."""
        return {
            "name": self.name,
            "suite": str(self.suite),
            "statement": self.statement,
            "passed": True,
            "expectations": len(self.expectations),
        }


_ALWAYS = (
    RequiredCheck(
        "children-sum-to-parent",
        Suite.CONSISTENCY,
        "For every region and every size, the counts of the region's children add up to its own.",
        frozenset(
            {
                "no row left out",
                "count known",
                "count exact",
                "children's sum known",
                "children's sum exact",
                "count equals children's sum",
            }
        ),
    ),
    RequiredCheck(
        "no-negative-count",
        Suite.NON_NEGATIVITY,
        "No count is below zero.",
        frozenset(
            {
                "no row left out",
                "count known",
                "count at least 0",
            }
        ),
    ),
    RequiredCheck(
        "counts-are-whole",
        Suite.INTEGRALITY,
        "Every count is a whole number that fits 64 bits; none is missing.",
        frozenset(
            {
                "no row left out",
                "count known",
                "count exact",
            }
        ),
    ),
    RequiredCheck(
        "columns-hold-integers",
        Suite.INTEGRALITY,
        "Regions, sizes and counts are stored in columns of an integer type.",
        frozenset(
            {
                "no row left out",
                "type known",
                "type is an integer type",
            }
        ),
    ),
    RequiredCheck(
        "levels-sum-to-groups",
        Suite.FAITHFULNESS,
        "At every level, together with the regions that end above it, the counts add up to the "
        "number of groups G.",
        frozenset(
            {
                "no row left out",
                "level's sum known",
                "level's sum exact",
                "number of groups known",
                "number of groups exact",
                "level's sum equals number of groups",
            }
        ),
    ),
    RequiredCheck(
        "every-cell-once",
        Suite.COMPLETENESS,
        "Every public region has exactly one row for every public size.",
        frozenset(
            {
                "no row left out",
                "occurrences known",
                "one occurrence",
            }
        ),
    ),
    RequiredCheck(
        "nothing-extra",
        Suite.COMPLETENESS,
        "There are as many rows as public regions times public sizes, and none outside them.",
        frozenset(
            {
                "no row left out",
                "row count known",
                "row count as public",
                "no row outside",
            }
        ),
    ),
    RequiredCheck(
        "published-columns",
        Suite.COMPLETENESS,
        "The table has the columns region, size and count, and no other.",
        frozenset(
            {
                "no row left out",
                "column names as published",
            }
        ),
    ),
    RequiredCheck(
        "regions-as-public",
        Suite.PUBLIC_FACTS,
        "The table of regions is the public region tree: the same regions, parents and levels.",
        frozenset(
            {
                "no row left out",
                "region known",
                "public region known",
                "region as public",
                "parent as public",
                "level known",
                "level exact",
                "level as public",
            }
        ),
    ),
    RequiredCheck(
        "root-sums-to-groups",
        Suite.PUBLIC_FACTS,
        "The counts of the whole add up to the public number of groups G.",
        frozenset(
            {
                "no row left out",
                "root's sum known",
                "root's sum exact",
                "number of groups known",
                "number of groups exact",
                "root's sum equals number of groups",
            }
        ),
    ),
)
_WHERE_REGION_GROUPS_ARE_PUBLIC = (
    RequiredCheck(
        "region-groups-as-public",
        Suite.PUBLIC_FACTS,
        "The number of groups stated beside each region is the public one.",
        frozenset(
            {
                "no row left out",
                "region's groups known",
                "region's groups exact",
                "public groups known",
                "public groups exact",
                "region's groups as public",
            }
        ),
    ),
)
_WHERE_REGION_GROUPS_ARE_SECRET = (
    RequiredCheck(
        "region-groups-withheld",
        Suite.PUBLIC_FACTS,
        "No number of groups is stated beside any region, since none is public.",
        frozenset(
            {
                "no row left out",
                "no region's groups",
            }
        ),
    ),
)
_WHERE_REGION_TOTALS_ARE_PROMISED = (
    RequiredCheck(
        "regions-sum-to-groups",
        Suite.PUBLIC_FACTS,
        "The counts of every region add up to its public number of groups.",
        frozenset(
            {
                "no row left out",
                "region's sum known",
                "region's sum exact",
                "public groups known",
                "public groups exact",
                "region's sum equals public groups",
            }
        ),
    ),
)
_WHERE_MARGINS_ARE_STATED = (
    RequiredCheck(
        "every-cell-has-margins",
        Suite.MARGINS,
        "Every released count has exactly one row of margins, of whole numbers.",
        frozenset(
            {
                "no row left out",
                "occurrences known",
                "one occurrence",
                "lower 90 known",
                "lower 90 exact",
                "upper 90 known",
                "upper 90 exact",
                "lower 95 known",
                "lower 95 exact",
                "upper 95 known",
                "upper 95 exact",
            }
        ),
    ),
    RequiredCheck(
        "margins-hold-the-count",
        Suite.MARGINS,
        "No lower margin is below zero, every count lies within its 90% margins, and those lie "
        "within the 95% margins.",
        frozenset(
            {
                "no row left out",
                "count known",
                "count exact",
                "lower 95 at least 0",
                "lower 90 at least lower 95",
                "count at least lower 90",
                "upper 90 at least count",
                "upper 95 at least upper 90",
            }
        ),
    ),
    RequiredCheck(
        "no-extra-margins",
        Suite.MARGINS,
        "There are as many rows of margins as released counts, and none outside them.",
        frozenset(
            {
                "no row left out",
                "row count known",
                "row count as public",
                "no row outside",
            }
        ),
    ),
    RequiredCheck(
        "typical-margins-in-order",
        Suite.MARGINS,
        "Every level and size has one row of typical half-widths, whole numbers from zero on, the "
        "95% one no smaller than the 90% one.",
        frozenset(
            {
                "no row left out",
                "occurrences known",
                "one occurrence",
                "half-width 90 known",
                "half-width 90 exact",
                "half-width 95 known",
                "half-width 95 exact",
                "half-width 90 at least 0",
                "half-width 95 at least half-width 90",
            }
        ),
    ),
    RequiredCheck(
        "no-extra-typical-margins",
        Suite.MARGINS,
        "There are as many rows of typical margins as levels times public sizes, and none outside.",
        frozenset(
            {
                "no row left out",
                "row count known",
                "row count as public",
                "no row outside",
            }
        ),
    ),
)
ALL_CHECKS = (
    *_ALWAYS,
    *_WHERE_REGION_GROUPS_ARE_PUBLIC,
    *_WHERE_REGION_GROUPS_ARE_SECRET,
    *_WHERE_REGION_TOTALS_ARE_PROMISED,
    *_WHERE_MARGINS_ARE_STATED,
)


def required_checks(
    *, region_groups_are_public: bool, region_totals_are_promised: bool, states_margins: bool
) -> tuple[RequiredCheck, ...]:
    """The checks that these promises call for, in the order in which checks.json has them."""
    return (
        *_ALWAYS,
        *(
            _WHERE_REGION_GROUPS_ARE_PUBLIC
            if region_groups_are_public
            else _WHERE_REGION_GROUPS_ARE_SECRET
        ),
        *(_WHERE_REGION_TOTALS_ARE_PROMISED if region_totals_are_promised else ()),
        *(_WHERE_MARGINS_ARE_STATED if states_margins else ()),
    )


def checks_document(
    *,
    product: str,
    release: str,
    published_on: date,
    checks: Sequence[Mapping[str, Any]],
    certificates: Mapping[str, Mapping[str, Any]],
    digests: Mapping[str, str],
) -> dict[str, Any]:
    """Return checks.json: every gate, the solvers' certificates and the tables' digests."""
    return {
        "product": product,
        "release": release,
        "published_on": published_on.isoformat(),
        "passed": all(check["passed"] for check in checks),
        "checks": [dict(check) for check in checks],
        "certificates": {step: dict(proof) for step, proof in certificates.items()},
        "table_digests": dict(sorted(digests.items())),
    }
