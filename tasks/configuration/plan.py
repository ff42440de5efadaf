"""The plan: everything that a release will do, decided before anything is done.

A plan is made from the configuration and the public inputs only (region tree, unit table), so
it can be shown, stored and charged for without touching the persons.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from stat import S_ISDIR
from typing import Annotated, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainSerializer

from pgsr_core.budget import balanced_shares, optimised_shares, split_over_levels
from pgsr_core.canonical import json_digest
from pgsr_core.description import BESIDES_THE_KEY, FROM_DATA
from pgsr_core.errors import PgsrError
from pgsr_core.hierarchy import RegionTree
from pgsr_core.mechanisms import AUTO, MECHANISMS, Mechanism
from pgsr_core.noise.catalogue import SIMULATION
from pgsr_core.noise.protocol import DISTRIBUTION
from pgsr_core.scales import expected_absolute_noise
from pgsr_core.selection import Choice
from pgsr_core.sensitivity import l1_sensitivity
from tasks.configuration.choice import choose_mechanism
from tasks.configuration.loading import ConfigurationError, LoadedConfiguration, Location, Problem
from tasks.configuration.model import Configuration, OptimisedSplit, render_release
from tasks.configuration.names import new_release
from tasks.configuration.reach import out_of_reach
from tasks.configuration.section import Section
from tasks.ingestion.files import find_table
from tasks.ingestion.regions import RegionTable, read_regions
from tasks.ingestion.source_digest import SourceFiles, resolve_source
from tasks.ingestion.units import PublicUnits, read_units

T = TypeVar("T")
# A configured number has few digits; what follows from it (ε · share, Δ/ε) may have many.
Derived = Annotated[Fraction, BeforeValidator(Fraction), PlainSerializer(str, when_used="json")]


class LevelPlan(Section):
    """What is measured at one level of the tree; level 1 is the root."""

    level: int
    regions: int
    cells: int
    epsilon: Derived
    scale: Derived
    expected_error: float = Field(description="expected absolute noise of one measured cell")

    @property
    def expected_total_error(self) -> float:
        """Expected absolute noise of all cells of the level together."""
        return self.expected_error * self.cells


class ReleasePlan(Section):
    """A decided release: what the stages obey and what the ledger charges for."""

    configuration: Configuration
    folder: str
    release: str
    slot: datetime = Field(description="on the clock that names the release")
    code_version: str
    tree_digest: str
    units_digest: str | None
    groups: int | None = Field(description="public number of groups; None: from the data")
    groups_digest: str | None = Field(description="of the public number of groups by region")
    sensitivity: int
    levels: tuple[LevelPlan, ...]

    @property
    def product(self) -> str:
        """The product's name."""
        return self.configuration.product

    @property
    def mechanism(self) -> Mechanism:
        """The query and the steps."""
        return MECHANISMS[self.configuration.mechanism]

    @property
    def smallest_size(self) -> int:
        """0 where a public unit table tells of empty units, else 1."""
        return self.sizes.start

    @property
    def sizes(self) -> range:
        """The published sizes."""
        return self.configuration.published_sizes

    @property
    def measured_sizes(self) -> range:
        """The sizes of the measured query; see Query.measured_sizes."""
        return self.mechanism.query.measured_sizes(self.sizes)

    @property
    def scales(self) -> tuple[Fraction, ...]:
        """Scale of the noise of each level, root first."""
        return tuple(level.scale for level in self.levels)

    @property
    def sampler(self) -> str:
        """The name of what draws the noise."""
        chosen = self.configuration.privacy.sampler
        return SIMULATION if self.configuration.simulate else str(chosen)

    @property
    def weights(self) -> tuple[Fraction, ...]:
        """What an error at each level counts; 1 each where no objective was declared."""
        split = self.configuration.privacy.split
        if isinstance(split, OptimisedSplit):
            return split.optimise.weights
        return (Fraction(1),) * len(self.levels)

    @property
    def levels_if_uniform(self) -> tuple[LevelPlan, ...]:
        """What the levels would be with ε split equally, to compare with."""
        return _levels(self.configuration, [level.regions for level in self.levels], shares=None)

    @property
    def destination(self) -> Path:
        """The bundle's folder."""
        to = Path(self.folder) / self.configuration.publish.to
        return to / self.product / self.release

    @property
    def configuration_digest(self) -> str:
        """SHA-256 of the decided configuration; paths of this machine are part of its input."""
        return json_digest(self.configuration.model_dump(mode="json"))

    @property
    def cost(self) -> Fraction:
        """What is charged; a simulation is not private, so no ε describes it."""
        return Fraction(0) if self.configuration.simulate else self.configuration.privacy.epsilon

    def source_files(self) -> SourceFiles:
        """The person files of this release's slot."""
        return resolve_source(self.configuration.source, folder=Path(self.folder), slot=self.slot)

    def measurement_descriptor(self, source_digest: str) -> dict[str, object]:
        """Everything that the draw depends on, and all that will be stated about it.

        Post-processing is not part of it. The noise follows from the rest; it is said all the
        same, so that whoever accounts for it later does not depend on the sensitivity that a later
        version would compute.
        """
        configuration = self.configuration
        return {
            "population": configuration.population.name,
            "product": self.product,
            "release": self.release,
            "query": str(self.mechanism.query),
            "neighbours": str(configuration.privacy.neighbours),
            "epsilon": str(configuration.privacy.epsilon),
            "split": [str(level.epsilon) for level in self.levels],
            "largest_contribution": configuration.sizes.largest_contribution,
            "largest_size": configuration.sizes.max,
            "regions": self.tree_digest,
            "units": self.units_digest or FROM_DATA,
            "simulation": configuration.simulate,
            "source": source_digest,
            "noise": {
                "distribution": DISTRIBUTION,
                "sensitivity": self.sensitivity,
                "scales": [str(scale) for scale in self.scales],
            },
            "sampler": self.sampler,
            "unit_of_privacy": configuration.population.unit_of_privacy,
        }

    def measurement_key(self, source_digest: str) -> str:
        """The digest of what tells one draw from another: one key, one draw."""
        descriptor = self.measurement_descriptor(source_digest)
        return json_digest(
            {part: said for part, said in descriptor.items() if part not in BESIDES_THE_KEY}
        )


