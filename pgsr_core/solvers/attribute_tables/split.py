"""How to split ε over levels and tables, from public facts alone.

The noise of a share p of ε has a variance proportional to 1/p², and `weights` says what is left of
it in every published number. The objective adds up, over levels and tables, the weight times the
summed standard deviation relative to that of the equal split; it does not depend on ε. It is not
convex, so a descent in the logarithms of the shares goes from several fixed starts, on a balanced
tree with the levels' mean numbers of children; the true tree decides between what they find and
the equal split. No random numbers: the same answer every time.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.attribute_tables.schema import Real, Schema, TablesDoNotFit
from pgsr_core.solvers.attribute_tables.weights import (
    by_region,
    own_variances,
    table_variances,
    weigh,
)

Shares = tuple[tuple[Fraction, ...], ...]
PARTS = 10_000
MOST_STEPS = 400
SMALLEST_STEP = 1e-5
PROBE = 1e-5
NEGLIGIBLE = 2e-3


def equal_shares(levels: int, tables: int, *, exact: NDArray[np.bool_] | None = None) -> Shares:
    """The same share for every level and table that is measured with noise."""
    public = np.zeros((levels, tables), dtype=bool) if exact is None else exact
    one = Fraction(1, int((~public).sum()))
    return tuple(tuple(Fraction(0) if held else one for held in row) for row in public.tolist())


def optimised_shares(
    tree: RegionTree,
    schema: Schema,
    *,
    weights: ArrayLike | None = None,
    exact: NDArray[np.bool_] | None = None,
) -> Shares:
    """Levels × tables: shares that add up to exactly 1 and are no worse than equal ones.

    A share may be 0: that table is published at that level and not measured there.

    Args:
        tree: the region tree.
        schema: attributes and tables.
        weights: levels × tables, what relative errors count; all alike by default.
        exact: levels × tables, what is public everywhere at the level and takes no share.

    Raises:
        TablesDoNotFit: weights are not one non-negative number for each level and table.
    """
    shape = (tree.levels, len(schema.tables))
    counted = np.ones(shape) if weights is None else np.asarray(weights, dtype=np.float64)
    public = np.zeros(shape, dtype=bool) if exact is None else np.asarray(exact, dtype=bool)
    if counted.shape != shape or public.shape != shape or not (counted >= 0).all():
        raise TablesDoNotFit(
            f"weights have shape {counted.shape}, expected {shape} numbers ≥ 0. "
            "Remedy: give one for each level and table."
        )
    equal = equal_shares(*shape, exact=public)
    if public.all() or counted.sum() == 0:
        return equal
    model = _Balanced(tree, schema, counted, public)
    best, best_value = equal, relative_error(tree, schema, equal, weights=counted, exact=public)
    for start in _starts(schema, model):
        found = _whole_shares(_without_negligible(model, _descend(model, start)), public)
        value = relative_error(tree, schema, found, weights=counted, exact=public)
        if value < best_value:
            best, best_value = found, value
    return best


def relative_error(
    tree: RegionTree,
    schema: Schema,
    shares: Shares,
    *,
    weights: ArrayLike | None = None,
    exact: NDArray[np.bool_] | None = None,
) -> float:
    """The objective on the true tree: 1 for the equal split, infinite if a table is not known."""
    shape = (tree.levels, len(schema.tables))
    public = np.zeros(shape, dtype=bool) if exact is None else exact
    counted = np.ones(shape) if weights is None else np.asarray(weights, dtype=np.float64)
    now = _summed_deviations(tree, schema, shares, public)
    then = _summed_deviations(tree, schema, equal_shares(*shape, exact=public), public)
    known = (then > 0) & (counted > 0)
    return float((counted[known] * now[known] / then[known]).sum() / counted[known].sum())


def noise_variances(shares: Shares, *, exact: NDArray[np.bool_], epsilon: float = 1.0) -> Real:
    """Levels × tables: variances 2 / (share · ε)² of noise of sensitivity 1."""
    with np.errstate(divide="ignore"):
        noise = 2.0 / (epsilon * np.array(shares, dtype=np.float64)) ** 2
    return np.where(exact, 0.0, noise)


def _summed_deviations(
    tree: RegionTree, schema: Schema, shares: Shares, public: NDArray[np.bool_]
) -> Real:
    noise = by_region(tree, noise_variances(shares, exact=public), schema)
    left = table_variances(schema, weigh(tree, own_variances(schema, noise)).variance)
    return np.add.reduceat(np.sqrt(left), tree.level_start[:-1], axis=0)


class _Balanced:
    """The objective of many splits at once, on a balanced tree."""

    def __init__(
        self, tree: RegionTree, schema: Schema, weights: Real, public: NDArray[np.bool_]
    ) -> None:
        inner = np.add.reduceat(~tree.is_leaf, tree.level_start[:-1])
        self.children = np.diff(tree.level_start)[1:] / np.maximum(inner[:-1], 1)
        self.schema, self.public = schema, public
        self.free = np.flatnonzero(~public.reshape(-1))
        self.tells = schema.measures.T / schema.sizes[:, None]
        within = np.array(
            [[set(one) <= set(table) for table in schema.tables] for one in schema.classes]
        )
        self.parts = within * schema.class_dimensions[:, None]
        self.scale = np.ones(weights.shape)
        self.weights = np.zeros(weights.shape)
        then = self.deviations(np.full((1, len(self.free)), 1.0 / len(self.free)))[0]
        known = (then > 0) & (weights > 0)
        self.scale = np.where(known, then, 1.0)
        self.weights = np.where(known, weights, 0.0) / weights[known].sum()

    def value(self, shares: Real) -> Real:
        """The objective of each row of shares (of what is not public)."""
        relative = np.where(self.weights > 0, self.deviations(shares) / self.scale, 0.0)
        return np.asarray((relative * self.weights).sum(axis=(1, 2)))

    def deviations(self, shares: Real) -> Real:
        """Splits × levels × tables."""
        levels, tables = self.public.shape
        every = np.zeros((len(shares), levels * tables))
        every[:, self.free] = shares**2 / 2.0
        precision = every.reshape(-1, levels, tables)
        precision[:, self.public] = 1e30
        own = 1.0 / np.maximum(precision @ self.tells, 1e-60)
        up = own.copy()
        for level in range(levels - 2, -1, -1):
            below = self.children[level] * up[:, level + 1]
            up[:, level] = 1.0 / (1.0 / own[:, level] + 1.0 / below)
        left = up.copy()
        for level in range(levels - 1):
            part = 1.0 / self.children[level]
            left[:, level + 1] = up[:, level + 1] * (1.0 - part) + part * part * left[:, level]
        return np.asarray(np.sqrt(left @ self.parts) / self.schema.sizes)


def _starts(schema: Schema, model: _Balanced) -> Iterator[Real]:
    """Equal; by powers of a table's cells; more for upper or for lower levels; few tables."""
    levels, tables = model.public.shape
    cells = np.broadcast_to(schema.sizes, (levels, tables)).astype(np.float64)
    depth = np.arange(levels)[:, None] * np.ones(tables)
    largest = np.where(cells == cells.max(), 1.0, 0.02)
    shapes = (
        np.ones((levels, tables)),
        cells**0.5,
        cells ** (1 / 3),
        0.5**depth,
        2.0**depth,
        largest,
        largest * np.where(depth == levels - 1, 1.0, 0.1),
        np.where(depth == levels - 1, 1.0, 0.05),
    )
    for shape in shapes:
        start = shape.reshape(-1)[model.free]
        yield start / start.sum()


