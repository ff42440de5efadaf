"""The mechanisms: each is a query and the steps that turn its noisy answer into a release.

The sensitivity follows from the query; nothing else distinguishes one mechanism from another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pgsr_core.postprocessing.global_projection import GlobalProjection
from pgsr_core.postprocessing.protocol import Query, Step
from pgsr_core.postprocessing.steps import (
    ConsistentCounts,
    ConsistentCountsFromCumulative,
    LocalIsotonicFix,
)


@dataclass(frozen=True)
class Mechanism:
    """A way to release group sizes.

    Attributes:
        name: as in a configuration.
        notation: as in the literature.
        query: what is measured.
        steps: post-processing, in order; the last one yields the counts to publish.
        keeps_region_totals: whether G_r is kept in every region (where it is public), or only
            G at every level.
    """

    name: str
    notation: str
    query: Query
    steps: tuple[Step, ...]
    keeps_region_totals: bool = False


CUMULATIVE = Mechanism(
    name="cumulative",
    notation="M_c^dp",
    query=Query.CUMULATIVE,
    steps=(LocalIsotonicFix(), ConsistentCountsFromCumulative()),
)
DIRECT = Mechanism(
    name="direct", notation="M_H^dp", query=Query.COUNTS, steps=(ConsistentCounts(),)
)
GLOBAL = Mechanism(
    name="global",
    notation="shrunk global projection",
    query=Query.CUMULATIVE,
    steps=(GlobalProjection(),),
    keeps_region_totals=True,
)

MECHANISMS: Mapping[str, Mechanism] = MappingProxyType(
    {mechanism.name: mechanism for mechanism in (CUMULATIVE, DIRECT, GLOBAL)}
)
