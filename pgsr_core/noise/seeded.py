"""Reproducible noise for simulation and tests: not private, and refused for releases."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from pgsr_core.noise.catalogue import SIMULATION
from pgsr_core.noise.protocol import Int, Progress


@dataclass(frozen=True)
class SeededSampler:
    """Double-geometric noise as a difference of two geometric draws of a seeded generator."""

    generator: np.random.Generator = field(repr=False)
    name: str = SIMULATION
    private: bool = False

    def add_noise(self, values: Int, *, scale: Fraction, progress: Progress | None = None) -> Int:
        """See Sampler."""
        success = -np.expm1(-1 / float(scale))
        shape = values.shape
        noise = self.generator.geometric(success, shape) - self.generator.geometric(success, shape)
        if progress is not None:
            progress(values.size)
        noisy: Int = values + noise
        return noisy
