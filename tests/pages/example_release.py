"""A small release made up in memory: facts and tables for a report, without a store."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from tasks.publication.facts import BundleFacts, StatedLevel
from tasks.publication.report.reading import Int, LevelSizes, ReportTables
from tests.tasks.test_publication_bundle import example_facts

REGIONS = 5
"""A root, two regions, and two more below the first of them."""


def example_release(
    *, sizes: range = range(4), names: Sequence[str | None] = (None,) * REGIONS, seed: int = 1
) -> tuple[BundleFacts, ReportTables]:
    """A release of random counts that add up, measured with noise."""
    rng = np.random.default_rng(seed)
    leaves = rng.poisson(9 / (1 + np.arange(len(sizes))), (3, len(sizes)))
    released = np.stack([leaves.sum(axis=0), leaves[1] + leaves[2], *leaves])
    cumulative = np.cumsum(released[:, :0:-1], axis=1)[:, ::-1]
    measured = cumulative + rng.integers(-9, 10, cumulative.shape)
    bounds = np.stack([released - released // 2, released + 3, released * 0, released + 5])
    levels = tuple(
        LevelSizes(level, regions, counts(released[rows]), int(released[0].sum()), widths(sizes))
        for level, regions, rows in ((1, 1, slice(0, 1)), (2, 2, slice(1, 3)), (3, 2, slice(3, 5)))
    )
    facts = example_facts(
        levels=tuple(
            StatedLevel(
                level.level,
                level.regions,
                level.regions * (len(sizes) - 1),
                Fraction(1, 6),
                Fraction(6),
                5.97,
            )
            for level in levels
        ),
        largest_size=sizes[-1],
        groups=int(released[0].sum()),
        certificates={"isotonic": {}, "cpwl": {}},
        margin_repetitions=100,
    )
    tables = ReportTables(
        ids=("top", "a", "b", "a1", "a2"),
        names=tuple(names),
        parents=np.array([-1, 0, 0, 1, 1]),
        region_levels=np.array([1, 2, 2, 3, 3]),
        public_groups=(None,) * REGIONS,
        released=released,
        measured=measured,
        fitted=np.maximum.accumulate(measured[:, ::-1], axis=1)[:, ::-1],
        bounds=bounds,
        levels=levels,
    )
    return facts, tables


def counts(rows: Int) -> tuple[int, ...]:
    return tuple(rows.sum(axis=0).tolist())


def widths(sizes: range) -> Int:
    return np.array([[3] * len(sizes), [5] * len(sizes)])
