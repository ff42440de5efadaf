"""How large a release may be: what is beyond is refused before anything is measured.

One place for those who make a release and those who verify one, so that nothing is published that
its own verifier would refuse.
"""

from __future__ import annotations

# Rows of a table of counts, and of the table of regions.
MOST_CELLS = 1 << 29
MOST_REGIONS = 1 << 24
# Marginal costs stay below this, and "no unit to take" (2^62) above any sum of two of them.
LARGEST_COST = 2**60
_LARGEST_INTEGER = 2**63 - 1
# Noise of scale b passes t·b with probability e^-t: in all of 2^29 cells once in 2^64 releases.
_SCALES_AWAY = 65


def largest_measurement(*, groups: int, scale: int) -> int:
    """A magnitude that no measurement passes, but for odds that nobody will ever see."""
    return groups + _SCALES_AWAY * scale


def largest_isotonic_value(columns: int) -> int:
    """The largest magnitude for which no 64-bit product of the isotonic solver can overflow.

    With values and the lower bound within ±M, a block's sum is within ±M·K; it is multiplied
    by a length of at most K when slopes are compared; the height over a line, 2s − (2·lower +
    1)·k, is within ±5·M·K.
    """
    return _LARGEST_INTEGER // max(columns * max(columns, 5), 1)


def largest_consistent_value(*, regions: int, levels: int) -> int:
    """The same for the consistent counts of a tree: see _cost_bound of pgsr_core.solvers.cpwl.

    With values and the number of groups within ±M, a pool's sum is within 2·R·(3M + 2), and a
    path's marginal cost within L·(5M + 4).
    """
    return min(LARGEST_COST // (6 * regions), LARGEST_COST // (5 * levels)) - 1
