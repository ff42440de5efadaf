"""Noise by pgsr's own exact sampler: compiled, over AES keyed by the operating system."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numba.core import config

from pgsr_core.noise.discrete_laplace import (
    BUFFER_WORDS,
    LARGEST_DENOMINATOR,
    LARGEST_NUMERATOR,
    Refill,
    draw_into,
)
from pgsr_core.noise.protocol import Int, Progress
from pgsr_core.scales import ratio_at_least

CELLS_A_PIECE = 100_000
_KEY_BYTES = 32
_COUNTER_BYTES = 16
_ZEROS = bytes(4 * BUFFER_WORDS)
# Noise stays below 2⁴⁸, so that no sum leaves the 64-bit integers.
_LARGEST_VALUE = 2**62


@dataclass(frozen=True)
class FastExactSampler:
    """The exact sampler of Canonne, Kamath and Steinke over an AES-256-CTR stream.

    Guarantee. Given a uniform stream, each cell's noise is exactly double-geometric and
    independent of every other's (the proof stands in `discrete_laplace`), at the asked scale or
    the next above it that fits its integers, never below: Sampler's guarantee holds with
    the ε that was charged. The stream is AES-256 in counter mode under a key that nobody knows:
    whoever tells the release from one with a uniform stream tells AES-256 from a random
    permutation, or has seen some 2⁶⁴ blocks of one key (a piece takes some 2¹⁸).

    A key belongs to one piece of one call. It is asked of the operating system when the piece
    is drawn and forgotten with it; the sampler itself holds nothing. So processes that are
    forked, at whatever moment, share no stream.
    """

    name: str = "fast-exact"
    private: bool = True
    threads: int | None = None

    def add_noise(self, values: Int, *, scale: Fraction, progress: Progress | None = None) -> Int:
        """See Sampler."""
        flat = np.ascontiguousarray(values, dtype=np.int64).ravel()
        if flat.size and max(int(flat.max()), -int(flat.min())) > _LARGEST_VALUE:
            raise OverflowError("a count is too large for noise to be added to it")
        numerator, denominator = ratio_at_least(
            scale, numerator=LARGEST_NUMERATOR, denominator=LARGEST_DENOMINATOR
        )
        noisy = np.empty_like(flat)

        def draw(start: int) -> int:
            piece = noisy[start : start + CELLS_A_PIECE]
            draw_into(piece, numerator=numerator, denominator=denominator, refill=fresh_stream())
            piece += flat[start : start + CELLS_A_PIECE]
            return piece.size

        with ThreadPoolExecutor(self.threads or config.NUMBA_NUM_THREADS) as pool:
            for cells in pool.map(draw, range(0, flat.size, CELLS_A_PIECE)):
                if progress is not None:
                    progress(cells)
        return noisy.reshape(values.shape)


def fresh_stream() -> Refill:
    """A new random stream, shared with nobody: not to be kept beyond the call that asks for it."""
    cipher = Cipher(AES(os.urandom(_KEY_BYTES)), CTR(os.urandom(_COUNTER_BYTES)))
    encryptor = cipher.encryptor()

    def refill(memory: memoryview) -> None:
        encryptor.update_into(memoryview(_ZEROS)[: memory.nbytes], memory)

    return refill
