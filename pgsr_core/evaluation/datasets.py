"""Data to evaluate on: what a data set is, and the reconstructions of the papers' ones.

Pure functions on arrays; reading the files that hold real data is done elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.postprocessing.protocol import PublicFacts
from pgsr_core.synthesis.regions import apportion, uneven_children

Int = NDArray[np.int64]
Real = NDArray[np.float64]
Path = tuple[str, ...]

ROOT = "all"

# Occupied housing units by 1..6 and 7 or more persons, United States 2010 (Census 2010, Summary
# File 1, table H13); together the 116,716,292 occupied units.
HOUSEHOLDS_2010 = (31_204_909, 38_243_116, 18_758_985, 15_625_089, 7_538_631, 3_074_733, 2_270_829)
CENSUS_LARGEST_SIZE = 1_000
CENSUS_OUTLIERS = 50
SMALLEST_OUTLIER = 10

# Without a table of counties: how many states and counties there are, the spread of the logarithm
# of a state's counties and of a county's households, and of the mean size of a household.
CENSUS_STATES = 52
CENSUS_COUNTIES = 3_143
STATE_SPREAD = 0.9
COUNTY_SPREAD = 1.5
MEAN_SIZE, MEAN_SIZE_SPREAD = 2.55, 0.2

# Zones by borough (NYC Taxi and Limousine Commission), trips a taxi as in the paper.
TAXI_ZONES = {
    "Bronx": 43,
    "Brooklyn": 61,
    "EWR": 1,
    "Manhattan": 69,
    "Queens": 69,
    "Staten Island": 20,
}
TAXI_GROUPS = 13_282
TAXI_LARGEST_SIZE = 13_282
TAXI_TRIPS = 24_489_743
# Zipf's exponent of the zones of a borough.
TAXI_ZIPF = 1.0
# Yellow taxis pick up in Manhattan first.
TAXI_BOROUGHS = {
    "Bronx": 0.01,
    "Brooklyn": 0.03,
    "EWR": 0.001,
    "Manhattan": 0.90,
    "Queens": 0.058,
    "Staten Island": 0.001,
}

OUTSKIRTS = ("Bronx", "EWR", "Staten Island")
OUTSKIRTS_LARGEST_SIZE = 5
SYNTHETIC_SIZES = (5, 10, 15, 20, 25, 30, 35, 40, 45, 50)


@dataclass(frozen=True)
class EvaluationData:
    """A truth to measure.

    Attributes:
        name: for tables and seeds.
        tree: the region tree.
        counts: groups by region and size 1..N.
        empty_units: units without people by region where the units are public; None where units
            come from the data and nobody knows of those without people.
    """

    name: str
    tree: RegionTree
    counts: Int
    empty_units: Int | None = None

    @property
    def smallest_size(self) -> int:
        """The smallest published size: 0 with public units, else 1."""
        return 1 if self.empty_units is None else 0

    @property
    def largest_size(self) -> int:
        """N."""
        return int(self.counts.shape[1])

    @cached_property
    def truth(self) -> Int:
        """The counts of all published sizes."""
        if self.empty_units is None:
            return self.counts
        return np.concatenate([self.empty_units[:, None], self.counts], axis=1)

    def facts(self, scales: Sequence[Fraction] = ()) -> PublicFacts:
        """What a post-processor may know of it."""
        totals = self.truth.sum(axis=1)
        return PublicFacts(
            tree=self.tree,
            smallest_size=self.smallest_size,
            largest_size=self.largest_size,
            groups=int(totals[0]),
            groups_by_region=None if self.empty_units is None else totals,
            scales=tuple(scales),
        )


def from_leaves(name: str, leaves: Sequence[Path], counts: Int) -> EvaluationData:
    """Groups by leaf (its path below the root) and size 1..N; rows of one leaf are added up."""
    paths = {path[:depth] for path in leaves for depth in range(1, len(path) + 1)}
    ids = {path: "/".join(path) for path in paths}
    tree = RegionTree.from_table(
        [ROOT, *ids.values()], [None, *(ids.get(path[:-1], ROOT) for path in paths)]
    )
    table = np.zeros((tree.regions, counts.shape[1]), dtype=np.int64)
    np.add.at(table, [tree.index[ids[path]] for path in leaves], counts)
    return EvaluationData(name, tree, tree.aggregate(table))


def with_public_units(
    data: EvaluationData, *, empty_share: float = 0.05, seed: int = 1
) -> EvaluationData:
    """The same groups with a public unit table, in which a share of all units is empty."""
    empty = np.zeros(data.tree.regions, dtype=np.int64)
    leaves = data.tree.leaves
    occupied = data.counts[leaves].sum(axis=1)
    odds = empty_share / (1 - empty_share)
    empty[leaves] = np.random.default_rng(seed).poisson(odds * occupied)
    return replace(data, name=f"{data.name}-units", empty_units=data.tree.aggregate(empty))


def census(
    counties: Sequence[Path],
    households: Sequence[int],
    mean_sizes: Sequence[float],
    *,
    seed: int = 1,
) -> EvaluationData:
    """The paper's Census construction (section 9), from households and mean size by county.

    The paper begins with published counts of households by size up to 8 or more; here they are
    drawn from the nation's distribution, tilted exponentially to each county's mean size. As
    there, the ratio n_7 / n_6 holds from size to size beyond, in expectation, and
    CENSUS_OUTLIERS groups of a size uniform in 10..1,000 are added, each in a random county.

    Args:
        counties: (state, county) of each county.
        households: how many households it has.
        mean_sizes: persons in an average household of it.
        seed: decides on all draws.
    """
    generator = np.random.default_rng(seed)
    shares = _household_shares()
    laws = {mean: _tilted(shares, mean) for mean in set(mean_sizes)}
    counts = np.array(
        [
            generator.multinomial(number, laws[mean])
            for number, mean in zip(households, mean_sizes, strict=True)
        ],
        dtype=np.int64,
    )
    places = generator.integers(0, len(counties), CENSUS_OUTLIERS)
    sizes = generator.integers(SMALLEST_OUTLIER, CENSUS_LARGEST_SIZE + 1, CENSUS_OUTLIERS)
    np.add.at(counts, (places, sizes - 1), 1)
    return from_leaves("census", counties, counts)


def census_like(*, counties: int = CENSUS_COUNTIES, seed: int = 1) -> EvaluationData:
    """The same construction on counties that are made up, for want of a table of real ones."""
    generator = np.random.default_rng(seed)
    states = min(CENSUS_STATES, counties)
    _, by_state = uneven_children([states, counties], spread=STATE_SPREAD, generator=generator)
    paths = [(f"{s:02d}", f"{c:03d}") for s in range(states) for c in range(by_state[s])]
    shares = np.exp(COUNTY_SPREAD * generator.standard_normal(counties))
    households = apportion(sum(HOUSEHOLDS_2010) * counties // CENSUS_COUNTIES, shares)
    means = np.clip(generator.normal(MEAN_SIZE, MEAN_SIZE_SPREAD, counties), 1.5, 4.0)
    # Two decimals, as they are published.
    drawn = census(paths, households.tolist(), means.round(2).tolist(), seed=seed)
    return replace(drawn, name="census-like")


def taxi_like(*, zones: dict[str, int] | None = None, seed: int = 1) -> EvaluationData:
    """A set of the taxi data's shape: 13,282 taxis by trips up to 13,282, in boroughs and zones.

    The paper says both 263 zones and 3,973 leaves; 263 are taken unless `zones` says otherwise.
    Of the sizes the paper says that small ones are the most populated, in every region: numbers of
    trips follow a power law up to N, whose exponent gives the paper's mean. Zones of a borough
    follow Zipf's law.
    """
    generator = np.random.default_rng(seed)
    zones = TAXI_ZONES if zones is None else zones
    leaves = [(borough, f"{z:04d}") for borough, number in zones.items() for z in range(number)]
    chances = np.concatenate(
        [
            TAXI_BOROUGHS[borough] * _normalised(1.0 / np.arange(1, number + 1) ** TAXI_ZIPF)
            for borough, number in zones.items()
        ]
    )
    place = generator.choice(len(leaves), TAXI_GROUPS, p=_normalised(chances))
    trips = generator.choice(TAXI_LARGEST_SIZE, TAXI_GROUPS, p=_trips())
    counts = np.zeros((len(leaves), TAXI_LARGEST_SIZE), dtype=np.int64)
    np.add.at(counts, (place, trips), 1)
    return from_leaves("taxi-like", leaves, counts)


def limited(data: EvaluationData, largest_size: int) -> EvaluationData:
    """The groups up to a size, larger ones removed, as in the paper's synthetic data."""
    kept = np.ascontiguousarray(data.counts[:, :largest_size])
    return replace(data, name=f"{data.name}-{largest_size}", counts=kept)


