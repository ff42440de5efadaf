"""The planted bugs: a piece of the product, replaced as a programmer could have got it wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.privacy_audit.buggy_samplers import BUGGY_SAMPLERS, with_sampler_bug
from pgsr_core.noise.protocol import Int, Sampler
from pgsr_core.postprocessing.protocol import PublicFacts
from tasks.configuration.plan import ReleasePlan
from tasks.ledger.ledger import Measurement
from tasks.run import Run
from tasks.stages import cumulative as cumulative_stage
from tasks.stages import noise as noise_stage
from tasks.storage.tables import TableRef


@dataclass(frozen=True)
class Bug:
    """A bug, what it is that was got wrong, and how it is planted."""

    name: str
    what: str
    plant: Callable[[], AbstractContextManager[None]]

    @property
    def of_the_sampler(self) -> str | None:
        """Its name where a new process can plant it as well."""
        return self.name if self.name in BUGGY_SAMPLERS else None


def _replaced(place: Any, name: str, wrong: Any) -> Callable[[], AbstractContextManager[None]]:
    @contextmanager
    def plant() -> Iterator[None]:
        with mock.patch.object(place, name, wrong):
            yield

    return plant


def _truth(run: Run) -> Int:
    with run.confidential() as (_, store):
        record = store.record(cumulative_stage.STAGE)
        if record is None:
            raise LookupError("nothing to measure yet")
        return store.read(record.output, sizes=run.plan.measured_sizes)


# --- scales -----------------------------------------------------------------------------------


def _scales_times(factor: Fraction) -> property:
    return property(lambda plan: tuple(level.scale * factor for level in plan.levels))


def _unsplit_scales(plan: ReleasePlan) -> tuple[Fraction, ...]:
    """Every level is given all of ε."""
    epsilon = plan.configuration.privacy.epsilon
    return tuple(plan.sensitivity / epsilon for _ in plan.levels)


# --- drawing ----------------------------------------------------------------------------------


def _levels(run: Run) -> Iterator[tuple[slice, Fraction]]:
    starts = run.tree.level_start
    for level, scale in enumerate(run.plan.scales):
        yield slice(starts[level], starts[level + 1]), scale


def _draw_below_the_root(run: Run, sampler: Sampler, true: Int, _reservation: Any) -> Int:
    noisy = true.copy()
    for rows, scale in list(_levels(run))[1:]:
        noisy[rows] = sampler.add_noise(true[rows], scale=scale)
    return noisy


def _draw_once_for_all_levels(run: Run, sampler: Sampler, true: Int, _reservation: Any) -> Int:
    widest = np.diff(run.tree.level_start).max()
    zeros = np.zeros((widest, true.shape[1]), dtype=np.int64)
    noise = sampler.add_noise(zeros, scale=max(run.plan.scales))
    noisy = true.copy()
    for rows, _ in _levels(run):
        noisy[rows] += noise[: rows.stop - rows.start]
    return noisy


def _draw_once_for_all_regions(run: Run, sampler: Sampler, true: Int, _reservation: Any) -> Int:
    noisy = true.copy()
    for rows, scale in _levels(run):
        noisy[rows] += sampler.add_noise(np.zeros(true.shape[1], dtype=np.int64), scale=scale)
    return noisy


def _materialise_a_new_draw(run: Run, measurement: Measurement) -> TableRef:
    """A cache that computes what it does not find, where the ledger should be asked."""
    with run.safe() as store:
        done = store.finished(noise_stage.STAGE, inputs=measurement.key)
    if done is not None:
        return done
    nobody: Any = None
    values = noise_stage._draw(run, noise_stage._sampler(run), _truth(run), nobody)
    with run.safe() as store:
        return store.write(
            noise_stage.STAGE,
            noise_stage.TABLE,
            values,
            sizes=measurement.sizes,
            inputs=measurement.key,
        )


# --- queries and facts ------------------------------------------------------------------------


def _cumulative_from_the_bottom(counts: Int, *, largest_size: int) -> Int:
    """The papers' transform: c_s = groups of size 1 to s."""
    return np.cumsum(counts[:, -largest_size:], axis=1)


_sound_facts = Run.facts


def _facts_with_groups_of_the_data(run: Run) -> PublicFacts:
    """The number of groups of a region: of those that have members, not of the unit table's."""
    return dataclasses.replace(_sound_facts(run), groups_by_region=_truth(run)[:, 0])


_LISTED = (
    Bug(
        "scale ÷ 2",
        "the plan halves the scale",
        _replaced(ReleasePlan, "scales", _scales_times(Fraction(1, 2))),
    ),
    Bug(
        "scale ÷ L",
        "every level is given all of ε",
        _replaced(ReleasePlan, "scales", property(_unsplit_scales)),
    ),
    Bug(
        "scale × 2",
        "the plan doubles the scale",
        _replaced(ReleasePlan, "scales", _scales_times(Fraction(2))),
    ),
    Bug(
        "scale − 10%",
        "the plan's scale is a tenth too small",
        _replaced(ReleasePlan, "scales", _scales_times(Fraction(9, 10))),
    ),
    Bug(
        "no noise at one level",
        "the root is taken for public",
        _replaced(noise_stage, "_draw", _draw_below_the_root),
    ),
    Bug(
        "drawn twice, charged once",
        "a table missing in the safe store is drawn, not recalled",
        _replaced(noise_stage, "_materialise", _materialise_a_new_draw),
    ),
    Bug(
        "same noise across levels",
        "one draw serves all levels, as their scales are equal",
        _replaced(noise_stage, "_draw", _draw_once_for_all_levels),
    ),
    Bug(
        "same noise across regions",
        "a row of noise is broadcast over the regions of a level",
        _replaced(noise_stage, "_draw", _draw_once_for_all_regions),
    ),
    Bug(
        "cumulative from the bottom",
        "the papers' transform, with sensitivity 1",
        _replaced(cumulative_stage, "cumulative_from_counts", _cumulative_from_the_bottom),
    ),
    Bug(
        "groups counted in the data",
        "post-processing is bounded by the true number of groups that have members",
        _replaced(Run, "facts", _facts_with_groups_of_the_data),
    ),
)


def _sampler_bug(name: str) -> Bug:
    what = (BUGGY_SAMPLERS[name].__doc__ or type(BUGGY_SAMPLERS[name]).__doc__ or "").strip(" .")
    return Bug(name, what, lambda: with_sampler_bug(name))


BUGS: Mapping[str, Bug] = MappingProxyType(
    {bug.name: bug for bug in (*_LISTED, *(_sampler_bug(name) for name in BUGGY_SAMPLERS))}
)
