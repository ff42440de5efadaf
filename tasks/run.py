"""A run: the decided plan of one release, and the stores and ledger that its stages use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pgsr_core.description import Description
from pgsr_core.errors import PgsrError
from pgsr_core.hierarchy import RegionTree
from pgsr_core.postprocessing.protocol import PublicFacts
from tasks.configuration.plan import Planned, ReleasePlan, groups_digest
from tasks.ledger.ledger import Ledger, Measurement
from tasks.storage.duck import connect
from tasks.storage.tables import MatrixStore, TableTampered, read_regions_table, write_regions
from tasks.storage.zones import Home, RunFolder, write_private

if TYPE_CHECKING:
    import duckdb


class NoSuchRun(PgsrError):
    """A release was named that was never started here."""


class PlanDamaged(PgsrError):
    """The stored plan of a release is not what was decided; nothing is done by it."""

    def __init__(self, ref: RunRef) -> None:
        super().__init__(
            f"the plan of {ref.name} cannot be read. Remedy: run pgsr release with its "
            "configuration again; what was measured stays as it is."
        )


class NoMeasurements(PgsrError):
    """A stage right of the barrier was started before anything was measured."""

    def __init__(self, ref: RunRef) -> None:
        super().__init__(f"{ref.name} has no measurements yet. Remedy: pgsr resume {ref.name}.")


@dataclass(frozen=True)
class RunRef:
    """What Prefect is given of a run: names, never data."""

    home: str
    product: str
    release: str

    @property
    def name(self) -> str:
        """PRODUCT/RELEASE."""
        return f"{self.product}/{self.release}"

    @property
    def installation(self) -> Home:
        """The installation that it belongs to."""
        return Home(Path(self.home))

    @property
    def folder(self) -> RunFolder:
        """Where its files are."""
        return self.installation.run(self.product, self.release)

    def ledger(self) -> Ledger:
        """Open the ledger."""
        home = self.installation
        return Ledger(home.ledger_url, witness=home.witness)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Work on the run while no other process does.

        Raises:
            ReleaseInUse: another process does.
        """
        with self.ledger().alone(self.product, self.release):
            yield

    def note(self, *, state: str, stage: str, error: str | None = None) -> None:
        """Tell the status page where the run stands."""
        self.ledger().set_state(self.product, self.release, state=state, stage=stage, error=error)

    def open(self) -> Run:
        """Read the run's plan.

        Raises:
            NoSuchRun: it was never started here.
            PlanDamaged: its plan cannot be read.
        """
        try:
            plan = ReleasePlan.model_validate_json(self.folder.plan.read_bytes())
        except FileNotFoundError:
            raise NoSuchRun(
                f"{self.name} was never started here. Remedy: see pgsr status for the names, or "
                "start it with pgsr release."
            ) from None
        except (OSError, ValueError):
            raise PlanDamaged(self) from None
        return Run(self, plan)

    def open_measured(self) -> Run:
        """Open the run right of the barrier: by the plan that it was measured by, or not at all.

        Raises:
            NoMeasurements: nothing was measured yet.
            ReleaseHasOtherMeasurements: the plan was replaced after the draw.
        """
        run = self.open()
        run.measurement()
        return run


