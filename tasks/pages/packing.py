"""Whole numbers inside a page: small, in blocks of rows, read by the page one row at a time.

A block holds the same rows of every column. Each row is written as its first number and the
differences to the number before, each as an unsigned one (0, −1, 1, −2, … become 0, 1, 2, 3, …),
byte by byte of equal weight (all lowest bytes first), so that what is near zero is mostly zeros;
then raw deflate and base64. `explorer.js` reads it back.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
LEVEL = 6
"""The highest one would save 2% and take five times as long."""
NUMBERS_A_BLOCK = 100_000
"""So that reading one row, which unpacks its block, takes no time that a person would notice."""


@dataclass(frozen=True)
class Packed:
    """Columns of whole numbers, packed.

    Attributes:
        columns: name and numbers a row of each, in the order in which a block holds them.
        rows: of each column.
        rows_a_block: of every block but, perhaps, the last.
        width: bytes a number.
        blocks: the packed blocks, first rows first.
    """

    columns: tuple[tuple[str, int], ...]
    rows: int
    rows_a_block: int
    width: int
    blocks: tuple[str, ...]


def pack(columns: Mapping[str, Int]) -> Packed:
    """Pack matrices with the same number of rows."""
    numbers_a_row = sum(matrix.shape[1] for matrix in columns.values())
    rows = next(iter(columns.values())).shape[0]
    rows_a_block = max(1, NUMBERS_A_BLOCK // max(1, numbers_a_row))
    unsigned = {name: _unsigned(matrix) for name, matrix in columns.items()}
    largest = max(int(matrix.max(initial=0)) for matrix in unsigned.values())
    width = max(1, (largest.bit_length() + 7) // 8)
    return Packed(
        columns=tuple((name, matrix.shape[1]) for name, matrix in columns.items()),
        rows=rows,
        rows_a_block=rows_a_block,
        width=width,
        blocks=tuple(
            _block([matrix[start : start + rows_a_block] for matrix in unsigned.values()], width)
            for start in range(0, rows, rows_a_block)
        ),
    )


def _unsigned(matrix: Int) -> NDArray[np.uint64]:
    """Differences along a row, with the sign moved to the lowest bit."""
    steps = np.diff(matrix, axis=1, prepend=0)
    return ((steps << 1) ^ (steps >> 63)).view(np.uint64)


def _block(parts: list[NDArray[np.uint64]], width: int) -> str:
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    planes = b"".join(
        np.ascontiguousarray(
            part.astype("<u8").reshape(-1, 1).view(np.uint8)[:, :width].T
        ).tobytes()
        for part in parts
    )
    return base64.b64encode(compressor.compress(planes) + compressor.flush()).decode("ascii")
