"""``python -m benchmarks.margins``: how often margins of error hold a truth that is known here.

Populations are made up (or counted: four places of Virginia), released many times with seeded
noise, and every true count is held against its interval. Rows are by level and by true count,
since an average over all cells would hide the few that are not zero.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from pgsr_core.hierarchy import RegionTree
from pgsr_core.margins.intervals import confidence_intervals
from pgsr_core.margins.noise_sums import tail_bound
from pgsr_core.margins.simulation import typical_half_widths
from pgsr_core.mechanisms import MECHANISMS, Mechanism
from pgsr_core.noise.seeded import SeededSampler
from pgsr_core.postprocessing.protocol import PublicFacts, Query
from pgsr_core.postprocessing.steps import cumulative_from_counts
from pgsr_core.sensitivity import Neighbours, l1_sensitivity
from pgsr_core.synthesis.options import Shape
from pgsr_core.synthesis.populations import Population
from pgsr_core.synthesis.shapes import draw_population
from tasks.synthesis import read_histogram

Int = NDArray[np.int64]
ROOT = Path(__file__).parents[1]
VIRGINIA = ROOT / "tests" / "fixtures" / "virginia2000" / "household_size_blockgroup.csv"
DEFAULT_OUTPUT = Path(__file__).with_name("margins.json")
STRATA = {"0": (0, 0), "1–3": (1, 3), "4–20": (4, 20), "over 20": (21, 2**62)}
EPSILONS = ("0.1", "0.5", "1", "2")
LEAST_COVERAGE = {90: 0.85, 95: 0.90}
ENOUGH_CELLS = 300
"""Fewer cells than this say too little about a share to hold it to a bar."""
NAIVE_REPETITIONS = 40
CELLS_A_CASE = 1_000_000
"""Small populations are released more often, so that small strata say something as well."""


@dataclass(frozen=True)
class Truth:
    """A population: groups by region and size, from size 0 on."""

    name: str
    tree: RegionTree
    counts: Int


@dataclass(frozen=True)
class Case:
    """How a truth is released."""

    mechanism: Mechanism
    epsilon: str
    units_are_public: bool


@dataclass(frozen=True)
class Release:
    """A release of a truth: what is published of it, and what is not."""

    case: Case
    facts: PublicFacts
    truth: Int
    measurements: Int
    counts: Int


def truths() -> Iterator[Truth]:
    """The populations, real and made up."""
    levels = ["state", "county", "tract", "bg"]
    yield truth_of("Virginia", read_histogram(VIRGINIA, level_columns=levels))
    yield truth_of("census", census(people=3_000_000, regions=(20, 400), largest=200))
    taxis = draw_population(
        Shape.TAXI, people=8_000_000, seed=1, regions_by_level=(6, 100), max_size=2_000
    )
    yield truth_of("taxi", taxis)
    yield spikes()


def census(*, people: int, regions: tuple[int, ...], largest: int) -> Population:
    """Households, with a heavy tail of group quarters."""
    return draw_population(
        Shape.US, people=people, seed=1, regions_by_level=regions, max_size=largest
    )


def truth_of(name: str, population: Population) -> Truth:
    """Count a population's groups."""
    table = population.regions
    parents = [None if row < 0 else table.ids[row] for row in table.parents]
    tree = RegionTree.from_table(table.ids, parents)
    counts = np.zeros((tree.regions, population.max_size + 1), dtype=np.int64)
    for block in population.blocks():
        leaf = tree.index[table.leaf_ids[block.leaf]]
        counts[leaf] += np.bincount(block.sizes, minlength=counts.shape[1])
    return Truth(name, tree, tree.aggregate(counts))


def spikes() -> Truth:
    """Nothing smooth: a few round sizes hold all groups, and most regions have hardly any."""
    rng = np.random.default_rng(1)
    leaves = [f"leaf{i:03}" for i in range(200)]
    inner = [f"inner{i}" for i in range(8)]
    parents = [None, *["root"] * 8, *(f"inner{i % 8}" for i in range(200))]
    tree = RegionTree.from_table(["root", *inner, *leaves], parents)
    counts = np.zeros((tree.regions, 301), dtype=np.int64)
    sizes = np.array([0, 1, 2, 10, 25, 50, 100, 200, 300])
    means = rng.lognormal(1.0, 1.5, (len(leaves), 1)) * rng.lognormal(0.0, 1.0, len(sizes))
    counts[np.ix_(tree.leaves, sizes)] = rng.poisson(means)
    return Truth("spikes", tree, tree.aggregate(counts))