def _descend(model: _Balanced, start: Real) -> Real:
    """Descent in the logarithms, with steps that grow when they help and shrink when not."""
    point, value, step = np.log(start), float(model.value(start[None])[0]), 0.5
    gradient = _slope(model, point, value)
    for _ in range(MOST_STEPS):
        tried = point - step * gradient
        reached = float(model.value(_softmax(tried)[None])[0])
        if reached < value:
            gained = value - reached
            point, value, step = np.maximum(tried, tried.max() - 30.0), reached, step * 1.6
            if gained < 1e-9 * value:
                break
            gradient = _slope(model, point, value)
        else:
            step *= 0.4
            if step < SMALLEST_STEP:
                break
    return _softmax(point)


def _slope(model: _Balanced, point: Real, value: float) -> Real:
    """Differences, scaled by the shares so that small ones move as fast as large ones."""
    moved = point + PROBE * np.eye(len(point))
    slope = (model.value(_softmax(moved)) - value) / PROBE
    return np.asarray(slope / np.sqrt(_softmax(point)))


def _softmax(point: Real) -> Real:
    raised = np.exp(point - point.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def _without_negligible(model: _Balanced, shares: Real) -> Real:
    """Set small shares to 0, the smallest first, where that does not cost anything."""
    value = float(model.value(shares[None])[0])
    for place in np.argsort(shares, kind="stable"):
        if shares[place] > NEGLIGIBLE:
            break
        fewer = shares.copy()
        fewer[place] = 0.0
        fewer /= fewer.sum()
        reached = float(model.value(fewer[None])[0])
        if reached <= value * (1.0 + 1e-4):
            shares = fewer
    return shares


def _whole_shares(shares: Real, public: NDArray[np.bool_]) -> Shares:
    """Multiples of 1/PARTS that add up to exactly 1; the largest takes what remains."""
    parts = [round(float(share) * PARTS) for share in shares]
    largest = parts.index(max(parts))
    parts[largest] += PARTS - sum(parts)
    rest = iter(parts)
    return tuple(
        tuple(Fraction(0) if held else Fraction(next(rest), PARTS) for held in row)
        for row in public.tolist()
    )
