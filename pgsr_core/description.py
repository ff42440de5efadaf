"""The description of a measurement: what was asked of the data, and with which noise.

It is decided before the draw and committed with it, in one transaction. Whatever is said of a
release afterwards (its statement, its tables' scales, its provenance) is read from here, never from
a plan or a configuration that may have changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pgsr_core.errors import Refused
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.sensitivity import Neighbours, l1_sensitivity

FROM_DATA = "from-data"
# Said with a draw, but not what tells one draw from another: they follow from the rest, or change
# the words about it and not its numbers. Measurements made before may lack them.
BESIDES_THE_KEY = frozenset({"noise", "sampler", "unit_of_privacy"})


class UnreadableDescription(Refused):
    """The ledger's description of a measurement lacks what the statement would need."""

    def __init__(self) -> None:
        super().__init__(
            "the ledger's description of the measurement cannot be read, so nothing can be stated "
            "about it. Remedy: run pgsr ledger check, and restore the ledger from a backup."
        )


@dataclass(frozen=True)
class Description:
    """A measurement as the ledger describes it.

    Attributes:
        population: whom it was charged to.
        unit_of_privacy: what one record stands for, in words; None if it was not kept.
        query: what was measured.
        neighbours: which change of one record the noise covers.
        epsilon: of the whole release.
        split: ε of each level, root first.
        scales: of the noise of each level, root first.
        sensitivity: L1, of one level.
        largest_contribution: Z.
        largest_size: N.
        units_from_data: whether there was no public table of units.
    """

    population: str
    unit_of_privacy: str | None
    query: Query
    neighbours: Neighbours
    epsilon: Fraction
    split: tuple[Fraction, ...]
    scales: tuple[Fraction, ...]
    sensitivity: int
    largest_contribution: int
    largest_size: int
    units_from_data: bool

    @classmethod
    def read(cls, descriptor: Mapping[str, Any]) -> Description:
        """Read what the ledger keeps.

        Raises:
            UnreadableDescription: something is missing or of another type.
        """
        try:
            return cls._read(descriptor)
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            raise UnreadableDescription from None

    @classmethod
    def _read(cls, descriptor: Mapping[str, Any]) -> Description:
        query, neighbours = Query(descriptor["query"]), Neighbours(descriptor["neighbours"])
        contribution, size = descriptor["largest_contribution"], descriptor["largest_size"]
        from_data = descriptor["units"] == FROM_DATA
        split = tuple(Fraction(part) for part in descriptor["split"])
        noise = descriptor.get("noise")
        if noise is None:  # as the first ledgers were written: the noise follows from the rest
            sensitivity = l1_sensitivity(
                query,
                neighbours=neighbours,
                largest_contribution=contribution,
                largest_size=size,
                units_from_data=from_data,
            )
            scales = tuple(sensitivity / part for part in split)
        else:
            sensitivity = int(noise["sensitivity"])
            scales = tuple(Fraction(scale) for scale in noise["scales"])
        return cls(
            population=descriptor["population"],
            unit_of_privacy=descriptor.get("unit_of_privacy"),
            query=query,
            neighbours=neighbours,
            epsilon=Fraction(descriptor["epsilon"]),
            split=split,
            scales=scales,
            sensitivity=sensitivity,
            largest_contribution=contribution,
            largest_size=size,
            units_from_data=from_data,
        )