@dataclass(frozen=True)
class Run:
    """An open run. Stages right of the barrier use `safe` and `facts` only."""

    ref: RunRef
    plan: ReleasePlan

    @cached_property
    def ledger(self) -> Ledger:
        """Budgets and measurements."""
        return self.ref.ledger()

    @cached_property
    def _regions(self) -> tuple[RegionTree, NDArray[np.int64] | None]:
        """Read once, before the store is open for anything else: one connection at a time."""
        with connect(self.ref.folder.safe_store, read_only=True) as connection:
            tree, groups_by_region = read_regions_table(connection)
        if (tree.digest, groups_digest(groups_by_region)) != (
            self.plan.tree_digest,
            self.plan.groups_digest,
        ):
            raise TableTampered("regions")
        return tree, groups_by_region

    @property
    def tree(self) -> RegionTree:
        """The public region tree."""
        return self._regions[0]

    @property
    def groups_by_region(self) -> NDArray[np.int64]:
        """G_r of every region of the public unit table."""
        groups = self._regions[1]
        if groups is None:
            raise ValueError("this release has no public unit table")
        return groups

    def measurement(self) -> Measurement:
        """The committed measurement, which is the one that the plan describes.

        Raises:
            NoMeasurements: nothing was measured yet.
            ReleaseHasOtherMeasurements: the plan is not the one that was measured by.
        """
        measurement = self.committed()
        if measurement is None:
            raise NoMeasurements(self.ref)
        return measurement

    def committed(self) -> Measurement | None:
        """The same; None if nothing was measured yet.

        Raises:
            ReleaseHasOtherMeasurements: the plan is not the one that was measured by.
        """
        measurement = self.ledger.measurement(self.ref.product, self.ref.release)
        if measurement is not None:
            source = str(measurement.descriptor.get("source"))
            planned = self.plan.measurement_descriptor(source)
            measurement.require_description(planned, self.ref.product, self.ref.release)
        return measurement

    def facts(self) -> PublicFacts:
        """The public facts; G comes with the measurements where it is taken from the data."""
        tree, groups_by_region = self._regions
        measurement = self.measurement()
        described = Description.read(measurement.descriptor)
        return PublicFacts(
            tree=tree,
            smallest_size=self.plan.smallest_size,
            largest_size=described.largest_size,
            groups=measurement.groups,
            groups_by_region=groups_by_region,
            scales=described.scales,
        )

    @contextmanager
    def safe(self, *, read_only: bool = False) -> Iterator[MatrixStore]:
        """The store right of the barrier."""
        tree = self.tree
        with self.safe_connection(read_only=read_only) as connection:
            yield MatrixStore(connection, tree)

    @contextmanager
    def safe_connection(
        self, *, read_only: bool = False, writable_folder: Path | None = None
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """The same store for SQL: gates and publication."""
        _ = self._regions
        with connect(
            self.ref.folder.safe_store,
            read_only=read_only,
            writable_folder=writable_folder,
            memory_limit=self.plan.configuration.resources.memory_limit,
            threads=self.plan.configuration.resources.threads,
        ) as connection:
            yield connection

    @contextmanager
    def confidential(
        self, *, readable: tuple[Path, ...] = ()
    ) -> Iterator[tuple[duckdb.DuckDBPyConnection, MatrixStore]]:
        """The store left of the barrier: the connection for SQL and its matrices."""
        with connect(
            self.ref.folder.confidential_store,
            readable=readable,
            memory_limit=self.plan.configuration.resources.memory_limit,
            threads=self.plan.configuration.resources.threads,
        ) as connection:
            yield connection, MatrixStore(connection, self.tree, key=self.source_key())

    def source_key(self) -> bytes:
        """The installation's secret for digests of confidential data."""
        return self.ref.installation.source_key()


def run_of(planned: Planned, home: Home) -> RunRef:
    """The run of a decided release, stored or not."""
    return RunRef(str(home.root), planned.plan.product, planned.plan.release)


def create_run(planned: Planned, home: Home) -> RunRef:
    """Store a decided plan and its public inputs where the stages find them.

    To be called while the run is held alone: a plan is not replaced under the stages that obey it.

    Raises:
        ReservedElsewhere: a process that nobody heard of since may still be drawing by the plan
            that is there.
    """
    plan = planned.plan
    ref = run_of(planned, home)
    home.create()
    ref.ledger().require_no_reservation(ref.product, ref.release)
    ref.folder.create()
    with connect(ref.folder.safe_store) as connection:
        write_regions(
            connection, planned.regions.tree, planned.regions.labels, planned.groups_by_region
        )
    write_private(ref.folder.plan, plan.model_dump_json(indent=2).encode())
    return ref
