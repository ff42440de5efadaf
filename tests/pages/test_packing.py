"""Numbers packed into a page come out as they went in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tasks.pages import packing
from tests.pages.packed import unpack

LARGEST = 2**52  # what a browser still counts exactly


@given(
    arrays.arrays(
        np.int64,
        arrays.array_shapes(min_dims=2, max_dims=2, max_side=7),
        elements=st.one_of(st.integers(-300, 300), st.integers(-LARGEST, LARGEST)),
    )
)
def test_the_slow_twin_reads_back_what_was_packed(matrix: np.ndarray) -> None:
    columns = {"first": matrix, "second": matrix[:, :1] * 0 + 7}
    packed = packing.pack(columns)
    (block,) = packed.blocks
    found = unpack(block, list(packed.columns), packed.width)
    assert found == {name: numbers.tolist() for name, numbers in columns.items()}


def test_rows_are_cut_into_blocks_and_the_last_one_holds_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packing, "NUMBERS_A_BLOCK", 20)
    matrix = np.arange(77).reshape(11, 7) ** 3
    packed = packing.pack({"numbers": matrix})
    assert packed.rows_a_block == 2
    found = [unpack(block, list(packed.columns), packed.width) for block in packed.blocks]
    assert [len(block["numbers"]) for block in found] == [2, 2, 2, 2, 2, 1]
    assert [row for block in found for row in block["numbers"]] == matrix.tolist()


def test_noise_around_zero_takes_less_than_a_byte_and_a_half_a_number() -> None:
    rng = np.random.default_rng(1)
    noise = (rng.standard_exponential((50, 1000)) - rng.standard_exponential((50, 1000))) * 6
    packed = packing.pack({"noise": noise.astype(np.int64)})
    assert sum(map(len, packed.blocks)) < 1.5 * noise.size