def released(truth: Truth, case: Case, *, seed: int) -> Release:
    """Release a truth with seeded noise."""
    tree, mechanism = truth.tree, case.mechanism
    counts = truth.counts if case.units_are_public else truth.counts[:, 1:]
    counts = np.ascontiguousarray(counts)
    smallest = 0 if case.units_are_public else 1
    largest = smallest + counts.shape[1] - 1
    sensitivity = l1_sensitivity(
        mechanism.query,
        neighbours=Neighbours.ADD_REMOVE,
        largest_contribution=1,
        largest_size=largest,
    )
    groups = counts.sum(axis=1)
    facts = PublicFacts(
        tree=tree,
        smallest_size=smallest,
        largest_size=largest,
        groups=int(groups[0]),
        groups_by_region=groups if case.units_are_public else None,
        scales=(sensitivity * tree.levels / Fraction(case.epsilon),) * tree.levels,
    )
    measured = counts
    if mechanism.query is Query.CUMULATIVE:
        measured = cumulative_from_counts(counts, largest_size=largest)
    sampler = SeededSampler(np.random.default_rng([seed, *case.epsilon.encode()]))
    measurements = sampler.add_noise(measured, scale=facts.scales[0])
    return Release(case, facts, counts, measurements, processed(mechanism, measurements, facts))


def processed(mechanism: Mechanism, measurements: Int, facts: PublicFacts) -> Int:
    """Run the steps of a mechanism."""
    values = measurements
    for step in mechanism.steps:
        values = step(values, facts).values
    return values


def intervals(release: Release) -> Int:
    """The product's intervals: one table for each of BOUNDS."""
    return confidence_intervals(
        release.case.mechanism.query, release.facts, release.measurements, release.counts
    )


def naive_intervals(release: Release, *, seed: int = 1) -> Int:
    """What a simulation from the released table says of each cell by itself, at 90%."""
    facts, mechanism, counts = release.facts, release.case.mechanism, release.counts
    if facts.groups_by_region is not None:
        facts = replace(facts, groups_by_region=counts.sum(axis=1))
    measured = counts
    if mechanism.query is Query.CUMULATIVE:
        measured = cumulative_from_counts(counts, largest_size=facts.largest_size)
    sampler = SeededSampler(np.random.default_rng(seed))
    errors = np.empty((NAIVE_REPETITIONS, *counts.shape), dtype=np.int32)
    for repetition in range(NAIVE_REPETITIONS):
        noisy = sampler.add_noise(measured, scale=facts.scales[0])
        errors[repetition] = processed(mechanism, noisy, facts) - counts
    low, high = np.quantile(errors, (0.05, 0.95), axis=0)
    lower = np.minimum(counts, np.floor(counts - high)).astype(np.int64)
    upper = np.maximum(counts, np.ceil(counts - low)).astype(np.int64)
    return np.stack([np.maximum(lower, 0), upper])


def plain_width(release: Release) -> Int:
    """Width of count ± the 90% quantile of a cell's raw noise, cut at 0."""
    terms = 2 if release.case.mechanism.query is Query.CUMULATIVE else 1
    reach = tail_bound(release.facts.scales[0], terms, Fraction(5, 100))
    return reach + np.minimum(release.counts, reach)


@dataclass
class Tally:
    """Sums over the cells of one level and stratum."""

    cells: int = 0
    held_90: int = 0
    held_95: int = 0
    width_90: int = 0
    width_95: int = 0
    plain: int = 0
    naive_cells: int = 0
    naive_held: int = 0
    naive_width: int = 0

    def row(self) -> dict[str, float | int | None]:
        cells, naive = max(1, self.cells), self.naive_cells
        return {
            "cells": self.cells,
            "coverage_90": round(self.held_90 / cells, 4),
            "coverage_95": round(self.held_95 / cells, 4),
            "width_90": round(self.width_90 / cells, 2),
            "width_95": round(self.width_95 / cells, 2),
            "plain_width_90": round(self.plain / cells, 2),
            "naive_coverage_90": round(self.naive_held / naive, 4) if naive else None,
            "naive_width_90": round(self.naive_width / naive, 2) if naive else None,
        }


Tallies = dict[tuple[int, str], Tally]


def tally(release: Release, bounds: Int, naive: Int | None, tallies: Tallies) -> None:
    """Add a release's cells to the tallies of their levels and strata."""
    truth, plain, starts = release.truth, plain_width(release), release.facts.tree.level_start
    held = [(bounds[i] <= truth) & (truth <= bounds[i + 1]) for i in (0, 2)]
    for level in range(len(starts) - 1):
        rows = slice(starts[level], starts[level + 1])
        for stratum, (least, most) in STRATA.items():
            chosen = (truth[rows] >= least) & (truth[rows] <= most)
            found = tallies.setdefault((level + 1, stratum), Tally())
            found.cells += int(chosen.sum())
            found.held_90 += int(held[0][rows][chosen].sum())
            found.held_95 += int(held[1][rows][chosen].sum())
            found.width_90 += int((bounds[1] - bounds[0])[rows][chosen].sum())
            found.width_95 += int((bounds[3] - bounds[2])[rows][chosen].sum())
            found.plain += int(plain[rows][chosen].sum())
            if naive is not None:
                inside = (naive[0] <= truth) & (truth <= naive[1])
                found.naive_cells += int(chosen.sum())
                found.naive_held += int(inside[rows][chosen].sum())
                found.naive_width += int((naive[1] - naive[0])[rows][chosen].sum())


