"""The samplers by name: which a release may choose, and what each of them is, in words."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

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


SAMPLERS_IN_WORDS: Mapping[str, str] = MappingProxyType(
    {
        ReleaseSampler.OPENDP: "the discrete Laplace sampler of the OpenDP library, exact on "
        "integers, with randomness from the operating system",
        ReleaseSampler.FAST_EXACT: "pgsr's compiled form of the discrete Laplace sampler of "
        "Canonne, Kamath and Steinke (2020), exact on integers, with randomness from AES-256 in "
        "counter mode under keys from the operating system",
        SIMULATION: "a seeded generator, which gives no privacy",
    }
)
