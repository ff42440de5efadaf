"""One thread for small work: waking the others takes longer than the work itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba

WORTH_WAKING = 100_000


@contextmanager
def threads_for(cells: int) -> Iterator[None]:
    """Run kernels on all allowed threads if there are many cells, else on one."""
    before = numba.get_num_threads()
    if before == 1 or cells >= WORTH_WAKING:
        yield
        return
    numba.set_num_threads(1)
    try:
        yield
    finally:
        numba.set_num_threads(before)
