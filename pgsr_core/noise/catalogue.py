"""The samplers by name: which of them a release may choose."""

from __future__ import annotations

from enum import StrEnum

from pgsr_core.noise.protocol import Sampler

SIMULATION = "seeded-simulation"


class ReleaseSampler(StrEnum):
    """What `privacy.sampler` may name; a seeded generator is not among them."""

    OPENDP = "opendp"
    FAST_EXACT = "fast-exact"

    def make(self) -> Sampler:
        """Return the sampler. Its libraries are imported here, not by those who ask for names."""
        if self is ReleaseSampler.FAST_EXACT:
            from pgsr_core.noise.fast_exact import FastExactSampler

            return FastExactSampler()
        from pgsr_core.noise.opendp import OpenDPSampler

        return OpenDPSampler()
