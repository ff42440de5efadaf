"""Which checks, and which expectations in each, must have run before a release is published.

Deliberately listed apart from the suites, by name: those say what is asserted, this list says
what may not be missing, and the runner compares the two with what Great Expectations reports to
have evaluated. Great Expectations itself calls an empty suite a success.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from expectations.promises import Promises
from pgsr_core.documents.checks import required_checks


def must_run(promises: Promises) -> Mapping[str, frozenset[str]]:
    """Check → names of its expectations, all of which must run for these promises."""
    required = required_checks(
        region_groups_are_public=promises.region_groups_are_public,
        region_totals_are_promised=promises.region_totals_are_promised,
        states_margins=promises.states_margins,
    )
    return MappingProxyType({check.name: check.expectations for check in required})
