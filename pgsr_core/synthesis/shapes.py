"""Ready-made populations: a nation like the United States, a city's taxis, a tree of any shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pgsr_core.synthesis.options import (
    LARGEST_SIZE,
    MOST_PEOPLE,
    MOST_REGIONS,
    BadOption,
    Shape,
    check_common,
    check_range,
    check_tree,
)
from pgsr_core.synthesis.populations import SHAPE_STREAM, DrawnPopulation, generator_of
from pgsr_core.synthesis.regions import (
    RegionTable,
    apportion,
    nested_table,
    regular_children,
    uneven_children,
    walk_down,
)
from pgsr_core.synthesis.sizes import HouseholdSizes, LongTail, SizeLaw

Int = NDArray[np.int64]
Float = NDArray[np.float64]

T = TypeVar("T")

FULL_US = (52, 3_143)
FULL_TAXI = (6, 263)
# A county of a small population has about so many people, so that 300,000 make 12 and 120.
PEOPLE_PER_COUNTY = 2_500
TRIPS_PER_ZONE = 20_000
CHILDREN_SPREAD = 0.9
# Step of household sizes into each level: the mean of counties varies by about a tenth.
TILT_SPREADS = (0.04, 0.05)
TRIPS_OF_AVERAGE_ZONE = 60.0
TRIPS_SPREAD = 1.1


@dataclass(frozen=True)
class Preset:
    """What sets one shape apart.

    Attributes:
        root: id and name of the root.
        kinds: what regions of each level are called; the last one stands for all below.
        max_size: the largest group if none is asked for.
        weight_spreads: log-spread of populations into each level; the last one repeats.
    """

    root: tuple[str, str]
    kinds: tuple[str, ...]
    max_size: int
    weight_spreads: tuple[float, ...]


PRESETS = {
    Shape.US: Preset(("US", "Nation"), ("State", "County"), 1_000, (0.7, 1.3)),
    Shape.TAXI: Preset(("NYC", "City"), ("Borough", "Zone"), 13_282, (0.8, 1.5)),
    Shape.CUSTOM: Preset(("R", "Whole"), ("Region",), 20, (0.6,)),
}


def draw_population(
    shape: Shape,
    *,
    people: int,
    seed: int,
    fan_out: Sequence[int] | None = None,
    regions_by_level: Sequence[int] | None = None,
    max_size: int | None = None,
    empty_share: float = 0.05,
) -> DrawnPopulation:
    """Decide on the regions, their populations and their sizes; no unit is drawn yet.

    Args:
        shape: what the population looks like.
        people: number of persons (of trips, for taxis), met exactly.
        seed: equal seeds and options give equal populations.
        fan_out: children of each region, level by level below the root.
        regions_by_level: instead, the number of regions of each level, spread unevenly.
        max_size: the largest group.
        empty_share: share of empty units among all units.

    Raises:
        BadOption: an option is out of range, or does not go with another one.
    """
    preset = PRESETS[shape]
    max_size = preset.max_size if max_size is None else max_size
    check_range("people", people, lowest=1, highest=MOST_PEOPLE)
    check_range("max-size", max_size, lowest=1, highest=LARGEST_SIZE)
    check_common(seed=seed, empty_share=empty_share)
    generator = generator_of(seed, SHAPE_STREAM)
    children = _children(shape, people, fan_out, regions_by_level, generator=generator)
    levels = len(children)
    regions = nested_table(children, root=preset.root, kinds=_stretched(preset.kinds, levels))
    weights = _leaf_weights(regions, _stretched(preset.weight_spreads, levels), generator=generator)
    if shape is Shape.TAXI:
        laws = trip_laws(weights, max_size=max_size)
    else:
        laws = household_laws(regions, max_size=max_size, generator=generator)
    return DrawnPopulation(
        regions=regions,
        people_by_leaf=apportion(people, weights),
        laws=laws,
        max_size=max_size,
        empty_share=empty_share,
        seed=seed,
    )


def household_laws(
    regions: RegionTable, *, max_size: int, generator: np.random.Generator
) -> tuple[SizeLaw, ...]:
    """Give each leaf its household sizes; those of one state are more alike."""
    spreads = _stretched(TILT_SPREADS, int(regions.depth.max()))
    tilts = walk_down(regions, spreads, generator=generator)[regions.leaves]
    return tuple(HouseholdSizes(max_size, float(tilt)) for tilt in tilts)


def trip_laws(weights: Float, *, max_size: int) -> tuple[SizeLaw, ...]:
    """Give each zone its trips per taxi: the same taxis serve all zones, busy ones more often."""
    medians = TRIPS_OF_AVERAGE_ZONE * (weights / weights.mean()) ** 0.8
    medians = np.clip(medians, 0.8, max(0.8, max_size / 4))
    return tuple(LongTail(max_size, float(median), TRIPS_SPREAD) for median in medians)


def _children(
    shape: Shape,
    people: int,
    fan_out: Sequence[int] | None,
    regions_by_level: Sequence[int] | None,
    *,
    generator: np.random.Generator,
) -> list[Int]:
    if fan_out is not None and regions_by_level is not None:
        raise BadOption(
            option="fan-out",
            rule="does not go with regions-by-level",
            got="both",
            remedy="give one of the two",
        )
    if fan_out is not None:
        check_tree("fan-out", fan_out)
        _check_levels(shape, "fan-out", fan_out, regions=math.prod(fan_out))
        return regular_children(fan_out)
    if regions_by_level is None:
        regions_by_level = _default_levels(shape, people)
    check_tree("regions-by-level", regions_by_level)
    _check_levels(shape, "regions-by-level", regions_by_level, regions=max(regions_by_level))
    if list(regions_by_level) != sorted(regions_by_level):
        raise BadOption(
            option="regions-by-level",
            rule="must not shrink from level to level",
            got=",".join(str(number) for number in regions_by_level),
            remedy="put the coarsest level first; every region has at least one subregion",
        )
    return uneven_children(regions_by_level, spread=CHILDREN_SPREAD, generator=generator)


def _default_levels(shape: Shape, people: int) -> tuple[int, ...]:
    """Scale the full tree down so that small populations do not vanish in empty regions."""
    if shape is Shape.CUSTOM:
        raise BadOption(
            option="shape",
            rule="custom needs a tree",
            got="none",
            remedy="give fan-out, such as 4,5,10, or regions-by-level",
        )
    (upper, lower), enough = (
        (FULL_US, PEOPLE_PER_COUNTY) if shape is Shape.US else (FULL_TAXI, TRIPS_PER_ZONE)
    )
    leaves = min(lower, max(2, people // enough))
    return min(upper, max(1, round(1.1 * math.sqrt(leaves)))), leaves


def _check_levels(shape: Shape, option: str, numbers: Sequence[int], *, regions: int) -> None:
    kinds = PRESETS[shape].kinds
    if shape is not Shape.CUSTOM and len(numbers) != len(kinds):
        raise BadOption(
            option=option,
            rule=f"must have {len(kinds)} numbers for shape {shape.value}",
            got=len(numbers),
            remedy="give two numbers, or use the shape custom",
        )
    check_range(f"{option}: number of regions", regions, lowest=1, highest=MOST_REGIONS)


def _leaf_weights(
    regions: RegionTable, spreads: Sequence[float], *, generator: np.random.Generator
) -> Float:
    logarithms = walk_down(regions, spreads, generator=generator)[regions.leaves]
    weights = np.exp(logarithms - logarithms.max())
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _stretched(values: Sequence[T], length: int) -> list[T]:
    """Repeat the last value, or cut, to have one for each level."""
    return [values[min(level, len(values) - 1)] for level in range(length)]