@dataclass(frozen=True)
class Planned:
    """A plan with the public inputs that it was made from, and why its mechanism was chosen."""

    plan: ReleasePlan
    regions: RegionTable
    groups_by_region: NDArray[np.int64] | None
    choice: Choice | None = None


def groups_digest(groups_by_region: NDArray[np.int64] | None) -> str | None:
    """SHA-256 of the public number of groups of each region, in tree order."""
    if groups_by_region is None:
        return None
    return hashlib.sha256(groups_by_region.astype("<i8").tobytes()).hexdigest()


def make_plan(loaded: LoadedConfiguration, *, slot: date) -> Planned:
    """Decide a release from its configuration and public inputs.

    Raises:
        ConfigurationError: with every problem of the configuration's facts at once.
    """
    configuration = loaded.configuration
    slot = configuration.on_its_clock(slot)
    problems: list[Problem] = []

    def attempt(location: Location, action: Callable[[], T]) -> T | None:
        try:
            return action()
        except (PgsrError, ValueError) as error:
            problems.append(loaded.problem(location, str(error)))
            return None

    release = attempt(("release",), lambda: new_release(render_release(configuration, slot)))
    attempt(
        ("source", "persons"),
        lambda: resolve_source(configuration.source, folder=loaded.folder, slot=slot),
    )
    regions = attempt(
        ("regions",), lambda: read_regions(configuration.regions, folder=loaded.folder)
    )
    problems += _misplaced(loaded)
    units: PublicUnits | None = None
    levels: tuple[LevelPlan, ...] | None = None
    choice: Choice | None = None
    if regions is not None:
        tree = regions.tree
        if configuration.mechanism == AUTO:
            choice = choose_mechanism(configuration, tree)
        configuration = _decided(configuration, choice)
        if not configuration.units_from_data:
            units = attempt(("units",), lambda: _read_units(loaded, tree))
        levels = attempt(("privacy", "split"), lambda: _plan_levels(configuration, tree))
        scales = [level.scale for level in levels or ()]
        groups = int(units.groups_by_region[0]) if units else None
        mechanism = MECHANISMS[configuration.mechanism]
        asked = out_of_reach(configuration, mechanism, tree, scales=scales, groups=groups)
        problems += [loaded.problem(location, why) for location, why in asked]
    elif not configuration.units_from_data:
        # Without the tree the units cannot be checked, but whether they are there can.
        table = [configuration.units]
        attempt(("units",), lambda: find_table(table, label="units", folder=loaded.folder))
    if problems or regions is None or release is None or levels is None:
        raise ConfigurationError(loaded.path, problems)
    plan = ReleasePlan(
        configuration=configuration,
        folder=str(loaded.folder),
        release=release,
        slot=slot,
        code_version=version("pgsr"),
        tree_digest=regions.tree.digest,
        units_digest=units.digest if units else None,
        groups=int(units.groups_by_region[0]) if units else None,
        groups_digest=groups_digest(units.groups_by_region if units else None),
        sensitivity=_sensitivity(configuration),
        levels=levels,
    )
    return Planned(plan, regions, units.groups_by_region if units else None, choice)


