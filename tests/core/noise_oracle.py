"""The slow, obvious twin of the compiled sampler: the algorithms of the paper, word by word."""

from __future__ import annotations

from collections.abc import Callable, Iterator

Below = Callable[[int], int]
"""Uniform on 0..n − 1."""


def below_from(words: Iterator[int], *, bits: int = 32) -> Below:
    """Uniform integers from uniform words, by Lemire's rule."""

    def below(bound: int) -> int:
        while True:
            product = next(words) * bound
            if product % 2**bits >= 2**bits % bound:
                return product // 2**bits

    return below


def words_of(stream: bytes) -> Iterator[int]:
    """Words of 32 bits, lowest byte first."""
    return (int.from_bytes(stream[at : at + 4], "little") for at in range(0, len(stream), 4))


def happens(numerator: int, denominator: int, below: Below) -> bool:
    """An event of probability numerator/denominator; what is certain needs no randomness."""
    return numerator == denominator or below(denominator) < numerator


def bernoulli_exp(numerator: int, denominator: int, below: Below) -> bool:
    """Algorithm 1 of Canonne, Kamath and Steinke, for γ = numerator/denominator ≤ 1."""
    k = 1
    while happens(1, k, below) and happens(numerator, denominator, below):
        k += 1
    return k % 2 == 1


def attempt(t: int, s: int, below: Below) -> int | None:
    """One turn of the loop of Algorithm 2, for scale t/s; None: start again."""
    u = below(t)
    if not bernoulli_exp(u, t, below):
        return None
    v = 0
    while bernoulli_exp(1, 1, below):
        v += 1
    y = (u + t * v) // s
    if below(2) == 1:
        return -y if y > 0 else None
    return y


def draw(t: int, s: int, below: Below) -> int:
    """Algorithm 2."""
    while True:
        found = attempt(t, s, below)
        if found is not None:
            return found
