"""Slow, obvious twins of the margins: convolutions for quadrature, loops for kernels."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from pgsr_core.margins.intervals import UPPER_SHARES
from pgsr_core.margins.noise_sums import tail_bound
from pgsr_core.margins.tables import CONFIDENCES
from pgsr_core.postprocessing.protocol import PublicFacts, Query
from pgsr_core.solvers.isotonic import isotonic_real


def tail_by_convolution(scale: Fraction, terms: int, probability: Fraction) -> int:
    """The smallest q with P(S > q) ≤ probability, from the probabilities themselves."""
    ratio = np.exp(-1 / float(scale))
    reach = int(60 * scale) + 5
    one = (1 - ratio) / (1 + ratio) * ratio ** np.abs(np.arange(-reach, reach + 1))
    law = one
    for _ in range(terms - 1):
        law = np.convolve(law, one)
    beyond = law[::-1].cumsum()[::-1]  # at v: P(S ≥ v), v from −terms·reach on
    return next(q for q in range(terms * reach) if beyond[q + 1 + terms * reach] <= probability)


def slow_intervals(
    query: Query, facts: PublicFacts, measurements: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Every cell by itself, with sums written out."""
    bounds = np.zeros((4, *counts.shape), dtype=np.int64)
    for region in range(counts.shape[0]):
        for column in range(counts.shape[1]):
            ends = _cell(query, facts, measurements, region, column, counts.shape[1])
            most = (
                facts.groups if facts.groups_by_region is None else facts.groups_by_region[region]
            )
            count = counts[region, column]
            for i, end in enumerate(ends):
                cut = min(max(end, 0), most)
                bounds[i, region, column] = max(cut, count) if i % 2 else min(cut, count)
    return bounds


def _cell(query, facts, measurements, region, column, columns):
    level = int(facts.tree.level[region])
    scale = facts.scales[level]
    row = [int(value) for value in measurements[region]]
    expected = _expected(query, facts, measurements, level)
    total = _total(facts, region)
    if query is Query.COUNTS:
        share = _share_by_others(facts, region, column, row, expected)
        mean = None if share is None else share * expected[column]
        return _around(row[column], scale, mean)
    k = column - (columns - len(row))
    share = 1.0 if region == 0 else (max(0, row[0]) if total is None else total) / facts.groups
    if column == 0 and total is not None:
        if k + 1 == len(row):
            return [total] * 4
        mean = None if expected is None else max(0.0, total - share * expected[k + 1])
        return _around(total - row[k + 1], scale, mean)
    free = 1 if total is None else 0
    if expected is None or k < free:
        after = row[k + 1 : k + 2]
        return _around(row[k] - sum(after), scale, None, terms=1 + len(after))
    return _by_windows(row, k, free, scale, [share * e for e in expected])


def _around(value, scale, mean, terms=1):
    """The shorter of the ways to share α around one value; even shares if nothing is expected."""
    options = UPPER_SHARES[:1] if mean is None else UPPER_SHARES

    def width(upper):
        alpha = 1 - CONFIDENCES[0]
        below = tail_bound(scale, terms, alpha * (1 - upper))
        return (mean or 0) + tail_bound(scale, terms, alpha * upper) - max(0, (mean or 0) - below)

    upper = min(options, key=width)
    return [
        end
        for confidence in CONFIDENCES
        for end in (
            value - tail_bound(scale, terms, (1 - confidence) * (1 - upper)),
            value + tail_bound(scale, terms, (1 - confidence) * upper),
        )
    ]


def _by_windows(row, k, free, scale, expected):
    last = k + 1 == len(row)
    terms = 1 if last else 2
    mean = expected[k] - (0 if last else expected[k + 1])
    best = None
    for w in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32):
        for two_sided in (False, True):
            if k + 1 - w < free or (two_sided and k + 1 + w > len(row)):
                continue
            for upper in UPPER_SHARES:
                alpha = 1 - CONFIDENCES[0]
                left = sum(expected[k + 1 - w : k + 1]) / w
                right = sum(expected[k + 1 : k + 1 + w]) / w if two_sided else 0
                far = tail_bound(scale, (1 + two_sided) * w, alpha * upper) / w
                low = max(0.0, mean - tail_bound(scale, terms, alpha * (1 - upper)))
                width = left - right + far - low
                if best is None or width < best[0] - 1e-9:
                    best = (width, w, two_sided, upper)
    _, w, two_sided, upper = best
    value = row[k] - (0 if last else row[k + 1])
    window = sum(row[k + 1 - w : k + 1]) - (sum(row[k + 1 : k + 1 + w]) if two_sided else 0)
    return [
        end
        for confidence in CONFIDENCES
        for end in (
            value - tail_bound(scale, terms, (1 - confidence) * (1 - upper)),
            (window + tail_bound(scale, (1 + two_sided) * w, (1 - confidence) * upper)) // w,
        )
    ]


def _expected(query, facts, measurements, level):
    tree = facts.tree
    if tree.levels == 1:
        return None
    source = measurements[0] if level > 0 else measurements[tree.level == 1].sum(axis=0)
    if query is Query.COUNTS:
        return [max(0.0, float(value)) for value in source]
    return isotonic_real(source[np.newaxis].astype(float), upper=float(facts.groups))[0].tolist()


def _total(facts, region):
    if facts.groups_by_region is not None:
        return int(facts.groups_by_region[region])
    return facts.groups if region == 0 else None


def _share_by_others(facts, region, column, row, expected):
    if expected is None:
        return None
    if facts.groups_by_region is not None:
        return facts.groups_by_region[region] / facts.groups
    if region == 0:
        return 1.0
    others = sum(expected) - expected[column]
    return max(0, sum(row) - row[column]) / others if others > 0 else 0.0