def _decided(configuration: Configuration, choice: Choice | None) -> Configuration:
    """The configuration with a mechanism and a split in the place of words that stand for one."""
    name = configuration.mechanism if choice is None else choice.mechanism
    privacy = configuration.privacy
    if privacy.split is None:
        privacy = privacy.model_copy(update={"split": MECHANISMS[name].split})
    return configuration.model_copy(update={"mechanism": name, "privacy": privacy})


def _misplaced(loaded: LoadedConfiguration) -> list[Problem]:
    """Say what is wrong with the places that the configuration names for publishing."""
    publish = loaded.configuration.publish
    problems = []
    wrong = _no_place(loaded.folder / publish.to)
    if wrong is not None:
        problems.append(loaded.problem(("publish", "to"), wrong))
    # Not Path.is_file: that one raises for names that no file can have.
    key = publish.signing_key
    if key is not None and not os.path.isfile(loaded.folder / key):  # noqa: PTH113
        problems.append(loaded.problem(("publish", "signing_key"), "there is no such file"))
    return problems


def _no_place(public: Path) -> str | None:
    """Why bundles cannot be put there: better said now than after the budget is spent."""
    try:
        is_folder = S_ISDIR(public.stat().st_mode)
    except FileNotFoundError:
        return None if public.parent.is_dir() else "there is no folder to make it in"
    except (OSError, ValueError):
        return "cannot be a folder"
    return None if is_folder else "is not a folder"


def _read_units(loaded: LoadedConfiguration, tree: RegionTree) -> PublicUnits:
    resources = loaded.configuration.resources
    return read_units(
        loaded.configuration.units,
        tree,
        folder=loaded.folder,
        memory_limit=resources.memory_limit,
        threads=resources.threads,
    )


def _sensitivity(configuration: Configuration) -> int:
    return l1_sensitivity(
        MECHANISMS[configuration.mechanism].query,
        neighbours=configuration.privacy.neighbours,
        largest_contribution=configuration.sizes.largest_contribution,
        largest_size=configuration.sizes.max,
        units_from_data=configuration.units_from_data,
    )


def _plan_levels(configuration: Configuration, tree: RegionTree) -> tuple[LevelPlan, ...]:
    regions = np.diff(tree.level_start).tolist()
    cells = [count * _columns(configuration) for count in regions]
    match configuration.privacy.split:
        case None | "uniform":
            shares = None
        case "balanced":
            shares = balanced_shares(
                tree.levels,
                epsilon=configuration.privacy.epsilon,
                sensitivity=_sensitivity(configuration),
            )
        case "optimise":
            shares = optimised_shares(cells)
        case OptimisedSplit(optimise=objective):
            shares = optimised_shares(cells, weights=objective.weights)
        case listed:
            shares = listed
    return _levels(configuration, regions, shares=shares)


def _levels(
    configuration: Configuration, regions: Sequence[int], *, shares: Sequence[Fraction] | None
) -> tuple[LevelPlan, ...]:
    epsilon, sensitivity = configuration.privacy.epsilon, _sensitivity(configuration)
    epsilons = split_over_levels(epsilon, levels=len(regions), shares=shares)
    return tuple(
        LevelPlan(
            level=number,
            regions=count,
            cells=count * _columns(configuration),
            epsilon=part,
            scale=sensitivity / part,
            expected_error=expected_absolute_noise(sensitivity / part),
        )
        for number, (part, count) in enumerate(zip(epsilons, regions, strict=True), start=1)
    )


def _columns(configuration: Configuration) -> int:
    """How many numbers are measured in each region."""
    query = MECHANISMS[configuration.mechanism].query
    return len(query.measured_sizes(configuration.published_sizes))
