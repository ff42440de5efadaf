"""The papers' programs by generic solvers (SCIP, CP-SAT): slow, optional, and what to compare with.

The solvers come with the extra `pgsr[evaluate]` and are imported where they are called.
"""
