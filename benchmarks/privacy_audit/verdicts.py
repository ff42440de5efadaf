"""What a test of the claim says: a p-value, adjusted for everything that the test looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# With eight tests a sound round is accused less than once in a million, also where chi-square's
# own tail is ten times as heavy as its formula says (see distribution.py).
ALARM = 1e-8


@dataclass(frozen=True)
class Verdict:
    """How likely a sound mechanism looks at least this bad, and where it looked worst."""

    p_value: float
    where: str

    @property
    def alarm(self) -> bool:
        return self.p_value < ALARM


def worst(p_values: Mapping[str, float]) -> Verdict:
    """The smallest of several p-values, times their number (Bonferroni)."""
    where = min(p_values, key=p_values.__getitem__)
    return Verdict(min(1.0, float(p_values[where]) * len(p_values)), where)


def certain(broken: Mapping[str, bool]) -> Verdict:
    """The verdict on rules that no sound run ever breaks."""
    found = [rule for rule, is_broken in broken.items() if is_broken]
    return Verdict(0.0, "; ".join(found)) if found else Verdict(1.0, "every rule holds")
