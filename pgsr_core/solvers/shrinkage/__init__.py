"""Empirical Bayes estimates of cumulative counts: what a region shares with those above it."""

from pgsr_core.solvers.shrinkage.estimate import shrink

__all__ = ["shrink"]
