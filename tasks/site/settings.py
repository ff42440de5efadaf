"""How a release was configured, as its own documents say it, and what differs from another's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pgsr_core.documents.words import in_words
from pgsr_core.margins import MARGINS
from tasks.configuration.model import Configuration
from tasks.site.bundles import Bundle

UNKNOWN = "–"
# Addresses and variables of an office's own channels are nobody's business, not even inside.
_LEFT_OUT = frozenset({"alerts"})


@dataclass(frozen=True)
class Setting:
    """One setting in two releases."""

    name: str
    earlier: str
    later: str

    @property
    def changed(self) -> bool:
        """Whether it is another one now."""
        return self.earlier != self.later


def compare_settings(earlier: Bundle, later: Bundle) -> tuple[Setting, ...]:
    """Everything that the documents of two releases say about their settings."""
    said, after = settings_of(earlier), settings_of(later)
    return tuple(Setting(name, said[name], after[name]) for name in after)


def settings_of(bundle: Bundle) -> dict[str, str]:
    """The public settings of a release."""
    privacy = bundle.privacy
    levels = [level for level in privacy.get("levels") or () if isinstance(level, Mapping)]
    mechanism = f"{_at(privacy, 'mechanism', 'name')} ({_at(privacy, 'mechanism', 'notation')})"
    sizes = f"{_at(privacy, 'sizes', 'smallest')} to {_at(privacy, 'sizes', 'largest')}"
    return {
        "Population": _at(privacy, "population"),
        "Unit of privacy": _at(privacy, "unit_of_privacy"),
        "Neighbours": _at(privacy, "neighbours"),
        "Privacy loss ε": _exact(privacy, "epsilon"),
        "ε of each level": ", ".join(_at(level, "epsilon", "exact") for level in levels),
        "Scale of noise of each level": ", ".join(_at(level, "scale", "exact") for level in levels),
        "Mechanism": mechanism,
        "What is measured": _at(privacy, "mechanism", "query"),
        "Sampler": _at(privacy, "mechanism", "sampler"),
        "Sizes": sizes,
        "Most that one record adds": _at(privacy, "sensitivity", "largest_contribution"),
        "Units": _at(privacy, "units"),
        "Groups in all": _at(privacy, "groups"),
        "Regions of each level": ", ".join(_at(level, "regions") for level in levels),
        "Margins of error": "stated" if bundle.table(MARGINS) else "not stated",
        "Simulations for typical margins": _at(
            bundle.checks, "certificates", MARGINS, "repetitions"
        ),
        "Budget of the population": _exact(privacy, "budget", "total"),
        "Simulation": "yes" if privacy.get("simulation") else "no",
        "Software": _at(bundle.package, "generator"),
    }


def compare_configurations(
    earlier: Configuration | None, later: Configuration | None
) -> tuple[Setting, ...]:
    """What differs between two configurations, paths and all; for operators only."""
    if earlier is None or later is None:
        return ()
    before, after = (dict(_flat(c.model_dump(mode="json"))) for c in (earlier, later))
    found = (
        Setting(name, before.get(name, UNKNOWN), after.get(name, UNKNOWN))
        for name in sorted(before.keys() | after.keys())
    )
    return tuple(setting for setting in found if setting.changed)


def _flat(document: Mapping[str, Any], *above: str) -> Iterator[tuple[str, str]]:
    for name, value in document.items():
        if name in _LEFT_OUT and not above:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, *above, name)
        else:
            yield ".".join((*above, name)), _text(value)


def _text(value: Any) -> str:
    if value is None:
        return UNKNOWN
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _at(document: Mapping[str, Any], *path: str) -> str:
    """What a document says at a place; a dash where an older one says nothing."""
    found: Any = document
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return UNKNOWN if found is None else str(found)


def _exact(document: Mapping[str, Any], *path: str) -> str:
    text = _at(document, *path, "exact")
    try:
        return in_words(Fraction(text))
    except (ValueError, ZeroDivisionError):
        return text
