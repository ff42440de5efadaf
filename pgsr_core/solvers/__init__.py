"""Exact optimisation kernels over (regions × sizes) arrays."""
