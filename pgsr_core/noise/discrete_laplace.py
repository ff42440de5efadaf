"""Exact discrete Laplace draws in integers, compiled, from words of a random stream.

The algorithm is Algorithm 2 of Canonne, Kamath and Steinke (*The Discrete Gaussian for
Differential Privacy*, 2020), with Bernoulli(exp(−γ)) by their Algorithm 1. All probabilities in it
are ratios of integers, and all arithmetic is on integers, so that there is nothing to round.

Exactness. Let the words be independent and uniform on {0, …, 2³² − 1}, and the scale t/s.

1. `_below(n)` is uniform on {0, …, n − 1} (Lemire 2019): of the words w with ⌊wn / 2³²⌋ = v those
   with wn mod 2³² ≥ 2³² mod n are kept, exactly ⌊2³²/n⌋ of them for every v.
2. `_bernoulli_exp(p, q)` is 1 with probability exp(−γ), γ = p/q ≤ 1: it counts K while
   independent events of probability γ/K happen, γ/K being the product of 1/K and p/q. K passes k
   with probability γᵏ/k!, so P(K is odd) = 1 − γ + γ²/2! − γ³/3! + … = exp(−γ).
3. U is uniform on {0, …, t − 1} and kept with probability exp(−U/t), V counts successes of
   probability exp(−1): P(U + tV = x) ∝ exp(−x/t) for every x ≥ 0. Then Y = ⌊(U + tV)/s⌋ has
   P(Y = y) ∝ exp(−ys/t). A fair sign, with −0 refused, makes P(Z = z) ∝ exp(−|z|s/t).

No overflow. t and every n are at most 2³¹ and a word is below 2³², so a product is below 2⁶³. Each
step of K and of V takes at least one word, and one draw sees at most `BUFFER_WORDS` of them, so K
and V stay below 2¹⁶ and tV below 2⁴⁷.

No draw is dropped. A long draw that happens to meet the end of the buffer must not be given up for
a new one: that would favour short draws, which are not distributed as all draws are. The kernel
reports such a draw as not done, with the position of its *first* word; the caller moves the words
from there on to the front of the buffer, adds new ones behind them, and the draw reads the same
words again. The result is the same function of the endless stream whatever the buffer's size.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pgsr_core.noise.protocol import Int

LARGEST_NUMERATOR = 2**31
LARGEST_DENOMINATOR = 2**62
BUFFER_WORDS = 2**15
_WORD = 32
_LOW = 2**_WORD - 1
_OUT_OF_WORDS = -1

Words = NDArray[np.uint32]
Refill = Callable[[memoryview], None]
"""Overwrites all of a piece of memory with the next bytes of a random stream."""


def draw_into(
    noise: Int,
    *,
    numerator: int,
    denominator: int,
    refill: Refill,
    buffer_words: int = BUFFER_WORDS,
) -> int:
    """Fill an array with independent draws of scale numerator/denominator.

    Args:
        noise: overwritten, one draw a cell.
        numerator: t, from 1 to LARGEST_NUMERATOR.
        denominator: s, from 1 to LARGEST_DENOMINATOR.
        refill: the stream.
        buffer_words: how many words are asked for at once; at most BUFFER_WORDS.

    Returns:
        The number of words that the draws have used.

    Raises:
        ArithmeticError: one draw used up a whole buffer. It takes 8 to 21 words on average and
            ends with a probability above 1/20 in any 16, so 2¹⁵, which would be needed with a
            probability below 2⁻¹⁰⁰, mean that the stream is not random.
    """
    if not (1 <= numerator <= LARGEST_NUMERATOR and 1 <= denominator <= LARGEST_DENOMINATOR):
        raise ValueError(f"the scale {numerator}/{denominator} does not fit the integers")
    if not 1 <= buffer_words <= BUFFER_WORDS:
        raise ValueError(f"a buffer has from 1 to {BUFFER_WORDS} words, not {buffer_words}")
    words = np.empty(buffer_words, dtype=np.uint32)
    done = used = 0
    unread = 0
    while done < noise.size:
        # Invariant: words[:unread] are those that come next in the stream.
        refill(words[unread:].data.cast("B"))
        before = done
        done, read = _draw_while_words_last(noise, done, words, numerator, denominator)
        if done == before:
            raise ArithmeticError("the random stream of the noise is not random")
        used += read
        unread = buffer_words - read
        words[:unread] = words[read:]
    return used


@njit(cache=True, nogil=True)
def _draw_while_words_last(
    noise: Int, done: int, words: Words, numerator: int, denominator: int
) -> tuple[int, int]:
    """Draw cells from `done` on; return how many are done and the first word not used by them."""
    at = 0
    while done < noise.size:
        value, after = _draw(words, at, numerator, denominator)
        if after == _OUT_OF_WORDS:
            break
        noise[done] = value
        done += 1
        at = after
    return done, at


@njit(cache=True, nogil=True)
def _draw(words: Words, at: int, numerator: int, denominator: int) -> tuple[int, int]:
    """Algorithm 2; the value and the word after its last, or _OUT_OF_WORDS in its place."""
    while True:
        uniform, at = _below(numerator, words, at)
        if uniform == _OUT_OF_WORDS:
            return 0, _OUT_OF_WORDS
        kept, at = _bernoulli_exp(uniform, numerator, words, at)
        if kept == _OUT_OF_WORDS:
            return 0, _OUT_OF_WORDS
        if kept == 0:
            continue
        more, at = _bernoulli_exp(1, 1, words, at)
        successes = 0
        while more == 1:
            successes += 1
            more, at = _bernoulli_exp(1, 1, words, at)
        if more == _OUT_OF_WORDS:
            return 0, _OUT_OF_WORDS
        size = (uniform + numerator * successes) // denominator
        negative, at = _below(2, words, at)
        if negative == _OUT_OF_WORDS:
            return 0, _OUT_OF_WORDS
        if (negative == 1) & (size == 0):
            continue
        return size * (1 - 2 * negative), at


@njit(cache=True, nogil=True)
def _bernoulli_exp(numerator: int, denominator: int, words: Words, at: int) -> tuple[int, int]:
    """Algorithm 1 for γ = numerator/denominator ≤ 1; 0, 1 or _OUT_OF_WORDS, and the next word."""
    trial = 1
    while True:
        if trial > 1:
            chosen, at = _below(trial, words, at)
            if chosen == _OUT_OF_WORDS:
                return _OUT_OF_WORDS, at
            if chosen != 0:
                break
        if numerator < denominator:
            chosen, at = _below(denominator, words, at)
            if chosen == _OUT_OF_WORDS:
                return _OUT_OF_WORDS, at
            if chosen >= numerator:
                break
        trial += 1
    return trial & 1, at


@njit(cache=True, nogil=True, inline="always")
def _below(bound: int, words: Words, at: int) -> tuple[int, int]:
    """Uniform on 0..bound − 1, or _OUT_OF_WORDS; and the next word."""
    while at < words.size:
        product = np.int64(words[at]) * np.int64(bound)
        at += 1
        low = product & _LOW
        # The remainder is below the bound, so that most words need no division.
        if low >= bound or low >= (_LOW + 1) % bound:
            return int(product >> _WORD), at
    return _OUT_OF_WORDS, at
