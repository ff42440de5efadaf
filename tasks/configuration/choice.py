"""`mechanism: auto`: the measured results that are shipped, and what they say of a release."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from pgsr_core.hierarchy import RegionTree
from pgsr_core.mechanisms import MECHANISMS
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.selection import Choice, MeasuredResults, MeasuredSetting, Shape, choose
from pgsr_core.sensitivity import l1_sensitivity
from tasks.configuration.model import Configuration

CHOSEN_FROM = frozenset(name for name, known in MECHANISMS.items() if known.requires is None)
MEASURED = Path(__file__).with_name("measured.json")


def choose_mechanism(configuration: Configuration, tree: RegionTree) -> Choice:
    """Choose from the shipped results, by public facts only."""
    sizes = configuration.sizes
    sensitivity = l1_sensitivity(
        Query.CUMULATIVE,
        neighbours=configuration.privacy.neighbours,
        largest_contribution=sizes.largest_contribution,
        largest_size=sizes.max,
        units_from_data=configuration.units_from_data,
    )
    shape = Shape(
        levels=tree.levels,
        leaves=len(tree.leaves),
        largest_size=sizes.max,
        public_units=not configuration.units_from_data,
        epsilon=configuration.privacy.epsilon / sensitivity,
    )
    return choose(shape, shipped_results())


@cache
def shipped_results() -> MeasuredResults:
    """The results that come with this version."""
    return read_results(json.loads(MEASURED.read_text(encoding="utf-8")))


def read_results(document: dict[str, Any]) -> MeasuredResults:
    """Read {command, repetitions, settings}.

    Each setting has data, levels, leaves, largest_size, public_units, epsilon (exact, as text)
    and ratios (by mechanism); more keys may be there. Mechanisms that cannot publish, or only
    small tables, are left out.
    """
    return MeasuredResults(
        command=str(document["command"]),
        repetitions=int(document["repetitions"]),
        settings=tuple(_setting(row) for row in document["settings"]),
    )


def _setting(row: dict[str, Any]) -> MeasuredSetting:
    ratios = {name: float(ratio) for name, ratio in row["ratios"].items() if name in CHOSEN_FROM}
    shape = Shape(
        levels=int(row["levels"]),
        leaves=int(row["leaves"]),
        largest_size=int(row["largest_size"]),
        public_units=bool(row["public_units"]),
        epsilon=Fraction(str(row["epsilon"])),
    )
    return MeasuredSetting(str(row["data"]), shape, ratios)
