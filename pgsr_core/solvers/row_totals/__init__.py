"""Exact integer optimum on the region tree with the total of every region, with a certificate."""

from pgsr_core.solvers.row_totals.certificate import (
    PriceCertificate,
    PriceInputError,
    PriceOverflow,
    certify,
)
from pgsr_core.solvers.row_totals.solver import (
    RowTotalsInputError,
    RowTotalsSolution,
    RowTotalsTooLarge,
    solve,
)

__all__ = [
    "PriceCertificate",
    "PriceInputError",
    "PriceOverflow",
    "RowTotalsInputError",
    "RowTotalsSolution",
    "RowTotalsTooLarge",
    "certify",
    "solve",
]