def typical_coverage(release: Release, *, repetitions: int, seed: str) -> list[tuple[float, ...]]:
    """For each level, which share of its cells is within the typical half-widths."""
    half_widths = typical_half_widths(
        release.case.mechanism, release.facts, release.counts, seed=seed, repetitions=repetitions
    )
    errors, starts = np.abs(release.counts - release.truth), release.facts.tree.level_start
    return [
        tuple(
            float(np.mean(errors[starts[level] : starts[level + 1]] <= half[level]))
            for half in half_widths
        )
        for level in range(len(starts) - 1)
    ]


def run(
    truth: Truth, mechanism: Mechanism, epsilon: str, *, quick: bool
) -> Iterator[dict[str, object]]:
    """Release a truth many times, with and without public units; report levels and strata."""
    tallies: Tallies = {}
    typical = []
    releases = 3 if quick else min(200, max(12, CELLS_A_CASE // truth.counts.size))
    for public in (True, False):
        case = Case(mechanism, epsilon, public)
        for number in range(releases):
            release = released(truth, case, seed=number)
            naive = naive_intervals(release) if number == 0 else None
            tally(release, intervals(release), naive, tallies)
            if number < (2 if truth.counts.size > CELLS_A_CASE // 100 else 20):
                repetitions = 4 if quick else 20
                typical.append(typical_coverage(release, repetitions=repetitions, seed=str(number)))
    within = np.mean(typical, axis=0)
    for (level, stratum), found in tallies.items():
        if found.cells:
            yield {
                "truth": truth.name,
                "mechanism": mechanism.name,
                "epsilon": epsilon,
                "level": level,
                "true_count": stratum,
                **found.row(),
                "level_within_typical_90": round(float(within[level - 1, 0]), 3),
                "level_within_typical_95": round(float(within[level - 1, 1]), 3),
            }


def missed(row: dict[str, object]) -> bool:
    """Whether a row with enough cells covers less than it must."""
    return number(row, "cells") >= ENOUGH_CELLS and any(
        number(row, f"coverage_{percent}") < least for percent, least in LEAST_COVERAGE.items()
    )


def number(row: dict[str, object], name: str) -> float:
    return float(str(row[name]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every case; exit code 1 if a stratum is covered less than it must be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.margins", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small case, few releases")
    parser.add_argument("--output", metavar="PATH", type=Path, default=DEFAULT_OUTPUT)
    options = parser.parse_args(arguments)
    chosen = iter(truths())
    rows: list[dict[str, object]] = []
    for truth in [next(chosen)] if options.quick else chosen:
        fast = [known for known in MECHANISMS.values() if known.requires is None]
        for mechanism in fast[: 1 if options.quick else None]:
            for epsilon in ("0.5",) if options.quick else EPSILONS:
                print(truth.name, mechanism.name, epsilon, file=sys.stderr, flush=True)
                rows += run(truth, mechanism, epsilon, quick=options.quick)
    write(rows, options.output)
    console = Console(width=None if sys.stdout.isatty() else 120)
    for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
        console.print(summary([row for row in rows if row["epsilon"] == epsilon], str(epsilon)))
    return 1 if any(missed(row) for row in rows) else 0


def write(rows: Sequence[dict[str, object]], path: Path) -> None:
    """One line a row: there are hundreds."""
    lines = [json.dumps(list(row.values()), ensure_ascii=False) for row in rows]
    columns = json.dumps(list(rows[0]))
    body = ",\n".join(lines)
    path.write_text(f'{{"columns": {columns},\n"rows": [\n{body}\n]}}\n')


def summary(rows: Sequence[dict[str, object]], epsilon: str) -> Table:
    """For each mechanism, population and true count: the least coverage, and mean widths."""
    shown = Table(
        title=f"Margins of error at ε = {epsilon}: least coverage of a level, mean widths"
    )
    for name in ("mechanism", "population", "true count"):
        shown.add_column(name)
    for name in ("cells", "90%", "95%", "width", "plain ±", "naive 90%", "naive width"):
        shown.add_column(name, justify="right")
    for key in dict.fromkeys(_key(row) for row in rows):
        known = [r for r in rows if _key(r) == key and number(r, "cells") >= ENOUGH_CELLS]
        if known:
            shown.add_row(*key, *_figures(known))
    return shown


def _key(row: dict[str, object]) -> tuple[str, str, str]:
    return str(row["mechanism"]), str(row["truth"]), str(row["true_count"])


def _figures(rows: Sequence[dict[str, object]]) -> Iterator[str]:
    weights = [number(row, "cells") for row in rows]
    yield f"{sum(weights):,.0f}"
    for name in ("coverage_90", "coverage_95"):
        yield f"{100 * min(number(row, name) for row in rows):.1f}"
    for name in ("width_90", "plain_width_90"):
        yield f"{np.average([number(row, name) for row in rows], weights=weights):.1f}"
    yield f"{100 * min(number(row, 'naive_coverage_90') for row in rows):.1f}"
    yield f"{np.average([number(row, 'naive_width_90') for row in rows], weights=weights):.1f}"


if __name__ == "__main__":
    sys.exit(main())
