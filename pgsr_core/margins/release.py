"""The margins of a release: an interval for every cell, and what is typical of a level and size."""

from __future__ import annotations

from pgsr_core.canonical import table_digest
from pgsr_core.margins.intervals import confidence_intervals
from pgsr_core.margins.simulation import Progress, typical_half_widths
from pgsr_core.margins.tables import Int, Margins
from pgsr_core.mechanisms import Mechanism
from pgsr_core.postprocessing.protocol import PublicFacts


def margins_of(
    mechanism: Mechanism,
    facts: PublicFacts,
    measurements: Int,
    counts: Int,
    *,
    repetitions: int,
    progress: Progress | None = None,
) -> Margins:
    """Compute the margins of a released table: a pure function of what is published.

    Args:
        mechanism: the query and the steps that made the table.
        facts: the public facts, with the scales of the noise.
        measurements: regions × measured sizes.
        counts: the released table.
        repetitions: how often the release is simulated; at least 1.
        progress: gets the repetitions done and their number.
    """
    seed = table_digest(
        measurements,
        table="measurements",
        tree_digest=facts.tree.digest,
        sizes=facts.measured_sizes(mechanism.query),
    )
    half_widths = typical_half_widths(
        mechanism, facts, counts, seed=seed, repetitions=repetitions, progress=progress
    )
    bounds = confidence_intervals(mechanism.query, facts, measurements, counts)
    return Margins(bounds=bounds, half_widths=half_widths)
