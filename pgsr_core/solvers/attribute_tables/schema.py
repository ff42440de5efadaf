"""Attributes, tables of subsets of them, and the classes of interactions that tables share.

Cells are in C order: the last attribute of a table runs fastest. An interaction A (what a table
says about A beyond what its margins say) is measured by every table S ⊇ A. Interactions that are
measured by the same tables are estimated with the same weights, so they are kept together: the
class of A is named by the intersection of those tables, a *closed* set of attributes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pgsr_core.errors import PgsrError

Int = NDArray[np.int64]
Map = NDArray[np.int32]
Real = NDArray[np.float64]
Subset = tuple[int, ...]
MOST_CLASSES = 1000


class TablesDoNotFit(PgsrError):
    """Tables, measurements or variances do not describe a problem on the tree."""


@dataclass(frozen=True)
class Schema:
    """What is measured: the attributes' numbers of values, and the tables.

    Attributes:
        domains: number of values of each attribute.
        tables: subsets of attributes, each in rising order; () is the total.
    """

    domains: tuple[int, ...]
    tables: tuple[Subset, ...]

    def __post_init__(self) -> None:
        if not self.domains or min(self.domains) < 1:
            raise TablesDoNotFit(
                f"domains must be positive, got {self.domains}. Remedy: give each attribute "
                "at least one value."
            )
        known = range(len(self.domains))
        for table in self.tables:
            if tuple(sorted(set(table))) != table or any(a not in known for a in table):
                raise TablesDoNotFit(
                    f"table {table} is no subset of the {len(self.domains)} attributes in rising "
                    "order. Remedy: list each attribute once."
                )
        if not self.tables or len(set(self.tables)) != len(self.tables):
            raise TablesDoNotFit(
                "there must be at least one table, and no table twice. Remedy: list each once."
            )

    @cached_property
    def cells(self) -> int:
        """Cells of the full table."""
        return math.prod(self.domains)

    @cached_property
    def full(self) -> Subset:
        """All attributes."""
        return tuple(range(len(self.domains)))

    def size(self, table: Subset) -> int:
        """Cells of one table."""
        return math.prod(self.domains[attribute] for attribute in table)

    @cached_property
    def classes(self) -> tuple[Subset, ...]:
        """Intersections of tables, small ones first, and the full table at the end.

        Every class comes after those that it contains.
        """
        closed = set(self.tables)
        frontier = list(self.tables)
        while frontier:
            found = set()
            for one in frontier:
                found |= {tuple(sorted(set(one) & set(other))) for other in self.tables}
            frontier = sorted(found - closed)
            closed |= found
            if len(closed) > MOST_CLASSES:
                raise TablesDoNotFit(
                    f"the tables overlap in more than {MOST_CLASSES} ways. Remedy: publish fewer."
                )
        closed.discard(self.full)
        return (*sorted(closed, key=lambda one: (len(one), one)), self.full)

    @cached_property
    def measures(self) -> NDArray[np.bool_]:
        """Classes × tables: whether the table tells of the class."""
        rows = [[set(one) <= set(table) for table in self.tables] for one in self.classes]
        return np.array(rows, dtype=bool)

    @cached_property
    def sizes(self) -> Int:
        """Cells of each table."""
        return np.array([self.size(table) for table in self.tables], dtype=np.int64)

    @cached_property
    def class_dimensions(self) -> Int:
        """How many independent numbers each class has; they add up to the cells of a table."""
        found: list[int] = []
        for place, one in enumerate(self.classes):
            below = (found[p] for p in range(place) if set(self.classes[p]) < set(one))
            found.append(self.size(one) - sum(below))
        return np.array(found, dtype=np.int64)

    def classes_within(self, table: Subset) -> list[int]:
        """The classes that a table is made of."""
        return [p for p, one in enumerate(self.classes) if set(one) <= set(table)]

    def margin_map(self, source: Subset, target: Subset) -> Map:
        """For each cell of `source` its cell in the smaller table `target`."""
        index = np.zeros((1,) * len(source), dtype=np.int64)
        stride = 1
        for axis in range(len(source) - 1, -1, -1):
            values = self.domains[source[axis]]
            if source[axis] in target:
                shape = [1] * len(source)
                shape[axis] = values
                index = index + stride * np.arange(values).reshape(shape)
                stride *= values
        shape = [self.domains[attribute] for attribute in source]
        return np.broadcast_to(index, shape).astype(np.int32).reshape(-1)

    def margin(self, values: Real, source: Subset, target: Subset) -> Real:
        """Sum rows (…, cells of `source`) to (…, cells of `target`)."""
        shape = [self.domains[attribute] for attribute in source]
        cube = values.reshape(*values.shape[:-1], *shape)
        axes = tuple(values.ndim - 1 + i for i, a in enumerate(source) if a not in target)
        return np.asarray(cube.sum(axis=axes).reshape(*values.shape[:-1], -1))


def schema(domains: Sequence[int], tables: Sequence[Sequence[int]]) -> Schema:
    """A schema from any sequences."""
    return Schema(tuple(domains), tuple(tuple(sorted(table)) for table in tables))