def outskirts(taxi: EvaluationData) -> EvaluationData:
    """The boroughs with the fewest taxis, and groups of up to 5: small enough for any solver."""
    small = limited(taxi, OUTSKIRTS_LARGEST_SIZE)
    leaves = [small.tree.names[leaf] for leaf in small.tree.leaves]
    paths = [tuple(leaf.split("/")) for leaf in leaves]
    kept = [path for path in paths if path[0] in OUTSKIRTS]
    counts = small.counts[[small.tree.index["/".join(path)] for path in kept]]
    return from_leaves("taxi-outskirts", kept, counts)


def synthetic_series(*, seed: int = 1) -> list[EvaluationData]:
    """Taxi-like data limited to N = 5, 10, …, 50, to see how run times grow (Figure 8)."""
    taxi = taxi_like(seed=seed)
    return [replace(limited(taxi, size), name=f"synthetic-{size}") for size in SYNTHETIC_SIZES]


def _household_shares() -> Real:
    """Shares of households of 1..N persons.

    Sizes from 7 on are published together. With n_7 = r n_6 and the same ratio from there on they
    add up to n_6 r / (1 − r), which gives r.
    """
    sixth, seventh_on = HOUSEHOLDS_2010[5:]
    ratio = seventh_on / (sixth + seventh_on)
    beyond = sixth * ratio ** np.arange(1, CENSUS_LARGEST_SIZE - 5)
    return _normalised(np.concatenate([HOUSEHOLDS_2010[:6], beyond]))


def _tilted(shares: Real, mean: float) -> Real:
    """Multiply by e^(θ size) so that the mean size is as given, by bisection on θ."""
    sizes = np.arange(1, len(shares) + 1)
    low, high = -2.0, 0.4  # half of what would make the tail's ratio 1
    for _ in range(40):
        middle = (low + high) / 2
        tilted = _normalised(shares * np.exp(middle * sizes))
        low, high = (middle, high) if tilted @ sizes < mean else (low, middle)
    return tilted


def _trips() -> Real:
    """The chance of 1..N trips: a power law with the paper's mean, by bisection on its exponent."""
    sizes = np.arange(1, TAXI_LARGEST_SIZE + 1)
    low, high = 0.0, 2.0
    for _ in range(60):
        middle = (low + high) / 2
        law = _normalised(sizes**-middle)
        above = law @ sizes > TAXI_TRIPS / TAXI_GROUPS
        low, high = (middle, high) if above else (low, middle)
    return law


def _normalised(weights: ArrayLike) -> Real:
    values = np.asarray(weights, dtype=np.float64)
    shares: Real = values / values.sum()
    return shares
