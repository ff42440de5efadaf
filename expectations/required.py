"""Which checks, and which expectations in each, must have run before a release is published.

Deliberately written out a second time, by name: the suites say what is asserted, this list
says what may not be missing, and the runner compares the two with what Great Expectations
reports to have evaluated. Great Expectations itself calls an empty suite a success.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from expectations.promises import Promises

_ALWAYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "children-sum-to-parent": frozenset(
            {
                "no row left out",
                "count known",
                "count exact",
                "children's sum known",
                "children's sum exact",
                "count equals children's sum",
            }
        ),
        "no-negative-count": frozenset({"no row left out", "count known", "count at least 0"}),
        "counts-are-whole": frozenset({"no row left out", "count known", "count exact"}),
        "columns-hold-integers": frozenset(
            {"no row left out", "type known", "type is an integer type"}
        ),
        "levels-sum-to-groups": frozenset(
            {
                "no row left out",
                "level's sum known",
                "level's sum exact",
                "number of groups known",
                "number of groups exact",
                "level's sum equals number of groups",
            }
        ),
        "every-cell-once": frozenset({"no row left out", "occurrences known", "one occurrence"}),
        "nothing-extra": frozenset(
            {"no row left out", "row count known", "row count as public", "no row outside"}
        ),
        "published-columns": frozenset({"no row left out", "column names as published"}),
        "regions-as-public": frozenset(
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
        "root-sums-to-groups": frozenset(
            {
                "no row left out",
                "root's sum known",
                "root's sum exact",
                "number of groups known",
                "number of groups exact",
                "root's sum equals number of groups",
            }
        ),
    }
)
_WHERE_REGION_GROUPS_ARE_PUBLIC: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "region-groups-as-public": frozenset(
            {
                "no row left out",
                "region's groups known",
                "region's groups exact",
                "public groups known",
                "public groups exact",
                "region's groups as public",
            }
        )
    }
)
_WHERE_REGION_GROUPS_ARE_SECRET: Mapping[str, frozenset[str]] = MappingProxyType(
    {"region-groups-withheld": frozenset({"no row left out", "no region's groups"})}
)
_WHERE_REGION_TOTALS_ARE_PROMISED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "regions-sum-to-groups": frozenset(
            {
                "no row left out",
                "region's sum known",
                "region's sum exact",
                "public groups known",
                "public groups exact",
                "region's sum equals public groups",
            }
        )
    }
)
_WHERE_MARGINS_ARE_STATED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "every-cell-has-margins": frozenset(
            {
                *("no row left out", "occurrences known", "one occurrence"),
                *("lower 90 known", "lower 90 exact", "upper 90 known", "upper 90 exact"),
                *("lower 95 known", "lower 95 exact", "upper 95 known", "upper 95 exact"),
            }
        ),
        "margins-hold-the-count": frozenset(
            {
                *("no row left out", "count known", "count exact", "lower 95 at least 0"),
                *("lower 90 at least lower 95", "count at least lower 90"),
                *("upper 90 at least count", "upper 95 at least upper 90"),
            }
        ),
        "no-extra-margins": frozenset(
            {"no row left out", "row count known", "row count as public", "no row outside"}
        ),
        "typical-margins-in-order": frozenset(
            {
                *("no row left out", "occurrences known", "one occurrence"),
                *("half-width 90 known", "half-width 90 exact"),
                *("half-width 95 known", "half-width 95 exact"),
                *("half-width 90 at least 0", "half-width 95 at least half-width 90"),
            }
        ),
        "no-extra-typical-margins": frozenset(
            {"no row left out", "row count known", "row count as public", "no row outside"}
        ),
    }
)


def must_run(promises: Promises) -> Mapping[str, frozenset[str]]:
    """Check → names of its expectations, all of which must run for these promises."""
    required = dict(_ALWAYS)
    if promises.region_groups_are_public:
        required |= _WHERE_REGION_GROUPS_ARE_PUBLIC
    else:
        required |= _WHERE_REGION_GROUPS_ARE_SECRET
    if promises.region_totals_are_promised:
        required |= _WHERE_REGION_TOTALS_ARE_PROMISED
    if promises.states_margins:
        required |= _WHERE_MARGINS_ARE_STATED
    return MappingProxyType(required)
