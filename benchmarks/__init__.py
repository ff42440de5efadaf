"""Benchmarks: ratios measured in one run, so that they mean the same on every machine."""

import os

# Peers and solvers are timed with the thread count that a row states; a linear algebra library
# that starts threads of its own would blur that. It must be said before numpy is imported.
for _variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
