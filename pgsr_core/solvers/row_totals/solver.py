"""The solver: checks, bounds, and the order of the stages."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgsr_core.errors import PgsrError
from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.cpwl import solve as solve_without_totals
from pgsr_core.solvers.cpwl.blocks import Blocks
from pgsr_core.solvers.cpwl.layout import Int
from pgsr_core.solvers.cpwl.pools import NARROW, pack_rows
from pgsr_core.solvers.row_totals.certificate import PriceCertificate, certify
from pgsr_core.solvers.row_totals.network import Network, build_network
from pgsr_core.solvers.row_totals.relaxation import new_state, relax
from pgsr_core.solvers.row_totals.rounding import round_potentials
from pgsr_core.solvers.row_totals.search import TOO_LARGE, carry_units, new_scratch
from pgsr_core.solvers.row_totals.window import (
    Flow,
    add_leaf_excess,
    close_window,
    open_window,
)

TABLE_DIMENSIONS = 2
# Σ of weights times (2 (G + |n|) + 1) stays below this: see `search` for what follows.
LARGEST_PATH = 2**57
# How far the first window reaches, in weights of leaves, and how much farther each next one.
FIRST_REACH = 6
FARTHER = 8


class RowTotalsInputError(PgsrError):
    """The arguments do not describe a problem on the tree."""


class RowTotalsTooLarge(RowTotalsInputError):
    """A marginal cost or a potential might not fit 64 bits."""

    def __init__(self, *, largest: int, groups: int, weights: int) -> None:
        self.largest = largest
        self.groups = groups
        self.weights = weights
        super().__init__(
            f"noisy counts up to {largest} in magnitude and {groups} groups, with weights that sum "
            f"to {weights}, could overflow 64 bits. Remedy: divide the weights by a common "
            "factor, or check the measurements for values no table of counts can hold."
        )


@dataclass(frozen=True)
class RowTotalsSolution:
    """The optimum, its proof, and how it was reached.

    Attributes:
        counts: regions × sizes.
        prices: one integer for each leaf, in the order of ``tree.leaves``, that prove it optimal.
        certificate: what the prices prove.
        steps: Newton steps of the continuous stage.
        carried: units that were carried after rounding.
    """

    counts: NDArray[np.int64]
    prices: NDArray[np.int64]
    certificate: PriceCertificate
    steps: int
    carried: int


def solve(
    tree: RegionTree,
    noisy: NDArray[np.int64],
    *,
    groups_by_region: NDArray[np.int64],
    level_weights: Sequence[int] | None = None,
) -> RowTotalsSolution:
    """The exact integer optimum on the tree among tables that keep every region's total.

    Minimises Σ_r w_level(r) Σ_s (x[r,s] − n[r,s])² over integers x ≥ 0 whose children sum to
    their parent for every size and whose rows sum to G_r. Among several optima the choice is
    deterministic.

    Args:
        tree: the region tree.
        noisy: regions × sizes, any integers.
        groups_by_region: G_r ≥ 0 of every region; children sum to their parents.
        level_weights: a positive integer for each level, root first; None means all 1.

    Raises:
        RowTotalsTooLarge: the exact answer might need more than 64 bits on the way.
        RowTotalsInputError: shapes, weights or totals do not describe a problem.
    """
    table, totals, weights = _checked(tree, noisy, groups_by_region, level_weights)
    if tree.regions == 1:
        counts = solve_without_totals(
            tree, table, groups=int(totals[0]), level_weights=weights
        ).counts
        prices = np.array([-int((weights[0] * (2 * (counts - table) + 1)).min())])
        steps, carried = 0, 0
    else:
        network = build_network(tree, weights)
        counts, prices, steps, carried = _solve_network(network, table, totals, weights)
    certificate = certify(
        tree, table, counts, groups_by_region=totals, prices=prices, level_weights=weights
    )
    return RowTotalsSolution(counts, prices, certificate, steps, carried)


def _solve_network(
    network: Network, table: Int, totals: Int, weights: list[int]
) -> tuple[Int, Int, int, int]:
    blocks = Blocks(table.shape[1])
    supply = totals[network.leaf_row]
    narrow = _largest(table) < NARROW
    shape = (blocks.count, len(supply), blocks.width)
    leaves = np.empty(shape, np.int32 if narrow else np.int64)
    blocks.run(pack_rows, table, network.leaf_row, leaves, parts=len(supply))
    state = new_state(network, blocks, leaves, table, supply)
    multiplier, steps = relax(network, blocks, state, supply)
    tau = state.tau
    del leaves, state
    flow = round_potentials(network, blocks, table, tau, multiplier, supply)
    carried = _balance(network, blocks, flow)
    if carried < 0:
        raise RowTotalsTooLarge(
            largest=_largest(table), groups=int(totals[0]), weights=sum(weights)
        )
    return flow.counts, flow.potential[: len(supply)].copy(), steps, carried


def _balance(network: Network, blocks: Blocks, flow: Flow) -> int:
    """Carry units until the table is feasible; how many, or TOO_LARGE."""
    reach, carried, first = FIRST_REACH * int(network.leaf_weight.max()), 0, True
    scratch = new_scratch(len(flow.potential))
    while True:
        window = open_window(network, blocks, flow, reach)
        if first:
            add_leaf_excess(network, flow, window)
            first = False
        units = int(carry_units(network, flow, window, scratch, reach))
        close_window(network, flow, window)
        if units == TOO_LARGE:
            return TOO_LARGE
        carried += units
        if not flow.excess.any():
            return carried
        reach *= FARTHER


def _largest(table: Int) -> int:
    return max(int(table.max()), -int(table.min()))


def _checked(
    tree: RegionTree,
    noisy: NDArray[np.int64],
    groups_by_region: NDArray[np.int64],
    level_weights: Sequence[int] | None,
) -> tuple[Int, Int, list[int]]:
    table, totals = np.asarray(noisy), np.asarray(groups_by_region)
    if table.ndim != TABLE_DIMENSIONS or table.shape[0] != tree.regions or not table.shape[1]:
        raise RowTotalsInputError(
            f"noisy counts must have {tree.regions} rows, one for each region, and at least one "
            f"column, got shape {table.shape}. Remedy: pass a table of regions × sizes."
        )
    for values in (table, totals):
        if not np.issubdtype(values.dtype, np.signedinteger):
            raise RowTotalsInputError(
                f"noisy counts and totals must be signed integers, got {values.dtype}. "
                "Remedy: convert them to int64."
            )
    weights = [1] * tree.levels
    if level_weights is not None:
        weights = [operator.index(weight) for weight in level_weights]
    if len(weights) != tree.levels or min(weights) < 1:
        raise RowTotalsInputError(
            f"weights must be {tree.levels} positive integers, one for each level, got {weights}. "
            "Remedy: give each level its weight, root first."
        )
    if totals.shape != (tree.regions,) or totals.min() < 0:
        raise RowTotalsInputError(
            f"totals must be {tree.regions} numbers of at least 0, one for each region. "
            "Remedy: correct them."
        )
    largest, groups = _largest(table), int(totals[0])
    if (
        sum(weights) * (2 * (groups + largest) + 3) >= LARGEST_PATH
        or int(totals.max()) * tree.regions >= LARGEST_PATH
    ):
        raise RowTotalsTooLarge(largest=largest, groups=groups, weights=sum(weights))
    wide = np.ascontiguousarray(totals, dtype=np.int64)
    if not np.array_equal(tree.children_sums(wide), wide):
        raise RowTotalsInputError(
            "the totals of children must sum to their parent's. Remedy: sum them from the leaves."
        )
    return np.ascontiguousarray(table, dtype=np.int64), wide, weights
