"""What the tests of the privacy claim share: one thread, and releases through Prefect."""

from __future__ import annotations

from collections.abc import Iterator

import numba
import pytest

from tests.flows.conftest import release_in_process

__all__ = ["release_in_process"]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Thousands of tiny tables are solved here; waking a second thread costs more than each."""
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    yield
    numba.set_num_threads(threads)
