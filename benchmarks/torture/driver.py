"""A small release: the ledger's protocol, the safe store and the publication, without Prefect.

The steps and their order are those of the stages noise, post-processing and publish; what is
released is a made-up table of three regions. Every method of `Protocol` is one step that a
mutant may get wrong.
"""

from __future__ import annotations

import csv
import hashlib
import importlib
import io
import json
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pgsr_core.canonical import json_digest, table_digest
from pgsr_core.hierarchy import RegionTree
from tasks.ledger import history
from tasks.ledger.ledger import (
    Ledger,
    Measurement,
    MeasurementDamaged,
    MeasurementRequest,
    Reservation,
)
from tasks.publication.documents import CHECKS, DATAPACKAGE, write_json
from tasks.publication.errors import AlreadyPublished, PublicFolderUnusable
from tasks.publication.place import (
    Published,
    confirm_published,
    is_published,
    make_public_folder,
    publish_bundle,
    recorded_digests,
    staging_folder,
)
from tasks.storage.duck import connect
from tasks.storage.tables import MatrixStore, TableRef
from tasks.storage.zones import Home, write_private

# What the product imports when it is needed is imported now, so that forked processes have it.
for _module in ("duckdb", "pandas", "pyarrow.compute", "tasks.configuration.model"):
    importlib.import_module(_module)

Int = NDArray[np.int64]
TREE = RegionTree.from_table(["country", "north", "south"], [None, "country", "country"])
TRUTH = np.array([[9, 5, 2], [4, 2, 1], [5, 3, 1]], dtype=np.int64)
SIZES = range(1, 4)
PRODUCT, RELEASE, POPULATION = "sizes", "2026-Q3", "residents"
MEASUREMENTS, PUBLISHED = "measurements", "group_sizes"
EPSILON, BUDGET = Fraction(1, 3), Fraction(1)


def nowhere(_point: str) -> None:
    """The point at which nothing happens."""


class Crash(BaseException):
    """Stands for the death of a process: nothing that comes after it runs."""


@dataclass(frozen=True)
class Place:
    """Where a driven installation is.

    Attributes:
        root: holds its home and its public folder.
        url: of the ledger; a SQLite file in the home unless it is named.
    """

    root: Path
    named_url: str | None = None
    clock: Callable[[], float] = field(default=time.time, compare=False)

    @property
    def url(self) -> str:
        return self.named_url or f"sqlite:///{self.home.root / 'ledger.sqlite'}"

    @property
    def home(self) -> Home:
        return Home(self.root / "home")

    @property
    def public(self) -> Path:
        return self.root / "public"

    def ledger(self, kind: type[Ledger] = Ledger) -> Ledger:
        return kind(self.url, witness=self.home.witness, clock=self.clock)

    def as_new_process(self) -> Ledger:
        """Open the ledger as a process does that has verified nothing yet."""
        history._verified.pop(self.url, None)
        return self.ledger()

    @contextmanager
    def store(self, release: str, *, read_only: bool = False) -> Iterator[MatrixStore]:
        path = self.safe_store(release)
        with connect(path, read_only=read_only, threads=1) as connection:
            yield MatrixStore(connection, TREE)

    def safe_store(self, release: str) -> Path:
        return self.home.run(PRODUCT, release).safe_store

    def truth(self, release: str) -> Path:
        return self.home.run(PRODUCT, release).confidential_store

    def bundle(self, release: str) -> Path:
        return self.public / PRODUCT / release


def empty_place(root: Path, url: str | None = None) -> Place:
    """Make a place at which nothing has happened."""
    place = Place(root, url)
    place.home.create()
    place.public.mkdir()
    return place


