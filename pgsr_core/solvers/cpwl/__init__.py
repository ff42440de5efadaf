"""Exact integer optimum on the region tree, with a certificate."""

from pgsr_core.solvers.cpwl.solver import CpwlInputError, CpwlSolution, ValuesTooLarge, solve

__all__ = ["CpwlInputError", "CpwlSolution", "ValuesTooLarge", "solve"]
