"""What could be measured and then not be computed, published or verified: refused in the plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from pgsr_core.errors import PgsrError
from pgsr_core.hierarchy import RegionTree
from pgsr_core.limits import (
    MOST_CELLS,
    MOST_REGIONS,
    largest_consistent_value,
    largest_isotonic_value,
    largest_measurement,
)
from pgsr_core.mechanisms import Mechanism
from pgsr_core.postprocessing.protocol import Query
from tasks.configuration.loading import Location
from tasks.configuration.model import Configuration

# Noise far beyond this would not fit the exact integer arithmetic of the solvers, and that would
# show only after the budget is spent; no table could be made of much less.
LARGEST_SCALE = 10**9


def out_of_reach(
    configuration: Configuration,
    mechanism: Mechanism,
    tree: RegionTree,
    *,
    scales: Sequence[Fraction],
    groups: int | None,
) -> Iterator[tuple[Location, str]]:
    """Where a decided configuration asks for too much, and why.

    Args:
        configuration: what is asked for.
        mechanism: the decided one.
        tree: the regions.
        scales: of the noise of each level; none if they cannot be told.
        groups: the public number of groups; None where it is taken from the data, and then only
            the noise is judged.
    """
    sizes = configuration.published_sizes
    if tree.regions > MOST_REGIONS:
        yield ("regions",), f"has {tree.regions} regions; a bundle has at most {MOST_REGIONS}"
    if tree.regions * len(sizes) > MOST_CELLS:
        yield (
            ("sizes", "max"),
            f"makes {tree.regions * len(sizes)} counts of {tree.regions} regions; a bundle has at "
            f"most {MOST_CELLS}, so the largest size can be {_largest_size(tree, sizes)}",
        )
    try:
        mechanism.refuse_if_out_of_reach(
            cells=tree.regions * len(mechanism.query.measured_sizes(sizes))
        )
    except PgsrError as error:
        yield ("mechanism",), str(error)
    if not scales:
        return
    scale = math.ceil(max(scales))
    if scale > LARGEST_SCALE:
        yield (
            ("privacy", "epsilon"),
            f"is so small that the noise would have a scale above {LARGEST_SCALE}",
        )
        return
    limit = _largest_exact(configuration, mechanism, tree)
    if largest_measurement(groups=groups or 0, scale=scale) > limit:
        yield (
            ("sizes", "max"),
            f"is too large for the exact arithmetic of so many groups and so much noise (scale "
            f"{scale}): measurements must stay within ±{limit}; lower it, or raise epsilon",
        )


def _largest_exact(configuration: Configuration, mechanism: Mechanism, tree: RegionTree) -> int:
    """The largest measurement that the steps, and those that margins are simulated by, can take."""
    limit = largest_consistent_value(regions=tree.regions, levels=tree.levels)
    simulated = mechanism.simulated_by if configuration.margins.repetitions else None
    steps = {step.name for made_by in (mechanism, simulated) if made_by for step in made_by.steps}
    if mechanism.query is Query.CUMULATIVE and "isotonic" in steps:
        limit = min(limit, largest_isotonic_value(configuration.sizes.max))
    return limit


def _largest_size(tree: RegionTree, sizes: range) -> int:
    return sizes.start + MOST_CELLS // tree.regions - 1
