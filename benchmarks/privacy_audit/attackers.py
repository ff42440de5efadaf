"""A black-box audit of ε: attackers who know both data sets tell two neighbours apart.

An ε-differentially private run shows any event S with P(S | one) ≤ exp(ε) · P(S | other). An
attacker chooses S on one half of the runs; the other half, which had no say in it, gives
Clopper–Pearson bounds on both probabilities and with them a lower bound on the ε that was spent
(Jagielski, Ullman and Oprea 2020, section 4). A bound above the ε that was claimed is an alarm.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.privacy_audit.verdicts import ALARM, Verdict, worst

Int = NDArray[np.int64]
Float = NDArray[np.float64]
LEVELS_OF_CONFIDENCE: Float = 10.0 ** -np.arange(1, 16, dtype=np.float64)
MOST_BINS = 12


@dataclass(frozen=True)
class Observed:
    """Many runs of one data set, as the attacker sees them.

    Attributes:
        truth: (regions × sizes): what is measured; the attacker knows data and program.
        measurements: (runs × regions × sizes).
        published: (runs × numbers): the tables and certificates that are published of a run.
    """

    truth: Int
    measurements: Int
    published: Int


@dataclass(frozen=True)
class Neighbours:
    """Two data sets that differ in one record, and what was claimed of them."""

    name: str
    one: Observed
    other: Observed
    scale: Fraction
    epsilon: Fraction


def audit(pairs: list[Neighbours]) -> Verdict:
    """Both attackers on every pair; the p-value of the strongest evidence against ε."""
    tries = 2 * len(pairs)
    p_values = {}
    for pair in pairs:
        attacks = {"measurements": _measurements(pair), "the published tables": _published(pair)}
        for what, (one, other) in attacks.items():
            bounds = certified_epsilons(one, other, level=ALARM / tries)
            shown = LEVELS_OF_CONFIDENCE[bounds > float(pair.epsilon)]
            p_values[f"{pair.name}, from {what}"] = float(shown.min()) if shown.size else 1.0
    return worst(p_values)


def _measurements(pair: Neighbours) -> tuple[Float, Float]:
    """The likelihood ratio of the claimed mechanism: Neyman and Pearson's best statistic."""

    def ratio(observed: Observed) -> Float:
        away = np.abs(observed.measurements - pair.other.truth)
        near = np.abs(observed.measurements - pair.one.truth)
        statistic: Float = (away - near).sum(axis=(1, 2)) / float(pair.scale)
        return statistic[:, None]

    return ratio(pair.one), ratio(pair.other)


def _published(pair: Neighbours) -> tuple[Float, Float]:
    """A learned statistic for every published number, and their sum (naive Bayes)."""
    one, other = pair.one.published, pair.other.published
    half = len(one) // 2
    columns = []
    for number in range(one.shape[1]):
        edges = _edges(np.concatenate([one[:half, number], other[:half, number]]))
        bins = [np.searchsorted(edges, values[:, number]) for values in (one, other)]
        counts = [np.bincount(b[:half], minlength=len(edges) + 1) + 0.5 for b in bins]
        learned = np.log(counts[0] / counts[1])
        columns.append([learned[b] for b in bins])
    statistics = [np.stack([column[side] for column in columns], axis=1) for side in (0, 1)]
    with_sum = [np.hstack([s, s.sum(axis=1, keepdims=True)]) for s in statistics]
    return with_sum[0], with_sum[1]


def _edges(values: Int) -> Int:
    distinct = np.unique(values)
    if distinct.size <= MOST_BINS:
        return distinct[1:] - 1
    quantiles = np.quantile(values, np.linspace(0, 1, MOST_BINS + 1)[1:-1], method="lower")
    return np.unique(quantiles.astype(np.int64))


def certified_epsilons(one: Float, other: Float, *, level: float) -> Float:
    """Lower bounds on ε, one for each level of confidence, from statistics of both data sets.

    Args:
        one: (runs × statistics) of a data set; large values speak for it.
        other: the same of its neighbour.
        level: the error probability for which the event is chosen.
    """
    half = len(one) // 2
    choices = [
        (_best_event(first[:half], second[:half], level), first[half:], second[half:])
        for first, second in ((one, other), (-other, -one))
    ]
    (_, statistic, threshold), first, second = max(choices, key=lambda choice: choice[0][0])
    hits = [int((values[:, statistic] >= threshold).sum()) for values in (first, second)]
    return _bounds(hits[0], len(first), hits[1], len(second), LEVELS_OF_CONFIDENCE)


def _best_event(one: Float, other: Float, level: float) -> tuple[float, int, float]:
    """The bound, the statistic and the threshold that promise most on the choosing half."""
    best = (-np.inf, 0, np.inf)
    for statistic in range(one.shape[1]):
        thresholds = np.unique(one[:, statistic])
        hits = [(values[:, statistic, None] >= thresholds).sum(axis=0) for values in (one, other)]
        bounds = _bounds(hits[0], len(one), hits[1], len(other), np.array(level))
        place = int(np.argmax(bounds))
        best = max(best, (float(bounds[place]), statistic, float(thresholds[place])))
    return best


def _bounds(hits: int | Int, runs: int, others: int | Int, other_runs: int, level: Float) -> Float:
    """Clopper–Pearson: P(S | one) from below over P(S | other) from above, half the level each."""
    below = np.where(np.equal(hits, 0), 0.0, stats.beta.ppf(level / 2, hits, runs - hits + 1))
    above = np.where(
        np.equal(others, other_runs),
        1.0,
        stats.beta.isf(level / 2, np.add(others, 1), other_runs - others),
    )
    with np.errstate(divide="ignore"):
        bounds: Float = np.log(below / above)
    return bounds
