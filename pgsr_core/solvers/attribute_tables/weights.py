"""How much each measurement counts: variances of classes along the tree, from public facts alone.

A class of interactions is one least-squares problem on the region tree, with one variance for each
region. Two passes turn variances of the noise into those of the estimate. Three cases are
ordinary: infinite (not measured, or not determined), finite, and zero (public).

The variance of a class is that of its components times the cells of the interaction, which makes it
the same for all of them: a table of n_S cells with noise of variance v has v · n_S.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.attribute_tables.schema import Int, Real, Schema, Subset, TablesDoNotFit
from pgsr_core.solvers.isotonic import read_only

MATRIX = 2


class Weights(NamedTuple):
    """Regions × classes.

    Attributes:
        own: variance of what is measured in the region itself.
        upward: variance of what is measured in and below it.
        gain: how far an inner region moves from its own value to its children's sum.
        share: which part of what is missing in the family the region takes up.
        variance: what is left at the end; infinite where the class is not determined.
    """

    own: Real
    upward: Real
    gain: Real
    share: Real
    variance: Real


def by_region(tree: RegionTree, variances: ArrayLike, schema: Schema) -> Real:
    """Variances of the noise, regions × tables, from levels × tables or regions × tables.

    Raises:
        TablesDoNotFit: a shape is neither, or a variance is negative or not a number.
    """
    given = np.asarray(variances, dtype=np.float64)
    tables = len(schema.tables)
    rows = given.shape[0] if given.ndim == MATRIX else -1
    if given.ndim != MATRIX or given.shape[1] != tables or rows not in (tree.levels, tree.regions):
        raise TablesDoNotFit(
            f"variances have shape {given.shape}, expected {tree.levels} levels or {tree.regions} "
            f"regions × {tables} tables. Remedy: give one variance for each level and table."
        )
    if np.isnan(given).any() or (given < 0).any():
        raise TablesDoNotFit(
            "a variance is negative or not a number. Remedy: 0 for public, infinity for not "
            "measured, a positive number else."
        )
    if rows == tree.regions:
        return np.ascontiguousarray(given)
    return np.ascontiguousarray(given[tree.level])


def own_variances(schema: Schema, noise: Real) -> Real:
    """Regions × classes: the variance of what all tables of a region say together."""
    with np.errstate(divide="ignore"):
        precision = 1.0 / (noise * schema.sizes)
        columns = [1.0 / precision[:, tells].sum(axis=1) for tells in schema.measures]
    return np.stack(columns, axis=1)


@njit(cache=True, inline="always")
def blend(
    one: int, place: int, noise: Real, sizes: Int, measures: NDArray[np.bool_], own: Real
) -> float:
    """What a table's component counts in its region's class; public ones count alone.

    Args:
        one: the class.
        place: the table, which tells of the class.
        noise: the region's variances, one for each table.
        sizes: cells of the tables.
        measures: classes × tables.
        own: the region's variances, one for each class.
    """
    if own[one] == np.inf:
        return 0.0
    if own[one] > 0.0:
        return float(own[one] / (noise[place] * sizes[place]))
    if noise[place] > 0.0:
        return 0.0
    public = 0
    for other in range(len(noise)):
        public += measures[one, other] and noise[other] == 0.0
    return 1.0 / public


def weigh(tree: RegionTree, own: Real) -> Weights:
    """Both passes over the variances."""
    upward, gain = own.copy(), np.zeros_like(own)
    _upward(read_only(tree.first_child), own, upward, gain)
    share, variance = np.zeros_like(own), upward.copy()
    _downward(read_only(tree.first_child), upward, share, variance)
    return Weights(own, upward, gain, share, variance)


def table_variances(schema: Schema, variance: Real, tables: Sequence[Subset] | None = None) -> Real:
    """Regions × tables: the variance of each cell of a table, infinite where not determined."""
    wanted = schema.tables if tables is None else tables
    columns = []
    for table in wanted:
        inside = schema.classes_within(table)
        dimensions = schema.class_dimensions[inside]
        counted = variance[:, inside][:, dimensions > 0] @ dimensions[dimensions > 0]
        columns.append(counted / schema.size(table) ** 2)
    return np.stack(columns, axis=1)


def determined(
    schema: Schema, variance: Real, tables: Sequence[Subset] | None = None
) -> NDArray[np.bool_]:
    """Regions × tables: where a table can be published, all its interactions being known."""
    return np.isfinite(table_variances(schema, variance, tables))


@njit(cache=True)
def _upward(first_child: Int, own: Real, upward: Real, gain: Real) -> None:
    for region in range(len(own) - 1, -1, -1):
        start, stop = first_child[region], first_child[region + 1]
        if start == stop:
            continue
        for one in range(own.shape[1]):
            below = 0.0
            for child in range(start, stop):
                below += upward[child, one]
            mine = own[region, one]
            if below == np.inf or mine == 0.0:
                weight = 0.0
                upward[region, one] = mine
            elif mine == np.inf:
                weight = 1.0
                upward[region, one] = below
            else:
                weight = mine / (mine + below)
                upward[region, one] = weight * below
            gain[region, one] = weight


@njit(cache=True)
def _downward(first_child: Int, upward: Real, share: Real, variance: Real) -> None:
    # Invariant: a region's variance is final before its children are looked at.
    for region in range(len(upward)):
        start, stop = first_child[region], first_child[region + 1]
        for one in range(upward.shape[1]):
            if variance[region, one] == np.inf:
                continue
            below, unknown, last = 0.0, 0, -1
            for child in range(start, stop):
                if upward[child, one] == np.inf:
                    unknown += 1
                    last = child
                else:
                    below += upward[child, one]
            if unknown == 1:
                share[last, one] = 1.0
                variance[last, one] = variance[region, one] + below
            elif unknown == 0 and below > 0.0:
                for child in range(start, stop):
                    part = upward[child, one] / below
                    share[child, one] = part
                    left = upward[child, one] * (1.0 - part) + part * part * variance[region, one]
                    variance[child, one] = left
