"""``python -m benchmarks.attribute_tables``: ratios of the solvers for attribute tables, one run.

One thread. Every ratio compares things that were timed in turns, so that a slow minute of a shared
machine hits both sides. `--small` shrinks the large shapes.
"""

from __future__ import annotations

import argparse
import gc
import itertools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import best_seconds, plain_copy, threads
from pgsr_core.hierarchy import RegionTree
from pgsr_core.solvers.attribute_tables.closed_form import least_squares
from pgsr_core.solvers.attribute_tables.fgmc import fgmc, paper_tables
from pgsr_core.solvers.attribute_tables.non_negative import non_negative
from pgsr_core.solvers.attribute_tables.problem import make_problem
from pgsr_core.solvers.attribute_tables.schema import Schema, schema
from pgsr_core.solvers.attribute_tables.top_first import top_first

Int = NDArray[np.int64]
LONE = RegionTree.from_table(["all"], [None])
SHAPES = {2: (3200, 3125), 4: (56, 56, 57, 56), 8: (8, 8, 8, 8, 7, 7, 7, 7)}
TRACT_DOMAINS = (2, 7, 23)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line for each ratio, with the bar."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attribute_tables")
    parser.add_argument("--small", action="store_true", help="a tenth of the large shapes")
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args(arguments)
    with threads(1):
        for step in (_one_region, _tracts, _counties, _growth):
            step(10 if options.small else 1, options.repetitions)
            gc.collect()


def _row(name: str, ratio: float, bar: str) -> None:
    print(f"{name:<72} {ratio:8.2f}   {bar}", flush=True)


def _one_region(smaller: int, repetitions: int) -> None:
    rng = np.random.default_rng(1)
    for attributes, domains in SHAPES.items():
        small = (domains[0] // smaller, *domains[1:]) if attributes == 2 else domains
        tables = schema(small, paper_tables(attributes))
        measured = [rng.integers(0, 500, (1, size)) for size in tables.sizes]
        calls = {
            "copy": plain_copy(measured[-1]),
            "closed": _closed(LONE, tables, measured),
            "fgmc": lambda t=tables, m=measured: fgmc(t, m),
        }
        best = best_seconds(calls, repetitions=repetitions)
        name = f"one region, {tables.cells} cells, k = {attributes}"
        _row(f"{name}: closed form / copy", best["closed"] / best["copy"], "≤ 2")
        bar = {2: "≥ 5", 4: "≥ 13", 8: "≥ 55"}[attributes]
        _row(f"{name}: FGMC / closed form", best["fgmc"] / best["closed"], bar)


def _tracts(smaller: int, repetitions: int) -> None:
    tree = _tree(449_814 // smaller, (51, 3142))
    tables = schema(TRACT_DOMAINS, paper_tables(3))
    measured = _measured(tree, tables, mean=3.0, scale=10.0)
    calls = {"copy": plain_copy(measured[-1]), "closed": _closed(tree, tables, measured)}
    best = best_seconds(calls, repetitions=repetitions)
    name = f"{tree.regions} regions × {tables.cells} cells: closed form / copy"
    _row(name, best["closed"] / best["copy"], "≤ 6")
    print(f"    closed form {best['closed']:.2f} s, copy {best['copy']:.2f} s")


def _counties(_: int, repetitions: int) -> None:
    tree = _tree(3142, (51,))
    tables = schema((6, 2, 2), paper_tables(3))
    measured = _measured(tree, tables, mean=3000.0, scale=15.0)
    noise = np.full((tree.levels, len(tables.tables)), 2 * 15.0**2)
    problem = make_problem(tree, tables, measured, variances=noise)
    calls = {
        "closed": _closed(tree, tables, measured),
        "non-negative": lambda: non_negative(problem),
        "top-first": lambda: top_first(problem),
    }
    best = best_seconds(calls, repetitions=repetitions)
    rounds = non_negative(problem).rounds
    name = f"3,142 counties × 24, scale 15: non-negative ({rounds} rounds) / closed form"
    _row(name, best["non-negative"] / best["closed"], "≤ 60")
    _row("… top-first / closed form", best["top-first"] / best["closed"], "")


def _growth(smaller: int, repetitions: int) -> None:
    """Exponents of the time in regions, in cells and in the number of tables."""
    pairs = [[a, b] for a in range(6) for b in range(a)]
    shapes: dict[str, list[tuple[int, Schema]]] = {
        "regions": [(r, schema((4, 3, 2), paper_tables(3))) for r in (40_000, 400_000)],
        "cells": [(2_000, schema((c, 4, 5), paper_tables(3))) for c in (8, 80)],
        "tables": [
            (4_000, schema((2,) * 6, [[], [0, 1, 2, 3, 4, 5], *pairs[:n]])) for n in (3, 15)
        ],
    }
    for what, ((fewer, first), (more, second)) in shapes.items():
        calls = {}
        for name, regions, tables in (("first", fewer, first), ("second", more, second)):
            tree = _tree(regions // smaller, (20, 200))
            measured = _measured(tree, tables, mean=3.0, scale=10.0)
            calls[name] = _closed(tree, tables, measured)
        best = best_seconds(calls, repetitions=repetitions)
        factor = {
            "regions": more / fewer,
            "cells": second.cells / first.cells,
            "tables": len(second.tables) / len(first.tables),
        }[what]
        exponent = np.log(best["second"] / best["first"]) / np.log(factor)
        _row(f"growth in {what}: exponent of the closed form", float(exponent), "≤ 1.1")


def _closed(tree: RegionTree, tables: Schema, measured: list[Int]) -> Callable[[], object]:
    noise = np.full((tree.levels, len(tables.tables)), 200.0)
    out = np.zeros((tree.regions, tables.cells))
    return lambda: least_squares(tree, tables, measured, variances=noise, out=out)


def _tree(leaves: int, inner: tuple[int, ...]) -> RegionTree:
    """Levels of the given sizes below a root, children shared out evenly."""
    sizes = [1, *inner, leaves]
    parent, start = [np.array([-1])], [0]
    for above, size in itertools.pairwise(sizes):
        parent.append(start[-1] + np.arange(size) * above // size)
        start.append(start[-1] + above)
    parents = np.concatenate(parent)
    first_child = np.searchsorted(parents[1:], np.arange(len(parents) + 1)) + 1
    first_child[-1] = len(parents)
    starts = np.cumsum([0, *sizes])
    names = tuple(map(str, range(len(parents))))
    return RegionTree(names, parents, first_child.astype(np.int64), starts)


def _measured(tree: RegionTree, tables: Schema, *, mean: float, scale: float) -> list[Int]:
    rng = np.random.default_rng(2)
    cells = np.zeros((tree.regions, tables.cells), dtype=np.int64)
    shape = (len(tree.leaves), tables.cells)
    cells[tree.leaves] = rng.gamma(0.3, mean / 0.3, shape).astype(np.int64)
    tree.aggregate(cells)
    found = []
    for table in tables.tables:
        exact = tables.margin(cells, tables.full, table)
        chance = 1 - np.exp(-1 / scale)
        exact = exact + rng.geometric(chance, exact.shape) - rng.geometric(chance, exact.shape)
        found.append(exact)
    return found


if __name__ == "__main__":
    main()
