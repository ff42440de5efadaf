"""Slow, obvious twins of the solvers for attribute tables, and random problems for them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.attribute_tables.schema import Schema, schema

Real = NDArray[np.float64]
TREES = ("lone", "chain", "flat", "ragged", "ragged", "ragged")


class Problem(NamedTuple):
    """Regions, tables, measurements (regions × cells each) and variances (regions × tables)."""

    tree: RegionTree
    schema: Schema
    measured: list[Real]
    variances: Real
    truth: Real


def random_tree(rng: np.random.Generator, regions: int, shape: str = "ragged") -> RegionTree:
    names = [f"r{place:03d}" for place in range(1 if shape == "lone" else regions)]
    above = {"chain": lambda p: p - 1, "flat": lambda _: 0}.get(shape)
    parents = [
        names[above(place) if above else int(rng.integers(0, place))]
        for place in range(1, len(names))
    ]
    return RegionTree.from_table(names, [None, *parents])


def random_schema(rng: np.random.Generator) -> Schema:
    attributes = int(rng.integers(1, 4))
    domains = rng.integers(1, 4, attributes).tolist()
    subsets = [[a for a in range(attributes) if mask >> a & 1] for mask in range(2**attributes)]
    if rng.random() < 0.3:
        chosen = [[], *([a] for a in range(attributes)), list(range(attributes))]
        chosen = [one for p, one in enumerate(chosen) if one not in chosen[:p]]
    else:
        picks = rng.permutation(len(subsets))[: rng.integers(1, len(subsets) + 1)]
        chosen = [subsets[pick] for pick in picks]
    return schema(domains, chosen)


def random_problem(
    rng: np.random.Generator, *, gaps: bool = True, public: bool = True, mean: float = 4.0
) -> Problem:
    """A ragged tree, overlapping and incomplete tables, gaps and public totals."""
    tree = random_tree(rng, int(rng.integers(1, 9)), TREES[rng.integers(len(TREES))])
    tables = random_schema(rng)
    leaves = rng.poisson(rng.gamma(0.5, 2 * mean, (tree.regions, tables.cells)))
    truth = tree.aggregate(np.where(tree.is_leaf[:, None], leaves, 0))
    shape = (tree.regions, len(tables.tables))
    variances = rng.uniform(0.5, 9.0, (tree.levels, shape[1]))[tree.level]
    if gaps and rng.random() < 0.5:
        variances = np.where(rng.random(shape) < 0.3, np.inf, variances)
    if public and () in tables.tables and rng.random() < 0.5:
        total = tables.tables.index(())
        variances[rng.random(tree.regions) < 0.4, total] = 0.0
    measured = []
    for place, table in enumerate(tables.tables):
        exact = tables.margin(truth, tables.full, table)
        noise = variances[:, place, None]
        noise = np.where(np.isinf(noise), 1e3, np.sqrt(noise))
        measured.append(np.round(exact + noise * rng.normal(size=exact.shape)))
    return Problem(tree, tables, measured, variances, truth)


def leaves_below(tree: RegionTree) -> Real:
    """Regions × leaves: 1 where a leaf is, or lies below, the region."""
    design = np.zeros((tree.regions, len(tree.leaves)))
    for column, leaf in enumerate(tree.leaves):
        region = int(leaf)
        while region >= 0:
            design[region, column] = 1.0
            region = int(tree.parent[region])
    return design


def design_of(problem: Problem, table: tuple[int, ...]) -> Real:
    """Regions × the table's cells × (leaves · all cells)."""
    tree, tables = problem.tree, problem.schema
    identity = np.eye(tables.cells)
    margin = tables.margin(identity, tables.full, table).T
    wide = np.einsum("rl,sc->rslc", leaves_below(tree), margin)
    return wide.reshape(tree.regions, len(margin), -1)


