"""Compile every kernel ahead of time: ``python -m pgsr_core.solvers.compile``.

Kernels are compiled on their first call and cached on disk. Doing so when the software is set up
spares the first release about a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from multiprocessing import get_context

import numpy as np

from pgsr_core.evaluation.kuo import matched_from_the_root
from pgsr_core.evaluation.matching import least_absolute_fit, pool_rising
from pgsr_core.hierarchy import RegionTree
from pgsr_core.margins.intervals import confidence_intervals
from pgsr_core.margins.simulation import typical_half_widths
from pgsr_core.mechanisms import Mechanism
from pgsr_core.noise.fast_exact import FastExactSampler
from pgsr_core.postprocessing.protocol import PublicFacts, Query
from pgsr_core.solvers import cpwl
from pgsr_core.solvers.isotonic import isotonic_integers
from pgsr_core.solvers.projection import project, round_consistently
from pgsr_core.solvers.shrinkage import shrink


def compile_consistency() -> None:
    """The CPWL solver and its certificate."""
    tree, noisy = _example()
    counts = cpwl.solve(tree, noisy, groups=50).counts
    cpwl.certify(tree, noisy, counts, groups=50)


def compile_cumulative() -> None:
    """Isotonic fits, the global projection and its rounding."""
    tree, noisy = _example()
    groups = tree.aggregate(np.where(tree.is_leaf, 10, 0))
    isotonic_integers(noisy, upper=groups)
    total = int(groups[0])
    fitted = project(tree, noisy, groups=total, groups_by_region=groups).values
    round_consistently(tree, fitted, groups=total, groups_by_region=groups)


def compile_shrinkage() -> None:
    """The estimates that are projected, with public totals and without."""
    tree, noisy = _example()
    groups = tree.aggregate(np.where(tree.is_leaf, 10, 0))
    for by_region in (groups, None):
        shrink(
            tree,
            noisy,
            groups=int(groups[0]),
            groups_by_region=by_region,
            scales=[2.0] * tree.levels,
        )


def compile_noise() -> None:
    """The sampler `fast-exact`."""
    FastExactSampler().add_noise(np.zeros(1, dtype=np.int64), scale=Fraction(1))


def compile_margins() -> None:
    """Confidence intervals and the simulation of typical errors, of either query."""
    tree, noisy = _example()
    facts = PublicFacts(tree, 1, noisy.shape[1], 50, None, (Fraction(2),) * tree.levels)
    counts = tree.aggregate(np.where(tree.is_leaf[:, None], np.abs(noisy), 0))
    for query in Query:
        confidence_intervals(query, facts, noisy, counts)
    nothing = Mechanism("", "", Query.COUNTS, ())
    typical_half_widths(nothing, facts, counts, seed="", repetitions=1)


def compile_peers() -> None:
    """The fits and the matching of the peers in evaluations."""
    tree, noisy = _example()
    counts = tree.aggregate(np.where(tree.is_leaf[:, None], np.abs(noisy), 0))
    least_absolute_fit(noisy, counts.sum(axis=1))
    pool_rising(noisy[0], noisy[1].copy(), noisy[2].copy(), -1)
    matched_from_the_root(tree, counts, np.ones(tree.regions))


COMPILERS: tuple[Callable[[], None], ...] = (
    compile_consistency,
    compile_cumulative,
    compile_shrinkage,
    compile_noise,
    compile_margins,
    compile_peers,
)


def compile_kernels() -> None:
    """Compile all, each group in a process of its own."""
    with ProcessPoolExecutor(len(COMPILERS), mp_context=get_context("spawn")) as pool:
        for done in [pool.submit(compiler) for compiler in COMPILERS]:
            done.result()


def _example() -> tuple[RegionTree, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    """A ragged tree with pools, inner regions and noise: enough to reach every kernel."""
    names = ["root", "a", "b", "c", *(f"a{i}" for i in range(4)), *(f"b{i}" for i in range(3))]
    parents = [None, *["root"] * 3, *["a"] * 4, *["b"] * 3]
    tree = RegionTree.from_table(names, parents)
    noisy = np.random.default_rng(1).integers(-20, 20, (tree.regions, 70))
    return tree, noisy.astype(np.int64)


if __name__ == "__main__":
    compile_kernels()
