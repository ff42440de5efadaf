"""privacy.json, and the wordings in which its sentences are written.

A bundle is verified years after it was made, so a wording that was published stays here for good,
and privacy.json names the one it is written in; the first, from before they had numbers, has none.
To change a sentence, write the new function beside the old one in words.py and add
``THIRD = replace(SECOND, version=3, assumptions=...)`` to WORDINGS and as CURRENT.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from pgsr_core.documents import words
from pgsr_core.documents.stated import SIMULATION_NOTICE, Stated

Sentences = Callable[[Stated], tuple[str, ...]]


@dataclass(frozen=True)
class Wording:
    """One way to put what is stated into words.

    Attributes:
        version: counted from 1.
        paragraphs: the statement, in full sentences.
        invariants: what is public or kept exactly.
        assumptions: what the guarantee takes for granted.
        not_protected: what the guarantee does not cover.
    """

    version: int
    paragraphs: Sentences
    invariants: Sentences
    assumptions: Sentences
    not_protected: Sentences


FIRST = Wording(
    version=1,
    paragraphs=words.paragraphs,
    invariants=words.invariants,
    assumptions=words.assumptions,
    not_protected=words.not_protected,
)
# Says what an input is, and that whether a run stopped is not protected.
SECOND = replace(
    FIRST,
    version=2,
    assumptions=words.assumptions_on_inputs,
    not_protected=words.not_protected_with_stops,
)
CURRENT = SECOND
WORDINGS: Mapping[int, Wording] = MappingProxyType(
    {wording.version: wording for wording in (FIRST, SECOND)}
)


def exact_and_decimal(value: Fraction) -> dict[str, Any]:
    """Give a fraction as p/q for the exact reader and as a number for the rest."""
    return {"exact": str(value), "decimal": float(value)}


def marked(document: Mapping[str, Any], *, simulation: bool) -> dict[str, Any]:
    """Return a document as it is written: a simulation says so in its first field."""
    notice = {"notice": SIMULATION_NOTICE} if simulation else {}
    return {**notice, "simulation": simulation, **document}


def privacy_document(facts: Stated, wording: Wording = CURRENT) -> dict[str, Any]:
    """Return privacy.json: the statement in words, then the same in fields."""
    return {
        **({"wording": wording.version} if wording is not FIRST else {}),
        "product": facts.product,
        "release": facts.release,
        "published_on": facts.published_on.isoformat(),
        "statement": list(wording.paragraphs(facts)),
        "definition": "pure ε-differential privacy",
        "population": facts.population,
        "unit_of_privacy": facts.unit_of_privacy,
        "neighbours": str(facts.neighbours),
        "neighbours_in_words": f"Two inputs are neighbours if "
        f"{words.NEIGHBOURS_IN_WORDS[facts.neighbours]}.",
        "epsilon": exact_and_decimal(facts.epsilon),
        "levels": [
            {
                "level": level.level,
                "regions": level.regions,
                "cells": level.cells,
                "epsilon": exact_and_decimal(level.epsilon),
                "scale": exact_and_decimal(level.scale),
                "expected_absolute_noise": level.expected_absolute_noise,
            }
            for level in facts.levels
        ],
        "mechanism": {
            "name": facts.mechanism,
            "notation": facts.notation,
            "query": str(facts.query),
            "noise": "double-geometric: P(X = v) = (1 - a)/(1 + a) * a^|v|, a = exp(-1/scale)",
            "sampler": facts.sampler,
        },
        "sensitivity": {
            "norm": "L1, one level of the region tree",
            "value": facts.sensitivity,
            "formula": words.sensitivity_formula(facts),
            "largest_contribution": facts.largest_contribution,
            "largest_size": facts.largest_size,
        },
        "sizes": {"smallest": facts.smallest_size, "largest": facts.largest_size},
        "units": "from-data" if facts.units_from_data else "public-table",
        "groups": facts.groups,
        "keeps_region_totals": facts.keeps_region_totals,
        "invariants": list(wording.invariants(facts)),
        "proviso": words.PROVISO if facts.units_from_data else None,
        "budget": {
            "population": facts.population,
            "spent": exact_and_decimal(facts.spent_on_population),
            "total": exact_and_decimal(facts.budget),
        },
        "lineage": _lineage(facts),
        "assumptions": list(wording.assumptions(facts)),
        "not_protected": list(wording.not_protected(facts)),
    }


def _lineage(facts: Stated) -> dict[str, Any]:
    free = facts.simulation or facts.lineage.reposted_from is not None
    added = Fraction(0) if free else facts.epsilon
    return {**facts.lineage.to_json(), "additional_epsilon": exact_and_decimal(added)}
