"""Exact integer optimum on the region tree, with a certificate."""

from pgsr_core.solvers.cpwl.certificate import (
    CertificateInputError,
    CertificateOverflow,
    OptimalityCertificate,
    certify,
)
from pgsr_core.solvers.cpwl.solver import CpwlInputError, CpwlSolution, ValuesTooLarge, solve

__all__ = [
    "CertificateInputError",
    "CertificateOverflow",
    "CpwlInputError",
    "CpwlSolution",
    "OptimalityCertificate",
    "ValuesTooLarge",
    "certify",
    "solve",
]
