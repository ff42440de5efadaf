"""The compiled sampler draws what its slow twin draws, and the twin's probabilities are exact."""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest

from pgsr_core.noise import fast_exact
from pgsr_core.noise.discrete_laplace import (
    BUFFER_WORDS,
    LARGEST_DENOMINATOR,
    LARGEST_NUMERATOR,
    draw_into,
)
from pgsr_core.noise.fast_exact import FastExactSampler
from tests.core import noise_oracle

CELLS = 3_000
STREAM = hashlib.shake_256(b"one endless stream").digest(4 * 40 * CELLS)
RATIOS = [
    (1, 1),
    (2, 1),
    (7, 3),
    (1, 5),
    (1_000_001, 7),
    (3 * 2**29, 1),
    (LARGEST_NUMERATOR, 1),
    (LARGEST_NUMERATOR - 1, 3),
    (1, LARGEST_DENOMINATOR),
]


def reader(stream):
    """The stream, from its start."""
    at = 0

    def refill(memory):
        nonlocal at
        memory[:] = stream[at : at + memory.nbytes]
        at += memory.nbytes

    return refill


@pytest.mark.parametrize(("t", "s"), RATIOS)
@pytest.mark.parametrize("buffer_words", [300, 4096])
def test_the_same_stream_gives_the_draws_of_the_slow_twin_wherever_the_buffer_ends(
    t, s, buffer_words
):
    noise = np.empty(CELLS, dtype=np.int64)
    used = draw_into(
        noise, numerator=t, denominator=s, refill=reader(STREAM), buffer_words=buffer_words
    )
    words = noise_oracle.words_of(STREAM)
    below = noise_oracle.below_from(words)
    assert noise.tolist() == [noise_oracle.draw(t, s, below) for _ in range(CELLS)]
    assert used == len(STREAM) // 4 - sum(1 for _ in words)
    assert used > 20 * 300, "the small buffer must have ended within many draws"


class _NeedsChoice(Exception):
    def __init__(self, bound):
        self.bound = bound


def outcomes(t, s, *, least):
    """Probability of each outcome of one attempt, by trying every choice; and what is left out."""
    found, left_out = {}, Fraction(0)
    waiting = [((), Fraction(1))]
    while waiting:
        made, probability = waiting.pop()
        choices = iter(made)

        def below(bound, choices=choices):
            for choice in choices:
                return choice
            raise _NeedsChoice(bound)

        try:
            outcome = noise_oracle.attempt(t, s, below)
        except _NeedsChoice as needed:
            if probability / needed.bound < least:
                left_out += probability
            else:
                each = probability / needed.bound
                waiting += [((*made, choice), each) for choice in range(needed.bound)]
        else:
            found[outcome] = found.get(outcome, 0) + probability
    return found, left_out


def agrees(found, left_out, scale):
    """Whether double-geometric noise can have these probabilities, given what was left out.

    The attempts that were not followed to their end may have any outcome, or none.
    """
    kept = 1 - found[None]
    decay = math.exp(-1 / float(scale))
    for value in range(-3, 4):
        stated = (1 - decay) / (1 + decay) * decay ** abs(value)
        least, most = found.get(value, 0), found.get(value, 0) + left_out
        if not least / kept <= stated + 1e-12 <= most / (kept - left_out) + 2e-12:
            return False
    return True


@pytest.mark.parametrize(("t", "s"), [(1, 1), (2, 1), (3, 2), (1, 3)])
def test_the_algorithm_has_the_probabilities_of_double_geometric_noise_by_trying_all_choices(t, s):
    found, left_out = outcomes(t, s, least=Fraction(1, 100_000))
    scale = Fraction(t, s)
    assert agrees(found, left_out, scale)
    assert not agrees(found, left_out, scale * Fraction(9, 10))
    assert not agrees(found, left_out, scale * Fraction(11, 10))


@pytest.mark.parametrize("bound", range(1, 129))
def test_a_uniform_integer_keeps_the_same_number_of_words_for_every_value(bound):
    kept = [0] * bound
    for word in range(256):
        try:
            kept[noise_oracle.below_from(iter([word]), bits=8)(bound)] += 1
        except StopIteration:
            continue
    assert kept == [256 // bound] * bound


def test_a_stream_that_is_not_random_is_an_error_and_not_an_endless_loop():
    def zeros(memory):
        memory[:] = bytes(memory.nbytes)

    with pytest.raises(ArithmeticError, match="not random"):
        draw_into(np.empty(5, dtype=np.int64), numerator=3, denominator=1, refill=zeros)


@pytest.mark.parametrize(
    "wrong",
    [
        {"numerator": 0},
        {"numerator": LARGEST_NUMERATOR + 1},
        {"denominator": 0},
        {"denominator": LARGEST_DENOMINATOR + 1},
        {"buffer_words": 0},
        {"buffer_words": BUFFER_WORDS + 1},
    ],
)
def test_what_would_not_fit_the_integers_is_refused(wrong):
    right = {"numerator": 1, "denominator": 1, "refill": reader(STREAM)}
    with pytest.raises(ValueError, match=r"scale|buffer"):
        draw_into(np.empty(5, dtype=np.int64), **{**right, **wrong})


@pytest.mark.parametrize("value", [2**62 + 1, -(2**62) - 1])
def test_a_value_that_noise_could_push_out_of_the_integers_is_refused(value):
    with pytest.raises(OverflowError):
        FastExactSampler().add_noise(np.array([0, value]), scale=Fraction(1))


def test_every_piece_of_a_call_has_a_key_of_its_own_from_the_operating_system(monkeypatch):
    asked = []

    def urandom(count):
        asked.append(bytes([len(asked)]) * count)
        return asked[-1]

    monkeypatch.setattr(fast_exact, "CELLS_A_PIECE", 7)
    monkeypatch.setattr(fast_exact.os, "urandom", urandom)
    FastExactSampler().add_noise(np.zeros(20, dtype=np.int64), scale=Fraction(5))
    keys = [key for key in asked if len(key) == 32]
    assert len(keys) == len(set(keys)) == 3


def test_nothing_but_what_the_operating_system_gives_decides_a_draw(monkeypatch):
    """Also the power of the tests on fresh noise: with keys that repeat, so does the noise."""
    monkeypatch.setattr(fast_exact.os, "urandom", lambda count: b"k" * count)
    one, other = (
        FastExactSampler().add_noise(np.zeros(200, dtype=np.int64), scale=Fraction(50))
        for _ in range(2)
    )
    assert (one == other).all()
