"""The audited products: small populations of which everything is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from pgsr_core.noise.catalogue import ReleaseSampler
from tasks.storage.places import BESIDE
from tasks.storage.zones import Home

BUDGET = 10**9
POPULATION = "residents"
BASE = "base"
# What a neighbour of the base differs in: a unit, and the people that it has instead.
CHANGES = {"3 to 2": ("a-0", 2), "1 to gone": ("a-1", 0), "0 to 1": ("a-2", 1)}


@dataclass(frozen=True)
class Product:
    """A product to be released for the audit, with the truth behind it.

    Attributes:
        parents: region → parent; the root's is empty.
        leaf_of: the public unit table, unit → leaf region.
        people: unit → number of people; a unit that is not there has none.
        largest_contribution: Z; here everyone adds one, but the claim covers up to Z.
    """

    name: str
    parents: Mapping[str, str]
    leaf_of: Mapping[str, str]
    people: Mapping[str, int]
    largest_size: int
    epsilon: Fraction
    neighbours: str = "add-remove"
    largest_contribution: int = 1
    sampler: ReleaseSampler = ReleaseSampler.OPENDP

    def write(self, folder: Path) -> None:
        """Write the source files, and make a state folder for them beside the configuration."""
        Home(folder.absolute() / BESIDE).create_for_example(POPULATION)
        rows = {
            "regions": ["region,parent", *(f"{r},{p}" for r, p in self.parents.items())],
            "units": ["unit,region", *(f"{u},{r}" for u, r in self.leaf_of.items())],
            "persons": ["person_id,unit_id,region_id", *self._persons()],
        }
        for table, lines in rows.items():
            (folder / f"{self.name}-{table}.csv").write_text("\n".join(lines) + "\n")

    def configuration(self, folder: Path, release: str) -> Path:
        """Write the configuration of one release."""
        path = folder / f"{self.name}.yaml"
        path.write_text(
            f"product: {self.name}\n"
            f'release: "{release}"\n'
            f'population: {{name: {POPULATION}, budget: "{BUDGET}", unit_of_privacy: person}}\n'
            "source:\n"
            f"  persons: {self.name}-persons.csv\n"
            "  columns: {person: person_id, unit: unit_id, region: region_id, quantity: null}\n"
            f"regions: {self.name}-regions.csv\n"
            f"units: {self.name}-units.csv\n"
            f"sizes: {{max: {self.largest_size}, "
            f"largest_contribution: {self.largest_contribution}}}\n"
            f'privacy: {{epsilon: "{self.epsilon}", neighbours: {self.neighbours}, '
            f"split: uniform, sampler: {self.sampler}}}\n"
            "mechanism: cumulative\n"
            "publish: {to: public, formats: [parquet, csv]}\n"
            "resources: {threads: 1}\n"
        )
        return path

    def _persons(self) -> Iterator[str]:
        person = 0
        for unit, size in self.people.items():
            for _ in range(size):
                person += 1
                yield f"p{person},{unit},{self.leaf_of[unit]}"

    @property
    def levels(self) -> int:
        return max(self._depth(region) for region in self.parents)

    def _depth(self, region: str) -> int:
        above = self.parents[region]
        return 1 if not above else 1 + self._depth(above)

    def scale(self) -> Fraction:
        """The scale of the noise that ε calls for, derived here and not asked of the product.

        The sensitivity is the definition written out: the most thresholds k = 1..N that a unit
        of any size passes when one record joins it; twice that where a record is replaced. One
        record is counted once in each level, so the levels share ε.
        """
        before = np.arange(self.largest_size + 1)[:, None]
        thresholds = np.arange(1, self.largest_size + 1)
        sensitivity = max(
            int(((before + added >= thresholds) != (before >= thresholds)).sum(axis=1).max())
            for added in range(self.largest_contribution + 1)
        )
        records = {"add-remove": 1, "replace": 2}[self.neighbours]
        return Fraction(records * sensitivity * self.levels) / self.epsilon


def unit_scale(sampler: ReleaseSampler) -> Product:
    """Noise of scale 1, where a wrong shape shows best."""
    return replace(_wide(), name="unit-scale", epsilon=Fraction(3), sampler=sampler)


def production_scale(sampler: ReleaseSampler) -> Product:
    """Noise of scale 6, as one gets from ε = 1/2 over three levels, by way of Z and replacement."""
    return replace(
        _wide(), name="production", neighbours="replace", largest_contribution=2, sampler=sampler
    )


def _wide() -> Product:
    """Seven regions in three levels, and sizes of which half are empty in every region."""
    parents = {"all": "", "a": "all", "b": "all", "a1": "a", "a2": "a", "b1": "b", "b2": "b"}
    leaf_of = {f"{leaf}-{unit}": leaf for leaf in ("a1", "a2", "b1", "b2") for unit in range(6)}
    people = {unit: 250 if unit.endswith("-0") else 3 for unit in leaf_of}
    return Product("wide", parents, leaf_of, people, largest_size=500, epsilon=Fraction(2))


def neighbours(sampler: ReleaseSampler) -> dict[str, Product]:
    """A small population and its neighbours, by what is changed; ε is 2 over two levels."""
    parents = {"all": "", "a": "all", "b": "all"}
    leaf_of = {f"{leaf}-{unit}": leaf for leaf in ("a", "b") for unit in range(6)}
    people = {"a-0": 3, "a-1": 1, "a-3": 5, "b-0": 2, "b-1": 1, "b-2": 4}
    base = Product(
        BASE, parents, leaf_of, people, largest_size=5, epsilon=Fraction(2), sampler=sampler
    )
    changed = {
        change: replace(base, name=change.replace(" ", "-"), people={**people, unit: size})
        for change, (unit, size) in CHANGES.items()
    }
    return {BASE: base, **changed}
