"""Samplers as one could have got them wrong, each in the place of OpenDP's.

Light to import: a new process plants them as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from types import MappingProxyType
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from pgsr_core.noise.opendp import OpenDPSampler
from pgsr_core.noise.protocol import Int, Progress, Sampler

SEED = 20260701
_sound = OpenDPSampler.add_noise


def _double_geometric(generator: np.random.Generator, shape: tuple[int, ...], scale: float) -> Int:
    success = -np.expm1(-1 / scale)
    noise: Int = generator.geometric(success, shape) - generator.geometric(success, shape)
    return noise


def _opendp(values: Int, scale: Fraction) -> Int:
    return _sound(OpenDPSampler(), values, scale=scale)


def float_noise(values: Int, scale: Fraction) -> NDArray[np.float64]:
    """The textbook's Laplace mechanism, in floating point."""
    noisy: NDArray[np.float64] = values + np.random.default_rng().laplace(
        scale=float(scale), size=values.shape
    )
    return noisy


def rounded_float_noise(values: Int, scale: Fraction) -> Int:
    """The same, rounded, so that it looks right."""
    return np.rint(float_noise(values, scale)).astype(np.int64)


def noise_on_positive_cells(values: Int, scale: Fraction) -> Int:
    """A sparse table: what is not there is not measured."""
    noisy = values.copy()
    noisy[values != 0] = _opendp(values[values != 0], scale)
    return noisy


def one_sided_noise(values: Int, scale: Fraction) -> Int:
    """A geometric draw instead of the difference of two."""
    success = -np.expm1(-1 / float(scale))
    return values + np.random.default_rng().geometric(success, values.shape) - 1


def clipped_noise(values: Int, scale: Fraction) -> Int:
    """Counts are never negative, are they?"""
    return np.maximum(_opendp(values, scale), 0)


def reused_seed(values: Int, scale: Fraction) -> Int:
    """A seed left in the code: every draw starts from it."""
    return values + _double_geometric(np.random.default_rng(SEED), values.shape, float(scale))


class _SeededOnce:
    """A generator that the operating system seeds when the module is loaded, and never again."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng()

    def __call__(self, values: Int, scale: Fraction) -> Int:
        return values + _double_geometric(self._generator, values.shape, float(scale))


BUGGY_SAMPLERS: Mapping[str, Callable[[Int, Fraction], NDArray[np.generic]]] = MappingProxyType(
    {
        "float noise": float_noise,
        "rounded float noise": rounded_float_noise,
        "noise on non-zero cells only": noise_on_positive_cells,
        "one-sided noise": one_sided_noise,
        "clipped at zero": clipped_noise,
        "reused seed": reused_seed,
        "generator copied by fork": _SeededOnce(),
    }
)


@contextmanager
def with_sampler_bug(name: str) -> Iterator[None]:
    """Draw with a buggy sampler wherever the product believes it has OpenDP's."""
    buggy = BUGGY_SAMPLERS[name]

    def add_noise(
        _self: Sampler, values: Int, *, scale: Fraction, progress: Progress | None = None
    ) -> NDArray[np.generic]:
        if progress is not None:
            progress(values.size)
        return buggy(values, scale)

    with mock.patch.object(OpenDPSampler, "add_noise", add_noise):
        yield
