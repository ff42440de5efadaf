"""Noise: the barrier. Charges once, draws once; what it writes is safe to read.

The ledger decides: a measurement that was committed is recalled and never drawn again. This
stage is not retried by Prefect.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from pgsr_core.budget import show
from pgsr_core.errors import Refused
from pgsr_core.noise.protocol import Sampler
from tasks import failpoints, operator
from tasks.boundary import stage
from tasks.ledger.holders import only_holder
from tasks.ledger.ledger import (
    Ledger,
    Measurement,
    MeasurementDamaged,
    MeasurementRequest,
    Reservation,
)
from tasks.publication.preflight import refuse_before_the_draw
from tasks.run import Run, RunRef
from tasks.stages import ingest
from tasks.stages.prepare import measurement_request
from tasks.storage.tables import TableRef

STAGE = "noise"
TABLE = "measurements"
RENEW_SECONDS = 60.0
Int = NDArray[np.int64]


class SourceChanged(Refused):
    """The source data are no longer those that were ingested; nothing was drawn."""

    depends_on_data = True


@stage("recall", retry=True)
def recall(ref: RunRef) -> TableRef | None:
    """Bring back the measurements of a release that was drawn before; None if it was not."""
    table = _recalled(ref.open())
    note = "no measurements yet" if table is None else "from the ledger; not drawn again"
    operator.terminal().stage_finished("recall", note)
    return table


def _recalled(run: Run) -> TableRef | None:
    measurement = run.committed()
    return None if measurement is None else _materialise(run, measurement)


@stage(STAGE, retry=False)
def noise(ref: RunRef, query: TableRef) -> TableRef:
    """Reserve, draw in memory, commit; then copy the committed table to the safe store."""
    run = ref.open()
    refuse_before_the_draw(run.plan, ref.installation)
    request = measurement_request(run)
    run.ledger.require_still_alone(ref.product, ref.release)
    with only_holder(ref.installation, run.ledger, request.population, cost=request.epsilon):
        held = run.ledger.reserve(request)
    failpoints.reach("noise.reserved")
    measurement = _draw_and_commit(run, held, query) if isinstance(held, Reservation) else held
    failpoints.reach("noise.committed")
    table = _materialise(run, measurement)
    operator.terminal().stage_finished(STAGE, f"epsilon {show(measurement.epsilon)} charged")
    return table


def _draw_and_commit(run: Run, reservation: Reservation, query: TableRef) -> Measurement:
    try:
        return _draw_under(reservation, run, query)
    except BaseException:
        run.ledger.give_back(reservation)
        raise


def _draw_under(reservation: Reservation, run: Run, query: TableRef) -> Measurement:
    plan = run.plan
    sampler = _sampler(run)
    true, groups = _read_truth(run, query, reservation.request)
    noisy = _draw(run, sampler, true, reservation)
    failpoints.reach("noise.drawn")
    with run.safe(read_only=True) as store:
        digest = store.digest(TABLE, noisy, sizes=plan.measured_sizes)
    return run.ledger.commit(
        reservation,
        noisy,
        digest=digest,
        sizes=plan.measured_sizes,
        groups=groups,
        sampler=sampler.name,
        simulation=not sampler.private,
    )


def _read_truth(run: Run, query: TableRef, request: MeasurementRequest) -> tuple[Int, int]:
    with run.confidential() as (_, store):
        ingested = store.record(ingest.STAGE)
        if ingested is None or ingested.inputs != request.key:
            raise SourceChanged(
                "the source data changed while the release was running; nothing was drawn or "
                "charged. Remedy: run the release again."
            )
        groups = run.plan.groups
        if groups is None:
            groups = int(ingested.certificate["groups"])
        return store.read(query, sizes=run.plan.measured_sizes), groups


def _draw(run: Run, sampler: Sampler, true: Int, reservation: Reservation) -> Int:
    """Add noise level by level; nothing is written until the ledger takes all of it."""
    lease = _Lease(run.ledger, reservation)
    done = 0

    def advance(cells: int) -> None:
        nonlocal done
        done += cells
        operator.terminal().stage_advanced(STAGE, done, true.size, "cells")
        lease.keep()

    noisy = np.empty_like(true)
    starts = run.tree.level_start
    for level, scale in enumerate(run.plan.scales):
        rows = slice(starts[level], starts[level + 1])
        noisy[rows] = sampler.add_noise(true[rows], scale=scale, progress=advance)
    return noisy


class _Lease:
    """Renews a reservation now and then while a long draw goes on."""

    def __init__(self, ledger: Ledger, reservation: Reservation) -> None:
        self._ledger = ledger
        self._reservation = reservation
        self._renewed = time.monotonic()

    def keep(self) -> None:
        """Renew if it is time."""
        if time.monotonic() - self._renewed > RENEW_SECONDS:
            self._ledger.renew(self._reservation)
            self._renewed = time.monotonic()


def _sampler(run: Run) -> Sampler:
    """The chosen sampler; a seeded generator under `simulate: true` and only there."""
    configuration = run.plan.configuration
    if configuration.simulate:
        from pgsr_core.noise.seeded import SeededSampler

        return SeededSampler(np.random.default_rng(configuration.seed))
    return configuration.privacy.sampler.make()


def _materialise(run: Run, measurement: Measurement) -> TableRef:
    """Copy the ledger's table into the safe store, checked against its digest."""
    with run.safe() as store:
        done = store.finished(STAGE, inputs=measurement.key)
        if done is not None and done.digest == measurement.digest:
            return done
        values = run.ledger.values(measurement)
        if store.digest(TABLE, values, sizes=measurement.sizes) != measurement.digest:
            raise MeasurementDamaged(
                "the ledger's measurements do not match their digest. Nothing is drawn again. "
                "Remedy: restore the ledger from a backup."
            )
        return store.write(
            STAGE,
            TABLE,
            values,
            sizes=measurement.sizes,
            inputs=measurement.key,
        )
