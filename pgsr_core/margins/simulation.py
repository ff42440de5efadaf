"""How far released counts typically are from the truth: the release simulated on its own result.

The released table takes the place of the truth: it is measured again with fresh noise of the same
scales and post-processed by the same steps, several times, and what comes out is compared with it.
The noise is seeded by the digest of the measurements, so everybody who holds them gets the same
answer. No private data are touched, so it costs no privacy (Dwork and Roth 2014, Proposition 2.1);
that the seed can be known does not matter, since nothing is hidden behind this noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pgsr_core.margins.tables import CONFIDENCES, Int
from pgsr_core.mechanisms import Mechanism
from pgsr_core.postprocessing.protocol import PublicFacts, Query
from pgsr_core.postprocessing.steps import cumulative_from_counts

Progress = Callable[[int, int], None]

SINGLE_SIZES = 64
"""Sizes up to here are looked at one by one; above, together with others within 2%."""
WIDENING = 50
ENOUGH = 200
"""Errors that a quantile is taken of, where neighbouring sizes can add so many."""


def typical_half_widths(
    mechanism: Mechanism,
    facts: PublicFacts,
    counts: Int,
    *,
    seed: str,
    repetitions: int,
    progress: Progress | None = None,
) -> Int:
    """For each confidence, level and size: how far so many of the level's counts are off, at most.

    The quantile is taken over the regions of the level, the repetitions and, where these are
    few, neighbouring sizes. It describes the counts of a level and size together, whatever they
    are; an interval for one count is in confidence_intervals.

    Args:
        mechanism: its steps are repeated, or those of the one that it names for this.
        facts: the public facts, with the scales of the noise.
        counts: the released table.
        seed: the digest of the measurements.
        repetitions: how often; at least 1.
        progress: gets the repetitions done and their number.
    """
    from pgsr_core.margins import kernels

    tree = facts.tree
    if facts.groups_by_region is not None:
        # The table stands for a truth of its own, whose regions have as many groups as it says.
        facts = replace(facts, groups_by_region=counts.sum(axis=1))
    cumulative = mechanism.query is Query.CUMULATIVE
    truth = counts
    if cumulative:
        truth = cumulative_from_counts(counts, largest_size=facts.largest_size)
    decay = np.array([float(1 / scale) for scale in facts.scales])[tree.level]
    classes = size_classes(counts.shape[1])
    errors = np.zeros((tree.levels, int(classes[-1]) + 1, kernels.ERROR_BINS), dtype=np.int64)
    noisy = np.empty_like(truth)
    for repetition in range(repetitions):
        start = _start(seed, repetition)
        kernels.add_simulated_noise(truth, decay, start, noisy)
        values = noisy
        for step in (mechanism.simulated_by or mechanism).steps:
            values = step(values, facts).values
        kernels.count_errors(counts, values, tree.level, classes, errors)
        if progress is not None:
            progress(repetition + 1, repetitions)
    return np.stack([_quantiles(errors, float(q)) for q in CONFIDENCES])[:, :, classes]


def size_classes(sizes: int) -> Int:
    """The class of each size: single ones at first, then ever wider ranges."""
    widths: list[int] = []
    done = 0
    while done < sizes:
        width = 1 if done < SINGLE_SIZES else 1 + done // WIDENING
        widths.append(min(width, sizes - done))
        done += widths[-1]
    return np.repeat(np.arange(len(widths)), widths)


def _start(seed: str, repetition: int) -> np.uint64:
    """Where the counter of one repetition begins: anywhere in 64 bits."""
    digest = hashlib.sha256(f"pgsr-margins {seed} {repetition}".encode()).digest()
    return np.uint64(int.from_bytes(digest[:8], "little"))


def _quantiles(errors: Int, confidence: float) -> Int:
    """The quantile of each level and class of sizes, with as many neighbours as it takes."""
    levels, classes, _ = errors.shape
    totals = np.zeros((levels, classes + 1), dtype=np.int64)
    np.cumsum(errors.sum(axis=2), axis=1, out=totals[:, 1:])
    found = np.empty((levels, classes), dtype=np.int64)
    for level in range(levels):
        for place in range(classes):
            first, last = place, place + 1
            while totals[level, last] - totals[level, first] < ENOUGH and last - first < classes:
                first, last = max(0, first - 1), min(classes, last + 1)
            found[level, place] = _quantile(errors[level, first:last].sum(axis=0), confidence)
    return found


def _quantile(counted: Int, confidence: float) -> int:
    """The largest error of the first bin up to which this share of all errors lies."""
    reached = np.cumsum(counted)
    place = int(np.argmax(reached >= confidence * reached[-1]))
    return largest_error(place)


def largest_error(place: int) -> int:
    """The largest absolute error of a bin; the inverse of kernels.error_bin."""
    from pgsr_core.margins.kernels import FINE

    shift = max(0, place // FINE - 1)
    return ((place - shift * FINE + 1) << shift) - 1
