"""Person ids that say nothing about who lives with whom: a keyed bijection of row numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
ROUNDS = 4


@dataclass(frozen=True)
class Scatter:
    """A random-looking bijection of 0..count−1 onto itself, computed element by element.

    On b-bit words, adding a constant, multiplying by an odd constant and x ^ (x >> s) with
    s ≥ 1 are bijections, and so is their composition f. Numbers that f takes outside
    0..count−1 are sent through f again ("cycle walking", Black and Rogaway 2002):
    on each cycle of f this skips the outsiders, hence is a bijection of the insiders. With
    2**(b−1) < count ≤ 2**b fewer than two evaluations are expected. It is not a cipher: it
    only keeps neighbours in the file from having neighbouring ids.

    Attributes:
        count: how many ids there are.
        offsets: the constants that are added, one a round.
        multipliers: the odd constants, one a round.
    """

    count: int
    offsets: tuple[int, ...]
    multipliers: tuple[int, ...]

    @classmethod
    def drawn(cls, count: int, *, generator: np.random.Generator) -> Scatter:
        """Draw the constants of a bijection of 0..count−1."""
        constants = generator.integers(0, 2**63, size=(2, ROUNDS), dtype=np.uint64)
        offsets, multipliers = constants.tolist()
        return cls(count, tuple(offsets), tuple(2 * number + 1 for number in multipliers))

    def __call__(self, positions: Int) -> Int:
        """Return the ids of these positions, each in 0..count−1."""
        words = self._mixed(positions.astype(np.uint64))
        outside = np.flatnonzero(words >= self.count)
        # Invariant: all words but those at `outside` are final; a walk ends because every
        # cycle of the bijection holds the position that it started from, which is inside.
        while outside.size:
            words[outside] = self._mixed(words[outside])
            outside = outside[words[outside] >= self.count]
        return words.astype(np.int64)

    def _mixed(self, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        bits = max(1, (self.count - 1).bit_length())
        mask = np.uint64(2**bits - 1)
        shift = np.uint64((bits + 1) // 2)
        for offset, multiplier in zip(self.offsets, self.multipliers, strict=True):
            words = words + np.uint64(offset)
            words *= np.uint64(multiplier)
            words &= mask
            words ^= words >> shift
        return words
