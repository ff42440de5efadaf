"""One round of the audit: everything that is collected once and judged by every test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import numpy as np

from benchmarks.privacy_audit import attackers, barrier, distribution, products
from benchmarks.privacy_audit.attackers import Neighbours, Observed
from benchmarks.privacy_audit.barrier import Passage
from benchmarks.privacy_audit.distribution import NoiseRuns
from benchmarks.privacy_audit.independence import independence
from benchmarks.privacy_audit.processes import Drawn, differ, draw_in_new_processes
from benchmarks.privacy_audit.products import BASE, Product
from benchmarks.privacy_audit.stages import (
    Measured,
    draw_copies,
    draw_run,
    measure,
    published_numbers,
)
from benchmarks.privacy_audit.verdicts import Verdict
from pgsr_core.noise.catalogue import ReleaseSampler

# 21,000 cells at each scale: a scale that is a tenth off is missed once in a million rounds.
RUNS = 6
# With so many runs of each data set the attackers certify more than the claimed ε = 2 where twice
# as much is spent, and where bounds taken from the truth shine through the published tables.
COPIES = 1300


@dataclass
class Bench:
    """The audited products in one folder, released through the stages when first asked for.

    Attributes:
        sampler_bug: the planted bug, where new processes have to plant it, too.
        changes: the neighbours that the attackers are given.
    """

    folder: Path
    sampler: ReleaseSampler = ReleaseSampler.OPENDP
    sampler_bug: str | None = None
    changes: tuple[str, ...] = tuple(products.CHANGES)

    @cached_property
    def unit_scale(self) -> Measured:
        return self._release(products.unit_scale(self.sampler))

    @cached_property
    def production(self) -> Product:
        product = products.production_scale(self.sampler)
        product.write(self.folder)
        return product

    @cached_property
    def neighbours(self) -> dict[str, Measured]:
        known = products.neighbours(self.sampler)
        return {change: self._release(known[change]) for change in (BASE, *self.changes)}

    def _release(self, product: Product) -> Measured:
        product.write(self.folder)
        return measure(product, self.folder)


class Round:
    """Collects, when first asked, what a round's tests judge."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    @cached_property
    def passage(self) -> Passage:
        """A whole release at production scale through every stage."""
        return barrier.pass_the_barrier(self.bench.production, self.bench.folder)

    @cached_property
    def production_noise(self) -> NoiseRuns:
        return _noise(self.passage.measured, [self.passage.noise])

    @cached_property
    def unit_noise(self) -> NoiseRuns:
        return _noise(self.bench.unit_scale, [])

    @cached_property
    def processes(self) -> Drawn:
        return draw_in_new_processes(sampler=self.bench.sampler, bug=self.bench.sampler_bug)

    @cached_property
    def neighbours(self) -> list[Neighbours]:
        observed = {
            change: _observed(measured) for change, measured in self.bench.neighbours.items()
        }
        base = self.bench.neighbours[BASE].product
        return [
            Neighbours(change, observed[BASE], observed[change], base.scale(), base.epsilon)
            for change in self.bench.changes
        ]


def _noise(measured: Measured, known: list[np.ndarray]) -> NoiseRuns:
    drawn = [draw_run(measured) - measured.truth for _ in range(RUNS - len(known))]
    return NoiseRuns(
        noise=np.stack([*known, *drawn]),
        truth=measured.truth,
        level=measured.run.tree.level,
        scale=measured.product.scale(),
    )


def _observed(measured: Measured) -> Observed:
    measurements = draw_copies(measured, COPIES)
    facts = measured.facts
    published = [published_numbers(measured, values, facts) for values in measurements]
    return Observed(measured.truth, measurements, np.stack(published))


TESTS: Mapping[str, Callable[[Round], Verdict]] = MappingProxyType(
    {
        "integers": lambda r: barrier.integers(r.passage),
        "chi-square, scale 1": lambda r: distribution.chi_square(r.unit_noise),
        "chi-square, production scale": lambda r: distribution.chi_square(r.production_noise),
        "both sides": lambda r: distribution.sides(r.production_noise),
        "independence": lambda r: independence(r.production_noise),
        "new processes": lambda r: differ(r.processes),
        "draws and charges": lambda r: barrier.draws_and_charges(r.passage),
        "attackers": lambda r: attackers.audit(r.neighbours),
    }
)
