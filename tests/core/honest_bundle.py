"""A release made as the pipeline makes one: noise, the mechanism's steps, margins, all documents.

Large enough that too little noise can be told, and every number of it may be chosen, so that a
forger's bundle is as consistent as an honest one but for what is forged.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgsr_core.canonical import table_digest
from pgsr_core.hierarchy import RegionTree
from pgsr_core.margins.release import margins_of
from pgsr_core.mechanisms import MECHANISMS, Mechanism
from pgsr_core.postprocessing.protocol import PublicFacts, Query
from pgsr_core.scales import expected_absolute_noise
from pgsr_core.sensitivity import Neighbours, l1_sensitivity
from tasks.publication.facts import BundleFacts, StatedLevel
from tests.core.example_bundle import MARGIN_REPETITIONS, Draft, Rows, passed_checks

Int = NDArray[np.int64]
LARGEST_SIZE = 12
EPSILON = Fraction(3, 2)


def country(regions: int = 4, places: int = 3) -> RegionTree:
    below = [f"r{i}" for i in range(regions)]
    leaves = [(f"r{i}.{j}", f"r{i}") for i in range(regions - 1) for j in range(places)]
    names = ["country", *below, *(leaf for leaf, _ in leaves)]
    parents = [None, *["country"] * regions, *(parent for _, parent in leaves)]
    return RegionTree.from_table(names, parents)


@dataclass(frozen=True)
class Made:
    """A release: its draft, and the tables as arrays with their sizes."""

    draft: Draft
    tree: RegionTree
    groups: Int
    truth: Int
    arrays: dict[str, tuple[Int, range]]


def make(
    mechanism: str = "cumulative",
    *,
    epsilon: Fraction = EPSILON,
    drawn_with: Fraction | None = EPSILON,
    largest_contribution: int = 1,
    seed: int = 7,
    **stated: Any,
) -> Made:
    """Make a release.

    Args:
        mechanism: its name.
        epsilon: that is stated.
        drawn_with: the one that the noise is really drawn with; None draws none.
        largest_contribution: Z.
        seed: of truth and noise.
        stated: further facts of the bundle.
    """
    chosen, tree = MECHANISMS[mechanism], country()
    chance = np.random.default_rng(seed)
    truth = np.zeros((tree.regions, LARGEST_SIZE + 1), dtype=np.int64)
    truth[tree.leaves] = chance.integers(0, 60, size=(tree.leaves.size, LARGEST_SIZE + 1))
    truth = tree.aggregate(truth)
    groups = truth.sum(axis=1)
    sensitivity = l1_sensitivity(
        chosen.query,
        neighbours=Neighbours.ADD_REMOVE,
        largest_contribution=largest_contribution,
        largest_size=LARGEST_SIZE,
    )
    scale = sensitivity * tree.levels / epsilon
    facts = PublicFacts(
        tree, 0, LARGEST_SIZE, int(groups[0]), groups, scales=(scale,) * tree.levels
    )
    measured = _measured(truth, chosen)
    if drawn_with is not None:
        stop = -np.expm1(-float(drawn_with / (sensitivity * tree.levels)))
        measured = measured + chance.geometric(stop, measured.shape)
        measured = measured - chance.geometric(stop, measured.shape)
    arrays, certificates = _processed(chosen, facts, measured)
    levels = tuple(
        StatedLevel(
            level=level + 1,
            regions=int(regions),
            cells=int(regions) * measured.shape[1],
            epsilon=epsilon / tree.levels,
            scale=scale,
            expected_absolute_noise=expected_absolute_noise(scale),
        )
        for level, regions in enumerate(np.diff(tree.level_start))
    )
    facts_of_bundle = BundleFacts(
        **{
            "product": "household-sizes",
            "release": "2026-Q3",
            "published_on": date(2026, 10, 1),
            "code_version": version("pgsr"),
            "simulation": False,
            "population": "residents-2026",
            "unit_of_privacy": "person",
            "epsilon": epsilon,
            "levels": levels,
            "neighbours": Neighbours.ADD_REMOVE,
            "sensitivity": sensitivity,
            "query": chosen.query,
            "mechanism": chosen.name,
            "notation": chosen.notation,
            "sampler": "opendp",
            "units_from_data": False,
            "groups": int(groups[0]),
            "smallest_size": 0,
            "largest_size": LARGEST_SIZE,
            "largest_contribution": largest_contribution,
            "keeps_region_totals": chosen.keeps_region_totals,
            "spent_on_population": max(epsilon, Fraction(1)),
            "budget": Fraction(4),
            "checks": passed_checks(public=True, totals=chosen.keeps_region_totals),
            "certificates": {**certificates, "margins": {"repetitions": MARGIN_REPETITIONS}},
            "digests": {name: digest(tree, name, *made) for name, made in arrays.items()},
            "margin_repetitions": MARGIN_REPETITIONS,
            **stated,
        }
    )
    draft = Draft(facts=facts_of_bundle, provenance={}, tables={}).state()
    draft.tables = {
        "regions": [
            [name, tree.names[tree.parent[row]] if row else None, *_of_region(tree, row, groups)]
            for row, name in enumerate(tree.names)
        ]
    }
    made = Made(draft, tree, groups, truth, arrays)
    for table in ("group_sizes", "measurements", "margins", "margins_by_level"):
        draft.tables[table] = rows_of(made, table)
    return made


def _of_region(tree: RegionTree, row: int, groups: Int) -> list[Any]:
    return [int(tree.level[row]) + 1, "", int(groups[row])]


def _measured(truth: Int, mechanism: Mechanism) -> Int:
    if mechanism.query is Query.COUNTS:
        return truth
    return np.cumsum(truth[:, ::-1], axis=1)[:, ::-1][:, 1:]


def _processed(
    mechanism: Mechanism, facts: PublicFacts, measured: Int
) -> tuple[dict[str, tuple[Int, range]], dict[str, Any]]:
    sizes = facts.measured_sizes(mechanism.query)
    arrays, certificates = {"measurements": (measured, sizes)}, {}
    values = measured
    for step in mechanism.steps:
        result = step(values, facts)
        values, certificates[step.name] = result.values, dict(result.certificate)
        last = step is mechanism.steps[-1]
        arrays["group_sizes" if last else step.name] = (values, facts.sizes if last else sizes)
    margins = margins_of(mechanism, facts, measured, values, repetitions=MARGIN_REPETITIONS)
    arrays["margins"] = (margins.bounds, facts.sizes)
    arrays["margins_by_level"] = (margins.half_widths, facts.sizes)
    return arrays, certificates


def digest(tree: RegionTree, table: str, values: Int, sizes: range) -> str:
    return table_digest(values, table=table, tree_digest=tree.digest, sizes=sizes)


def rows_of(made: Made, table: str) -> Rows:
    values, sizes = made.arrays[table]
    stack = values if values.ndim == 3 else values[None]
    scales = [float(level.scale) for level in made.draft.facts.levels]
    rows: Rows = []
    for row in range(stack.shape[1]):
        level = row + 1 if table == "margins_by_level" else int(made.tree.level[row]) + 1
        named = [] if table == "margins_by_level" else [made.tree.names[row]]
        for column, size in enumerate(sizes):
            more = [scales[level - 1]] if table == "measurements" else []
            rows.append([level, *named, size, *stack[:, row, column].tolist(), *more])
    return rows


def replace_table(made: Made, table: str, values: Int) -> None:
    """Publish another table, with its digest everywhere."""
    made.arrays[table] = (values, made.arrays[table][1])
    made.draft.tables[table] = rows_of(made, table)
    digests = {name: digest(made.tree, name, *array) for name, array in made.arrays.items()}
    made.draft.state(digests=digests)
