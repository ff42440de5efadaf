"""What the paper prints of its experiments: Table 1, and what the text says of its figures.

Fioretto and Van Hentenryck 2019, section 9. The figures themselves are pictures without numbers;
Figure 10 shows the error of all levels together, which is the sum of Table 1's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

TIME_OUT = 1_800.0
"""Seconds (section 9.1: "a timeout of 30 minutes")."""
REPETITIONS = 30
EPSILONS = ("0.1", "0.5", "1")
CENSUS, TAXI = "census", "taxi"
TAXI_GROUPS = 13_282
# The names of the mechanisms of Table 1 and Figures 9 and 10, in the table's order.
COMPARED = ("relaxed-counts", "direct", "relaxed-cumulative", "cumulative")
# Relaxed programs in the words of the paper, for a solver of its kind (see `as_printed`).
AS_PRINTED = {
    "relaxed-counts": "relaxed-counts-as-printed",
    "relaxed-cumulative": "relaxed-cumulative-as-printed",
}
CLEAR_GAP = 0.2


@dataclass(frozen=True)
class Printed:
    """A row of Table 1 for one data set.

    Attributes:
        l1: mean L1 error of each level, root first.
        violations: mean number of constraint violations.
    """

    l1: tuple[float, ...]
    violations: int

    @property
    def total(self) -> float:
        """The error of all levels together, as Figure 10 shows it."""
        return sum(self.l1)


def _printed(factor: float, l1: tuple[float, ...], violations: int) -> Printed:
    return Printed(tuple(round(value * factor) for value in l1), violations)


def _taxi(l1: tuple[float, ...], violations: int) -> Printed:
    return _printed(1e4, l1, violations)


def _census(l1: tuple[float, ...], violations: int) -> Printed:
    return _printed(1e3, l1, violations)


TABLE_1: dict[tuple[str, str, str], Printed] = {
    (TAXI, "0.1", "relaxed-counts"): _taxi((25.4, 158.7, 904.4), 18206),
    (TAXI, "0.1", "direct"): _taxi((26.6, 121.9, 915.7), 0),
    (TAXI, "0.1", "relaxed-cumulative"): _taxi((47.9, 153.2, 551.6), 19460),
    (TAXI, "0.1", "cumulative"): _taxi((19.9, 65.6, 644.3), 0),
    (TAXI, "0.5", "relaxed-counts"): _taxi((8.6, 81.2, 364.2), 18591),
    (TAXI, "0.5", "direct"): _taxi((5.5, 31.0, 408.9), 0),
    (TAXI, "0.5", "relaxed-cumulative"): _taxi((46.7, 153.5, 450.7), 19531),
    (TAXI, "0.5", "cumulative"): _taxi((4.0, 16.4, 352.9), 0),
    (TAXI, "1", "relaxed-counts"): _taxi((7.7, 77.2, 279.0), 18085),
    (TAXI, "1", "direct"): _taxi((3.1, 19.8, 328.5), 0),
    (TAXI, "1", "relaxed-cumulative"): _taxi((47.1, 154.2, 447.1), 19706),
    (TAXI, "1", "cumulative"): _taxi((2.0, 8.7, 307.8), 0),
    (CENSUS, "0.1", "relaxed-counts"): _census((40.3, 54.3, 802.1), 1966),
    (CENSUS, "0.1", "direct"): _census((10.3, 38.4, 825.4), 0),
    (CENSUS, "0.1", "relaxed-cumulative"): _census((23.1, 64.5, 632.2), 1715),
    (CENSUS, "0.1", "cumulative"): _census((0.9, 23.2, 550.6), 0),
    (CENSUS, "0.5", "relaxed-counts"): _census((39.4, 37.9, 216.3), 1990),
    (CENSUS, "0.5", "direct"): _census((2.4, 9.4, 230.8), 0),
    (CENSUS, "0.5", "relaxed-cumulative"): _census((23.1, 61.0, 494.2), 1718),
    (CENSUS, "0.5", "cumulative"): _census((0.2, 5.8, 159.1), 0),
    (CENSUS, "1", "relaxed-counts"): _census((40.7, 39.2, 130.0), 1989),
    (CENSUS, "1", "direct"): _census((1.2, 5.1, 128.8), 0),
    (CENSUS, "1", "relaxed-cumulative"): _census((24.1, 63.0, 494.5), 1728),
    (CENSUS, "1", "cumulative"): _census((0.1, 3.2, 91.0), 0),
}


@dataclass(frozen=True)
class ClearOrder:
    """Two mechanisms that the table tells apart at one level: the first has the smaller error."""

    data: str
    epsilon: str
    level: int
    smaller: str
    larger: str
    gap: float


def clear_orders(data: str) -> Iterator[ClearOrder]:
    """Every pair of a level of Table 1 whose larger error exceeds the other by more than 20%."""
    for epsilon in EPSILONS:
        for level in range(len(TABLE_1[data, epsilon, COMPARED[0]].l1)):
            error = {name: TABLE_1[data, epsilon, name].l1[level] for name in COMPARED}
            for pair in combinations(COMPARED, 2):
                smaller, larger = sorted(pair, key=error.__getitem__)
                gap = error[larger] / error[smaller] - 1
                if gap > CLEAR_GAP:
                    yield ClearOrder(data, epsilon, level + 1, smaller, larger, gap)