def _rows(problem: Problem, wanted: NDArray[np.bool_]) -> tuple[Real, Real, Real]:
    """Design, measurements and standard deviations of the wanted regions × tables."""
    unknowns = len(problem.tree.leaves) * problem.schema.cells
    designs, values, deviations = [np.zeros((0, unknowns))], [np.zeros(0)], [np.zeros(0)]
    for place, table in enumerate(problem.schema.tables):
        design = design_of(problem, table)
        for region in np.flatnonzero(wanted[:, place]):
            designs.append(design[region])
            values.append(problem.measured[place][region])
            noise = np.sqrt(problem.variances[region, place])
            deviations.append(np.full(len(design[region]), noise))
    return np.vstack(designs), np.concatenate(values), np.concatenate(deviations)


def dense_system(problem: Problem) -> tuple[Real, Real, Real, Real]:
    """Scaled rows with noise, and the equalities that public tables are."""
    noisy = np.isfinite(problem.variances) & (problem.variances > 0)
    design, values, deviations = _rows(problem, noisy)
    fixed, fixed_values, _ = _rows(problem, problem.variances == 0)
    return design / deviations[:, None], values / deviations, fixed, fixed_values


def null_space(matrix: Real, unknowns: int) -> Real:
    if not len(matrix):
        return np.eye(unknowns)
    _, sizes, right = np.linalg.svd(matrix)
    rank = int((sizes > 1e-9).sum())
    return right[rank:].T


def dense_fit(problem: Problem) -> tuple[list[Real], NDArray[np.bool_], Real]:
    """Each table by constrained weighted least squares, where determined, and cell variances."""
    design, values, fixed, fixed_values = dense_system(problem)
    unknowns = design.shape[1]
    start = (
        np.linalg.lstsq(fixed, fixed_values, rcond=None)[0] if len(fixed) else np.zeros(unknowns)
    )
    free = null_space(fixed, unknowns)
    seen = (design @ free).T @ (design @ free)
    sizes, vectors = np.linalg.eigh(seen)
    inverse = (vectors * np.where(sizes > 1e-9, 1 / np.maximum(sizes, 1e-9), 0.0)) @ vectors.T
    leaves = start + free @ (inverse @ ((design @ free).T @ (values - design @ start)))
    unseen = null_space(np.vstack([design, fixed]), unknowns)
    estimates, known, left = [], [], []
    for table in problem.schema.tables:
        wide = design_of(problem, table)
        estimates.append(wide @ leaves)
        known.append((np.abs(wide @ unseen) < 1e-7).all(axis=(1, 2)))
        covariance = wide @ free @ inverse
        left.append(np.einsum("rsu,rsu->rs", covariance, wide @ free).mean(axis=1))
    return estimates, np.stack(known, axis=1), np.stack(left, axis=1)


def generic_optimum(problem: Problem, possible: NDArray[np.bool_]) -> Real:
    """The leaves' non-negative optimum by a generic interior-point solver."""
    import clarabel
    from scipy import sparse

    design, values, fixed, fixed_values = dense_system(problem)
    unknowns = design.shape[1]
    free = np.tile(possible, len(problem.tree.leaves))
    fixed = np.vstack([fixed, np.eye(unknowns)[~free]])
    fixed_values = np.concatenate([fixed_values, np.zeros((~free).sum())])
    rows = np.vstack([fixed, -np.eye(unknowns)[free]])
    right = np.concatenate([fixed_values, np.zeros(free.sum())])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(np.triu(design.T @ design)),
        -design.T @ values,
        sparse.csc_matrix(rows),
        right,
        [clarabel.ZeroConeT(len(fixed)), clarabel.NonnegativeConeT(int(free.sum()))],
        settings,
    )
    return np.array(solver.solve().x)


def objective(problem: Problem, leaves: Real) -> float:
    design, values, _, _ = dense_system(problem)
    return float(((design @ leaves.reshape(-1) - values) ** 2).sum() / 2)
