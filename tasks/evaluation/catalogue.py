"""The data sets that can be evaluated, by name: generated ones always, real ones where they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from pgsr_core.errors import PgsrError
from pgsr_core.evaluation.datasets import (
    SYNTHETIC_SIZES,
    EvaluationData,
    census_like,
    limited,
    outskirts,
    taxi_like,
    with_public_units,
)
from pgsr_core.evaluation.published import CENSUS, TAXI
from tasks.evaluation import real_data

ALL = "all"
SERIES = "synthetic"
SERIES_EPSILON = "0.5"
# Little noise, since the tables of M_dp^OP are as wide as its variance.
OUTSKIRTS_EPSILON = "5"
UNITS = "-units"


class UnknownData(PgsrError):
    """A data set was named that there is not."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is no data set {name}. Remedy: choose from {', '.join(CATALOGUE)}, "
            f"{SERIES} or {ALL}."
        )


@dataclass(frozen=True)
class DataSet:
    """An entry of the catalogue.

    Attributes:
        read: makes or reads it.
        about: what it is, in a line.
        file: the table that it needs; None where it is generated.
        exact_epsilon: the ε at which exact programs are tried on it; None where they are not, as
            the paper's Figure 8 rules them out for large data.
        stands_for: the data set of the paper's Table 1 that it takes the place of, if any.
    """

    read: Callable[[], EvaluationData]
    about: str
    file: str | None = None
    exact_epsilon: str | None = None
    stands_for: str | None = None

    @property
    def present(self) -> bool:
        """Whether it can be read here."""
        return self.file is None or real_data.find(self.file) is not None


def _synthetic(size: int) -> DataSet:
    def read() -> EvaluationData:
        return replace(limited(taxi_like(), size), name=f"{SERIES}-{size}")

    about = f"taxi-like, groups of up to {size} only (Figure 8)"
    return DataSet(read, about, exact_epsilon=SERIES_EPSILON)


_PLAIN = {
    "census": DataSet(
        real_data.census_of_counties,
        "the paper's Census construction on real counties",
        real_data.COUNTIES,
        stands_for=CENSUS,
    ),
    "census-like": DataSet(
        census_like, "the same construction on made-up counties", stands_for=CENSUS
    ),
    "taxi-like": DataSet(taxi_like, "of the shape of the paper's taxi data", stands_for=TAXI),
    "virginia-2000": DataSet(real_data.virginia, "households, Virginia 2000", real_data.VIRGINIA),
    "england-wales-2021": DataSet(
        real_data.england_and_wales,
        "households, England and Wales 2021",
        real_data.ENGLAND_AND_WALES,
    ),
    "manhattan-taxi": DataSet(
        real_data.manhattan_taxi, "taxis by pickups, Manhattan 2013", real_data.MANHATTAN
    ),
    "hospitals": DataSet(
        real_data.hospitals, "hospitals by beds, United States", real_data.HOSPITALS
    ),
    "australia-2016": DataSet(
        real_data.australia, "households, Australia 2016", real_data.AUSTRALIA
    ),
    "large-counties-2019": DataSet(
        real_data.large_counties,
        "households, large US counties 2019",
        real_data.LARGE_COUNTIES,
    ),
}


def _with_units(data: DataSet) -> DataSet:
    return replace(
        data,
        read=lambda: with_public_units(data.read()),
        about=f"{data.about}; units public",
        stands_for=None,
    )


CATALOGUE: Mapping[str, DataSet] = MappingProxyType(
    {
        **_PLAIN,
        **{name + UNITS: _with_units(data) for name, data in _PLAIN.items()},
        "taxi-outskirts": DataSet(
            lambda: outskirts(taxi_like()),
            "taxi-like, three small boroughs, groups of up to 5 only",
            exact_epsilon=OUTSKIRTS_EPSILON,
        ),
        **{f"{SERIES}-{size}": _synthetic(size) for size in SYNTHETIC_SIZES},
    }
)


def is_series(name: str) -> bool:
    """Whether a data set belongs to the series of growing N, made to look at run times."""
    return name.startswith(f"{SERIES}-")


def expand(names: tuple[str, ...]) -> tuple[str, ...]:
    """Spell out `all` (what is here) and `synthetic`; each data set once, in catalogue order.

    Raises:
        UnknownData: a name is not in the catalogue.
        RealDataMissing: a data set was named and its table is not here.
    """
    wanted: set[str] = set()
    for name in names:
        if name == ALL:
            wanted |= {known for known, data in CATALOGUE.items() if data.present}
        elif name == SERIES:
            wanted |= {known for known in CATALOGUE if is_series(known)}
        elif name in CATALOGUE:
            wanted.add(name)
        else:
            raise UnknownData(name)
    for name in wanted:
        data = CATALOGUE[name]
        if not data.present:
            raise real_data.RealDataMissing(str(data.file))
    return tuple(name for name in CATALOGUE if name in wanted)


def read_data(name: str) -> EvaluationData:
    """Make or read a data set of the catalogue."""
    return CATALOGUE[name].read()
