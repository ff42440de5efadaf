"""Slow, obvious twins of the tree solver, and trees and tables to try them on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree

Int = NDArray[np.int64]


def random_tree(rng: np.random.Generator, regions: int, *, reach: int) -> RegionTree:
    """Each region's parent is one of the ``reach`` before it: 1 makes a chain, many a bush."""
    parents: list[str | None] = [None]
    parents += [f"{rng.integers(max(0, i - reach), i):04d}" for i in range(1, regions)]
    return RegionTree.from_table([f"{i:04d}" for i in range(regions)], parents)


def layered_tree(*branching: int) -> RegionTree:
    """Every region of level l has ``branching[l]`` children."""
    names: list[str] = ["r"]
    parents: list[str | None] = [None]
    level = ["r"]
    for children in branching:
        level = [f"{name}.{i:03d}" for name in level for i in range(children)]
        names += level
        parents += [name.rpartition(".")[0] for name in level]
    return RegionTree.from_table(names, parents)


def noisy_table(
    rng: np.random.Generator, tree: RegionTree, sizes: int, *, groups: int, scale: float
) -> tuple[Int, int]:
    """Heavy-tailed true counts with double-geometric noise at every region, and the true G."""
    profile = np.arange(1, sizes + 1) ** -2.0
    shares = rng.pareto(1.2, len(tree.leaves)) + 0.1
    truth = np.zeros((tree.regions, sizes), dtype=np.int64)
    mean = groups * np.outer(shares / shares.sum(), profile / profile.sum())
    truth[tree.leaves] = rng.poisson(mean)
    tree.aggregate(truth)
    stop = 1 - np.exp(-1 / scale)
    noise = rng.geometric(stop, truth.shape) - rng.geometric(stop, truth.shape)
    return truth + noise, int(truth[0].sum())


def objective(tree: RegionTree, noisy: Int, counts: Int, weights: Sequence[int]) -> int:
    gaps = counts.astype(object) - noisy.astype(object)
    squares = (gaps * gaps).sum(axis=1).tolist()
    return sum(
        weights[level] * part for level, part in zip(tree.level.tolist(), squares, strict=True)
    )


def is_feasible(tree: RegionTree, counts: Int, groups: int) -> bool:
    return bool(
        (counts >= 0).all()
        and (tree.children_sums(counts) == counts).all()
        and counts[0].sum() == groups
    )


def brute_force(tree: RegionTree, noisy: Int, groups: int, weights: Sequence[int]) -> int:
    """The least objective over every way of placing the groups in cells of leaves."""
    leaves, sizes = tree.leaves, noisy.shape[1]
    cells = len(leaves) * sizes
    best: int | None = None
    # Bars between stars: each choice of bar positions is one way of placing the groups.
    for bars in itertools.combinations(range(groups + cells - 1), cells - 1):
        edges = (-1, *bars, groups + cells - 1)
        placed = [b - a - 1 for a, b in itertools.pairwise(edges)]
        counts = np.zeros_like(noisy)
        counts[leaves] = np.array(placed).reshape(len(leaves), sizes)
        tree.aggregate(counts)
        cost = objective(tree, noisy, counts, weights)
        best = cost if best is None else min(best, cost)
    assert best is not None
    return best


def linear_program(tree: RegionTree, noisy: Int, groups: int, weights: Sequence[int]) -> int:
    """The same by HiGHS: a network with one arc of unit capacity for each marginal cost.

    The k-th unit of a cell costs w (2 k − 1 − 2 n), which grows with k, so that units fill in
    order; the constraints are a network matrix, so that a vertex is integral.
    """
    import highspy

    regions, sizes = noisy.shape
    cells = regions * sizes
    units = np.arange(1, groups + 1)
    weight = np.array(weights)[tree.level]
    costs = weight[:, None, None] * (2 * units[None, None, :] - 1 - 2 * noisy[:, :, None])
    rows: list[list[int]] = []
    signs: list[list[float]] = []
    for region in np.flatnonzero(~tree.is_leaf).tolist():
        children = range(tree.first_child[region], tree.first_child[region + 1])
        for size in range(sizes):
            plus = [c * sizes + size for c in children]
            rows.append([*plus, region * sizes + size])
            signs.append([1.0] * len(plus) + [-1.0])
    rows.append(list(range(sizes)))
    signs.append([1.0] * sizes)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = cells * groups, len(rows)
    lp.col_cost_ = costs.reshape(-1).astype(float)
    lp.col_lower_, lp.col_upper_ = np.zeros(lp.num_col_), np.ones(lp.num_col_)
    bounds = np.zeros(len(rows))
    bounds[-1] = groups
    lp.row_lower_ = lp.row_upper_ = bounds
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    index = [np.add.outer(np.array(row) * groups, np.arange(groups)).reshape(-1) for row in rows]
    value = [np.repeat(sign, groups) for sign in signs]
    lp.a_matrix_.start_ = np.cumsum([0] + [len(part) for part in index])
    lp.a_matrix_.index_ = np.concatenate(index)
    lp.a_matrix_.value_ = np.concatenate(value)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.passModel(lp)
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    constant = objective(tree, noisy, np.zeros_like(noisy), weights)
    return constant + round(solver.getInfo().objective_function_value)
