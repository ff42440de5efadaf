"""The solver: checks, bounds, and the order of the stages."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgsr_core.errors import PgsrError
from pgsr_core.hierarchy import RegionTree
from pgsr_core.limits import LARGEST_COST
from pgsr_core.solvers.cpwl.blocks import Blocks
from pgsr_core.solvers.cpwl.exchange import Costs, balance_scale, balance_sizes
from pgsr_core.solvers.cpwl.integers import (
    repair_blocks,
    round_blocks,
    round_sizes,
    share_row,
    share_rows,
)
from pgsr_core.solvers.cpwl.layout import Int, Layout, lay_out
from pgsr_core.solvers.cpwl.pools import NARROW, NARROW_SUM, Leaves, largest_sum, pack_rows
from pgsr_core.solvers.cpwl.relaxation import new_state, relax

TABLE_DIMENSIONS = 2
# Integers up to here are exact as doubles.
LARGEST_EXACT_DOUBLE = 2**53
# Moves that the dummy root may need for each size before its start counts as distant.
MOVES_A_SIZE = 8


class CpwlInputError(PgsrError):
    """The arguments do not describe a problem on the tree."""


class ValuesTooLarge(CpwlInputError):
    """A sum or a marginal cost might not fit 64 bits."""

    def __init__(self, *, largest: int, groups: int, largest_pool: int, weights: int) -> None:
        self.largest = largest
        self.groups = groups
        self.largest_pool = largest_pool
        self.weights = weights
        super().__init__(
            f"noisy counts up to {largest} in magnitude and {groups} groups, with up to "
            f"{largest_pool} leaves under one region and weights that sum to {weights}, could "
            "overflow 64 bits. Remedy: divide the weights by a common factor, or check the "
            "measurements for values no table of counts can hold."
        )


@dataclass(frozen=True)
class CpwlSolution:
    """The optimum and how it was reached.

    Attributes:
        counts: regions × sizes.
        sweeps: Newton sweeps over the block of sizes that needed most.
        repairs: exchanges made after rounding.
        rescaled: whether the rounded start was distant, and exchanges of falling powers of two
            were made.
    """

    counts: NDArray[np.int64]
    sweeps: int
    repairs: int
    rescaled: bool = False


def solve(
    tree: RegionTree,
    noisy: NDArray[np.int64],
    *,
    groups: int,
    level_weights: Sequence[int] | None = None,
) -> CpwlSolution:
    """The exact integer optimum of (H1)–(H4), without truncated domains.

    Minimises Σ_r w_level(r) Σ_s (x[r,s] − n[r,s])² over integers x ≥ 0 whose children sum to
    their parent for every size and whose root sums to ``groups`` (Fioretto and Van Hentenryck
    2019, Figure 3). Among several optima the choice is deterministic and favours no region.

    Args:
        tree: the region tree.
        noisy: regions × sizes, any integers.
        groups: G ≥ 0.
        level_weights: a positive integer for each level, root first; None means all 1.

    Raises:
        ValuesTooLarge: the exact answer might need more than 64 bits on the way.
        CpwlInputError: shapes, weights or G do not describe a problem.
    """
    table, total, weights = _checked(tree, noisy, groups, level_weights)
    if total == 0:
        return CpwlSolution(np.zeros(table.shape, dtype=np.int64), sweeps=0, repairs=0)
    if tree.regions == 1:
        largest = _largest(table)
        _refuse_overflow(largest, total, table.shape[1], sum(weights))
        row = share_row(table[0], total, largest + 1)
        return CpwlSolution(row[np.newaxis], sweeps=0, repairs=0)
    return _solve_tree(table, lay_out(tree, weights), Blocks(table.shape[1]), total, sum(weights))


def _solve_tree(
    table: Int, layout: Layout, blocks: Blocks, groups: int, weights: int
) -> CpwlSolution:
    leaves, none, largest = _pack(table, layout, blocks, groups)
    if _cost_bound(largest, groups, layout.largest_pool, weights) >= LARGEST_COST:
        # The bound came from bit patterns, and may be twice the truth.
        largest = _largest(table)
        _refuse_overflow(largest, groups, layout.largest_pool, weights)
        none = min(none, largest + 1)
    state = new_state(layout, blocks, leaves, none)
    multiplier = relax(table, layout, blocks, state, groups=groups)
    totals = np.empty(table.shape[1], dtype=np.int64)
    round_sizes(state, multiplier, groups, totals)
    # The marginal costs take the place of the state, node by node.
    counts = np.empty(table.shape, dtype=np.int64)
    costs = Costs(table, counts, state.offset.view(np.int64), state.slope.view(np.int64))
    eligible = np.empty(state.below.shape, dtype=np.int32)
    exact = 2 * (layout.largest_pool * largest + groups) < LARGEST_EXACT_DOUBLE
    blocks.run(round_blocks, costs, layout, state, eligible, totals, exact)
    # The packed leaves go before the table's pages come: memory stays at the larger of the two.
    state = state._replace(leaves=np.empty((0, 0, 0), dtype=leaves.dtype))
    del leaves
    blocks.run(share_rows, table, counts, layout, state, eligible, parts=layout.nodes)
    repairs, rescaled = _repair(costs, layout, blocks, groups)
    sweeps = int(state.sweeps.max())
    return CpwlSolution(counts, sweeps=sweeps, repairs=repairs, rescaled=rescaled)


def _repair(costs: Costs, layout: Layout, blocks: Blocks, groups: int) -> tuple[int, bool]:
    """Make the rounded solution optimal; the moves made, and whether larger steps were needed."""
    repairs = sum(blocks.run(repair_blocks, costs, layout))
    if repairs >= 0:
        moves = balance_sizes(costs, layout, 1, MOVES_A_SIZE * blocks.sizes)
        if moves >= 0:
            return repairs + moves, False
    return _rescale(costs, layout, blocks, groups), True


def _rescale(costs: Costs, layout: Layout, blocks: Blocks, groups: int) -> int:
    moves = 0
    for exponent in range(groups.bit_length() - 1, -1, -1):
        step = 1 << exponent
        moves += sum(blocks.run(balance_scale, costs, layout, step))
        moves += balance_sizes(costs, layout, step, -1)
    return moves


def _pack(table: Int, layout: Layout, blocks: Blocks, groups: int) -> tuple[Leaves, int, int]:
    """The leaves in blocks, a number above them all, and a bound on every |n| of the table."""
    shape = (blocks.count, len(layout.leaf_row), blocks.width)
    inner = table[layout.row[layout.row >= 0]]
    other = max(int(inner.max()), -int(inner.min()))
    leaves: Leaves = np.empty(shape, dtype=np.int32)
    parts = len(layout.leaf_row)
    unions = blocks.run(pack_rows, table, layout.leaf_row, leaves, parts=parts)
    largest = functools.reduce(operator.or_, unions) + 1
    # Levels are kept in the leaves' width as well; they reach up to G + |n|.
    if largest + groups < NARROW and (
        largest * layout.largest_pool < NARROW_SUM or largest_sum(table, layout) < NARROW_SUM
    ):
        return leaves, NARROW, max(largest, other)
    del leaves
    leaves = np.empty(shape, dtype=np.int64)
    blocks.run(pack_rows, table, layout.leaf_row, leaves, parts=parts)
    return leaves, largest + 1, max(largest, other)


def _largest(table: Int) -> int:
    return max(int(table.max()), -int(table.min()))


def _cost_bound(largest: int, groups: int, largest_pool: int, weights: int) -> int:
    """Above any pool's Σ max(0, n + t) on the way, and above any path's marginal cost.

    A pool's level lies within ±(largest + G + 1); a path's marginal cost for a step of at most G
    is a sum of w (2 |z − n| + step) with z between 0 and G.
    """
    reach = 2 * largest + groups + 2
    return max(largest_pool * 2 * reach, weights * (reach + 2 * groups + 2))


def _refuse_overflow(largest: int, groups: int, largest_pool: int, weights: int) -> None:
    if _cost_bound(largest, groups, largest_pool, weights) >= LARGEST_COST:
        raise ValuesTooLarge(
            largest=largest, groups=groups, largest_pool=largest_pool, weights=weights
        )


def _checked(
    tree: RegionTree,
    noisy: NDArray[np.int64],
    groups: int,
    level_weights: Sequence[int] | None,
) -> tuple[Int, int, list[int]]:
    table = np.asarray(noisy)
    if table.ndim != TABLE_DIMENSIONS or table.shape[0] != tree.regions or not table.shape[1]:
        raise CpwlInputError(
            f"noisy counts must have {tree.regions} rows, one for each region, and at least one "
            f"column, got shape {table.shape}. Remedy: pass a table of regions × sizes."
        )
    if not np.issubdtype(table.dtype, np.signedinteger):
        raise CpwlInputError(
            f"noisy counts must be signed integers, got {table.dtype}. "
            "Remedy: convert them to int64."
        )
    total = operator.index(groups)
    if total < 0:
        raise CpwlInputError(
            f"the number of groups must be at least 0, got {total}. Remedy: correct it."
        )
    weights = [1] * tree.levels
    if level_weights is not None:
        weights = [operator.index(weight) for weight in level_weights]
    if len(weights) != tree.levels or min(weights) < 1:
        raise CpwlInputError(
            f"weights must be {tree.levels} positive integers, one for each level, got {weights}. "
            "Remedy: give each level its weight, root first."
        )
    if max(total, *weights, 0) >= LARGEST_COST:
        raise ValuesTooLarge(largest=0, groups=total, largest_pool=1, weights=sum(weights))
    return np.ascontiguousarray(table, dtype=np.int64), total, weights