class Places:
    """Makes fresh places quickly: a copy of one that was set up once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._template = empty_place(folder / "template")
        self._made = 0
        self._template.ledger()

    def fresh(self, *, clock: Callable[[], float] = time.time) -> Place:
        self._made += 1
        root = self._folder / str(self._made)
        shutil.copytree(self._template.root, root)
        return Place(root, clock=clock)

    def copy_of(self, place: Place) -> Place:
        self._made += 1
        root = self._folder / str(self._made)
        shutil.copytree(place.root, root)
        return Place(root, clock=place.clock)


@dataclass
class Protocol:
    """One process's attempt at a release; `reach` is told of every point that it passes."""

    place: Place
    release: str = RELEASE
    population: str = POPULATION
    epsilon: Fraction = EPSILON
    reach: Callable[[str], None] = nowhere
    ledger_kind: type[Ledger] = Ledger

    def run(self) -> Published:
        """Measure, post-process and publish; what an earlier attempt did is used as it is."""
        self.reach("started")
        ledger = self.place.ledger(self.ledger_kind)
        self.ingest(ledger)
        measurement = self.measure(ledger)
        self.reach("committed")
        measured = self.materialise(ledger, measurement)
        self.reach("materialised")
        table = self.post_process(ledger, measured)
        self.reach("computed")
        published = self.publish(ledger, measurement, table)
        self.reach("renamed")
        self.note_published(ledger, measurement, published)
        self.reach("published")
        return published

    def request(self) -> MeasurementRequest:
        descriptor = {"release": self.release, "epsilon": str(self.epsilon)}
        return MeasurementRequest(
            key=json_digest(descriptor),
            population=self.population,
            budget=BUDGET,
            product=PRODUCT,
            release=self.release,
            epsilon=self.epsilon,
            descriptor=descriptor,
        )

    def ingest(self, ledger: Ledger) -> None:
        """Write the truth, unless the release was measured and needs it no more."""
        if ledger.measurement(PRODUCT, self.release) is None:
            self.place.home.run(PRODUCT, self.release).create()
            write_private(self.place.truth(self.release), TRUTH.tobytes())
            self.reach("ingested")

    def measure(self, ledger: Ledger) -> Measurement:
        held = ledger.reserve(self.request())
        self.reach("reserved")
        return self.draw_and_commit(ledger, held) if isinstance(held, Reservation) else held

    def draw_and_commit(self, ledger: Ledger, held: Reservation) -> Measurement:
        try:
            noisy = self.draw()
            self.reach("drawn")
            return self.commit(ledger, held, noisy)
        except Crash:
            raise
        except BaseException:
            ledger.give_back(held)
            raise

    def draw(self) -> Int:
        noise = [secrets.randbelow(1 << 40) - (1 << 39) for _ in range(TRUTH.size)]
        return TRUTH + np.array(noise, dtype=np.int64).reshape(TRUTH.shape)

    def commit(self, ledger: Ledger, held: Reservation, noisy: Int) -> Measurement:
        return ledger.commit(
            held,
            noisy,
            digest=digest_of(MEASUREMENTS, noisy),
            sizes=SIZES,
            groups=9,
            sampler="torture",
            simulation=False,
        )

    def materialise(self, ledger: Ledger, measurement: Measurement) -> TableRef:
        """Copy the ledger's table into the safe store, checked against its digest."""
        with self.place.store(self.release) as store:
            done = store.finished("noise", inputs=measurement.key)
            if done is not None and done.digest == measurement.digest:
                return done
            values = ledger.values(measurement)
            if digest_of(MEASUREMENTS, values) != measurement.digest:
                raise MeasurementDamaged("the ledger's measurements do not match their digest.")
            return self.keep(store, values, inputs=measurement.key)

    def keep(self, store: MatrixStore, values: Int, *, inputs: str) -> TableRef:
        return store.write("noise", MEASUREMENTS, values, sizes=SIZES, inputs=inputs)

    def post_process(self, ledger: Ledger, measured: TableRef) -> TableRef:
        """Compute what is released, or use what an earlier attempt computed."""
        with self.place.store(self.release) as store:
            done = store.finished("clip", inputs=measured.digest)
            if done is not None and ledger.has_event(
                "computed", PRODUCT, self.release, inputs=measured.digest, digest=done.digest
            ):
                return done
            counts = released(store.read(measured, sizes=SIZES))
            table = store.write("clip", PUBLISHED, counts, sizes=SIZES, inputs=measured.digest)
        self.reach("stored")
        ledger.record(
            "computed", PRODUCT, self.release, inputs=measured.digest, digest=table.digest
        )
        return table

    def publish(self, ledger: Ledger, measurement: Measurement, table: TableRef) -> Published:
        digests = {MEASUREMENTS: measurement.digest, table.table: table.digest}
        published = self.published_before(digests)
        if published is None:
            try:
                published = self.build_and_publish(ledger, table, digests)
            except AlreadyPublished:
                published = self.published_before(digests)
                if published is None:
                    raise
        return published

    def published_before(self, digests: dict[str, str]) -> Published | None:
        destination = self.place.bundle(self.release)
        if is_published(destination) and recorded_digests(destination) == digests:
            return confirm_published(destination)
        return None

    def build_and_publish(
        self, ledger: Ledger, table: TableRef, digests: dict[str, str]
    ) -> Published:
        make_public_folder(self.place.public)
        with staging_folder(self.place.public, PRODUCT, self.release) as staging:
            with self.place.store(self.release, read_only=True) as store:
                counts = store.read(table, sizes=SIZES)
            try:
                staging.bundle.mkdir()
                write_bundle(staging.bundle, counts, digests)
            except OSError as error:
                raise PublicFolderUnusable(error.strerror) from error
            ledger.remember_published(ledger.head())
            self.reach("staged")
            return self.move(staging.bundle, staging.destination)

    def move(self, bundle: Path, destination: Path) -> Published:
        return publish_bundle(bundle, destination)

    def note_published(self, ledger: Ledger, measurement: Measurement, done: Published) -> None:
        digests = {MEASUREMENTS: measurement.digest}
        if not ledger.has_event("published", PRODUCT, self.release, digests=digests):
            files = dict(done.checksums)
            ledger.record("published", PRODUCT, self.release, digests=digests, files=files)


def released(noisy: Int) -> Int:
    """The post-processing, a pure function of the measurements: their positive part."""
    return np.maximum(noisy, 0)


def digest_of(table: str, values: Int) -> str:
    return table_digest(values, table=table, tree_digest=TREE.digest, sizes=SIZES)


def write_bundle(folder: Path, counts: Int, digests: dict[str, str]) -> None:
    """Write the smallest folder that publication takes for a bundle."""
    text = io.StringIO()
    csv.writer(text).writerows(counts.tolist())
    (folder / "group_sizes.csv").write_text(text.getvalue())
    verdicts = [{"name": "totals", "passed": True, "expectations": 1}]
    write_json(folder / CHECKS, {"checks": verdicts, "table_digests": digests}, simulation=False)
    listed = [
        {"path": path.name, "hash": f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"}
        for path in sorted(folder.iterdir())
    ]
    (folder / DATAPACKAGE).write_text(json.dumps({"resources": listed}))
