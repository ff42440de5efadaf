"""Noise from OpenDP: exact on integers, seeded by the operating system only."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pgsr_core.noise.protocol import Int, Progress
from pgsr_core.scales import float_at_least

CELLS_A_CALL = 50_000


@dataclass(frozen=True)
class OpenDPSampler:
    """The discrete Laplace mechanism of OpenDP; the default of releases.

    OpenDP takes the scale as a float and samples exactly for that float's rational value, so
    the scale is rounded up first. Its own privacy map is consulted for each scale as a second
    opinion: it must not claim more than 1/scale for a change of one.
    """

    name: str = "opendp"
    private: bool = True

    def add_noise(self, values: Int, *, scale: Fraction, progress: Progress | None = None) -> Int:
        """See Sampler."""
        # Not the prelude, which imports scikit-learn as well.
        from opendp.domains import atom_domain, vector_domain
        from opendp.measurements import make_laplace
        from opendp.metrics import l1_distance
        from opendp.mod import enable_features

        enable_features("contrib")
        rounded = float_at_least(scale)
        measurement = make_laplace(
            vector_domain(atom_domain(T="i64")), l1_distance(T="i64"), scale=rounded
        )
        # OpenDP's map is itself rounded up, hence the one unit in the last place.
        if not measurement.map(1) <= np.nextafter(1 / rounded, np.inf):
            raise ArithmeticError("OpenDP's privacy map disagrees with the scale it was given")
        flat = np.ascontiguousarray(values, dtype=np.int64).ravel()
        noisy = np.empty_like(flat)
        for start in range(0, flat.size, CELLS_A_CALL):
            stop = min(start + CELLS_A_CALL, flat.size)
            # A copy of the piece: OpenDP takes no array that is read-only.
            noisy[start:stop] = measurement(flat[start:stop].copy())
            if progress is not None:
                progress(stop - start)
        return noisy.reshape(values.shape)
