"""The barrier as it is passed: integers all the way, and one draw for one charge."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.privacy_audit.products import Product
from benchmarks.privacy_audit.stages import (
    Measured,
    measure,
    measure_again,
    post_processed,
    throw_away,
    watched_samplers,
)
from benchmarks.privacy_audit.verdicts import Verdict, certain

Int = NDArray[np.int64]
INTEGER = "int64"
INTEGER_COLUMN = "BIGINT"


@dataclass(frozen=True)
class Passage:
    """What is left behind when a release passes the barrier, and is run again afterwards.

    Attributes:
        drawn_types: of everything that a sampler returned.
        stored_types: of the values of each table in the safe store.
        in_ledger: the committed measurements.
        in_store: their copy in the safe store.
        in_store_again: the copy that a second run makes after the store was lost.
        cells_drawn: by all samplers, in both runs.
        charges: what the ledger charged for this release.
    """

    measured: Measured
    drawn_types: tuple[str, ...]
    stored_types: dict[str, str]
    in_ledger: Int
    in_store: Int
    in_store_again: Int
    cells_drawn: int
    charges: tuple[Fraction, ...]

    @property
    def noise(self) -> Int:
        return self.in_store - self.measured.truth


def pass_the_barrier(product: Product, folder: Path) -> Passage:
    """Release up to the table to be published, lose the safe store, and run again."""
    with watched_samplers() as watched:
        measured = measure(product, folder)
        post_processed(measured)
        in_store, stored_types = measured.stored(measured.table)
        in_store_again = measure_again(measured)
    throw_away(measured)
    run = measured.run
    charges = run.ledger.charges(run.plan.configuration.population.name)
    return Passage(
        measured=measured,
        drawn_types=tuple(kind for sampler in watched for kind in sampler.types),
        stored_types=stored_types,
        in_ledger=run.ledger.values(run.measurement()),
        in_store=in_store,
        in_store_again=in_store_again,
        cells_drawn=sum(cells for sampler in watched for cells in sampler.cells),
        charges=tuple(
            charge.epsilon
            for charge in charges
            if (charge.product, charge.release) == (run.ref.product, run.ref.release)
        ),
    )


def integers(passage: Passage) -> Verdict:
    """Nothing but integers: from the sampler, in the ledger and in every table."""
    return certain(
        {
            "a sampler returned other numbers": set(passage.drawn_types) != {INTEGER},
            "the ledger holds other numbers": str(passage.in_ledger.dtype) != INTEGER,
            "a table holds other numbers": set(passage.stored_types.values()) != {INTEGER_COLUMN},
        }
    )


def draws_and_charges(passage: Passage) -> Verdict:
    """One charge, one draw, and every copy of the measurements is that draw."""
    return certain(
        {
            "not charged once": passage.charges != (passage.measured.product.epsilon,),
            "not drawn once": passage.cells_drawn != passage.measured.truth.size,
            "the store is not the ledger's draw": differ(passage.in_store, passage.in_ledger),
            "a second run has another draw": differ(passage.in_store_again, passage.in_store),
        }
    )


def differ(one: Int, other: Int) -> bool:
    return not np.array_equal(one, other)
