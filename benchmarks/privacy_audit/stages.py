"""Running the product for the audit: its own stages in process, and its draw alone, many times.

Everything that the audit uses of the product's inside is used here.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.privacy_audit.products import Product
from pgsr_core.noise.protocol import Int, Progress, Sampler
from pgsr_core.postprocessing.protocol import PublicFacts
from tasks.run import Run
from tasks.stages import noise as noise_stage
from tasks.stages.cumulative import cumulative
from tasks.stages.ingest import ingest
from tasks.stages.noise import noise, recall
from tasks.stages.post_process import post_process
from tasks.stages.prepare import prepare
from tasks.storage.tables import MatrixStore, TableRef

SLOT = date(2026, 7, 1)
_numbers = itertools.count(1)


@dataclass
class Watched:
    """A sampler that is watched: how many cells it drew, and of which types."""

    sampler: Sampler
    cells: list[int] = field(default_factory=list)
    types: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.sampler.name

    @property
    def private(self) -> bool:
        return self.sampler.private

    def add_noise(self, values: Int, *, scale: Fraction, progress: Progress | None = None) -> Int:
        noisy = self.sampler.add_noise(values, scale=scale, progress=progress)
        self.cells.append(noisy.size)
        self.types.append(str(noisy.dtype))
        return noisy


@contextmanager
def watched_samplers() -> Iterator[list[Watched]]:
    """Watch every sampler that the noise stage asks for."""
    watched: list[Watched] = []
    choose = noise_stage._sampler

    def choose_watched(run: Run) -> Watched:
        watched.append(Watched(choose(run)))
        return watched[-1]

    with mock.patch.object(noise_stage, "_sampler", choose_watched):
        yield watched


@dataclass(frozen=True)
class Measured:
    """A release up to the barrier, through the stages.

    Attributes:
        truth: (regions × sizes): what the noise stage was given to measure.
        query: the reference of that table.
        table: the reference of the measurements in the safe store.
    """

    product: Product
    configuration: Path
    run: Run
    truth: Int
    query: TableRef
    table: TableRef

    @property
    def facts(self) -> PublicFacts:
        return self.run.facts()

    def stored(self, table: TableRef) -> tuple[Int, dict[str, str]]:
        """A table of the safe store, and the type of the values of every table there."""
        with self.run.safe_connection(read_only=True) as connection:
            store = MatrixStore(connection, self.run.tree)
            types = connection.execute(
                "SELECT table_name, data_type FROM information_schema.columns "
                "WHERE column_name = 'value' ORDER BY table_name"
            ).fetchall()
            return store.read(table, sizes=self.run.plan.measured_sizes), dict(types)


def measure(product: Product, folder: Path) -> Measured:
    """Prepare, ingest, transform and measure a new release of a product."""
    configuration = product.configuration(folder, f"r{next(_numbers)}")
    ref = prepare(configuration, slot=SLOT)
    query = cumulative.fn(ref, ingest.fn(ref))
    table = noise.fn(ref, query)
    run = ref.open()
    with run.confidential() as (_, store):
        truth = store.read(query, sizes=run.plan.measured_sizes)
    return Measured(product, configuration, run, truth, query, table)


def post_processed(measured: Measured) -> TableRef:
    """Go on with the stages right of the barrier, up to the table to be published."""
    table = measured.table
    for step in measured.run.plan.mechanism.steps:
        stage: Any = post_process(step.name)
        table = stage.fn(measured.run.ref, table)
    return table


def measure_again(measured: Measured) -> Int:
    """Lose the safe store, prepare again, and ask for the measurements as a resumed run does."""
    ref = measured.run.ref
    ref.folder.safe_store.unlink()
    prepare(measured.configuration, slot=SLOT)
    table = recall.fn(ref)
    if table is None:
        table = noise.fn(ref, measured.query)
    return measured.stored(table)[0]


def throw_away(measured: Measured) -> None:
    """Remove the files of a release; the ledger keeps its measurements."""
    folder = measured.run.ref.folder
    for zone in (folder.confidential, folder.safe):
        shutil.rmtree(zone)


def draw_run(measured: Measured) -> Int:
    """One more draw of a run's noise by the stage's own function, past the ledger."""
    return _draw(measured.run, measured.run.tree, measured.truth)


def draw_copies(measured: Measured, copies: int) -> Int:
    """The measurements of many runs, (copies × regions × sizes).

    The copies stand side by side in each level, so that one call draws for all: a call of
    OpenDP costs as much as fifty draws. The independence of the cells of a call is tested apart.
    """
    tree = measured.run.tree
    starts = tree.level_start
    levels = [slice(start, stop) for start, stop in itertools.pairwise(starts)]
    stacked = np.concatenate([np.tile(measured.truth[rows], (copies, 1)) for rows in levels])
    noisy = _draw(measured.run, SimpleNamespace(level_start=starts * copies), stacked)
    parts = np.split(noisy, starts[1:-1] * copies)
    shaped = [part.reshape(copies, -1, noisy.shape[1]) for part in parts]
    return np.concatenate(shaped, axis=1)


def _draw(run: Run, tree: Any, truth: Int) -> Int:
    sampler = noise_stage._sampler(run)
    past_the_ledger: Any = SimpleNamespace(plan=run.plan, tree=tree, ledger=None)
    no_reservation: Any = None
    return noise_stage._draw(past_the_ledger, sampler, truth, no_reservation)


def published_numbers(measured: Measured, measurements: Int, facts: PublicFacts) -> Int:
    """The numbers in the tables and certificates of a run with these measurements, as one vector.

    The groups of the regions are those of the stored table that a bundle is made from, not what
    the steps were told.
    """
    parts = [np.array([facts.groups]), measured.run.groups_by_region, measurements.ravel()]
    values = measurements
    for step in measured.run.plan.mechanism.steps:
        result = step(values, facts)
        values = result.values
        parts += [values.ravel(), np.array([int(fact) for fact in result.certificate.values()])]
    return np.concatenate(parts).astype(np.int64)
