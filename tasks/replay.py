"""Replaying a release: from a published folder alone, or from the ledger's own measurements."""

from __future__ import annotations

from pathlib import Path

from pgsr_core.errors import PgsrError
from pgsr_core.margins import MARGINS, MARGINS_BY_LEVEL
from pgsr_core.replay import (
    NotReplayable,
    Origin,
    PublishedOrigin,
    Replay,
    read_published,
    replay,
    replay_bundle,
)
from pgsr_core.verification.report import Item
from tasks.bundles import FolderBundle
from tasks.ledger.bookkeeping import PUBLISHED
from tasks.ledger.ledger import MeasurementDamaged
from tasks.publication.place import is_published
from tasks.run import Run, RunRef
from tasks.storage.duck import StoreMissing, StoreUnusable
from tasks.storage.tables import MatrixStore, TableRef, TableTampered

LEDGER = "the ledger"
STORE = "the safe store"
BUNDLE = "the bundle"
_MEASUREMENTS = "measurements"
_RELEASED = "group_sizes"

Said = dict[str, dict[str, str | None]]


class NothingToReplay(PgsrError):
    """What was named is no bundle, no release of this installation, or has lost its store."""


def replay_folder(folder: Path) -> Replay:
    """Replay a published bundle from its own files.

    Raises:
        UnreadableBundle: the folder cannot be listed.
        NotReplayable: a document or table cannot be read.
    """
    return replay_bundle(FolderBundle(folder))


def replay_run(ref: RunRef) -> Replay:
    """Replay a release from the ledger's measurements; compare ledger, safe store and bundle.

    Raises:
        NoSuchRun: it was never started here.
        NoMeasurements: nothing was measured yet.
        NothingToReplay: its safe store is missing, or is no store.
        StoreUnavailable: a run of it is under way.
    """
    import duckdb

    run = ref.open()
    measurement = run.measurement()
    said: Said = {_MEASUREMENTS: {LEDGER: measurement.digest}, _RELEASED: {}}
    try:
        values = run.ledger.values(measurement)
        repetitions = run.plan.configuration.margins.repetitions
        origin = Origin(run.plan.mechanism, run.facts(), values, repetitions)
        _hear_store(run, said)
    except (TableTampered, MeasurementDamaged) as damage:
        return Replay((Item("origin", False, f"What the stages start from is damaged: {damage}"),))
    except (StoreMissing, StoreUnusable, duckdb.Error):
        # Its message names paths; what matters is that the store cannot be opened.
        raise NothingToReplay(
            f"the safe store of {ref.name} is missing or cannot be opened. Remedy: replay the "
            "published folder, or run pgsr release again: tables are rebuilt from the ledger."
        ) from None
    _hear_ledger(run, said)
    return replay(origin, said, notes=_hear_bundle(run, origin, said))


def _hear_ledger(run: Run, said: Said) -> None:
    """Take in what the events say of each stage's table; the last word counts."""
    names = {step.name: step.name for step in run.plan.mechanism.steps}
    names[run.plan.mechanism.steps[-1].name] = _RELEASED
    names |= {table: table for table in (MARGINS, MARGINS_BY_LEVEL)}
    for kind, facts in run.ledger.events(run.ref.product, run.ref.release):
        if kind == "computed" and facts.get("stage") in names:
            said.setdefault(names[facts["stage"]], {})[LEDGER] = facts.get("digest")
        elif kind == "validated":
            said[_RELEASED]["the ledger's checks"] = facts.get("digest")
        elif kind == PUBLISHED:
            for table, digest in dict(facts.get("digests", {})).items():
                said.setdefault(table, {})["the ledger's publication"] = digest


def _hear_store(run: Run, said: Said) -> None:
    """Take in the tables of the safe store; one that is not what was recorded has no say."""
    plan = run.plan
    steps = [step.name for step in plan.mechanism.steps]
    measured = {_MEASUREMENTS, *steps}
    stages = ["noise", *steps]
    if plan.configuration.margins.repetitions > 0:
        stages += [MARGINS, MARGINS_BY_LEVEL]
    with run.safe(read_only=True) as store:
        for stage in stages:
            try:
                record = store.record(stage)
            except TableTampered:
                said[_RELEASED][STORE] = None
                return
            if record is None:
                continue
            sizes = plan.measured_sizes if record.output.table in measured else plan.sizes
            said.setdefault(record.output.table, {})[STORE] = _stored(store, record.output, sizes)


def _stored(store: MatrixStore, ref: TableRef, sizes: range) -> str | None:
    try:
        store.read(ref, sizes=sizes)
    except TableTampered:
        return None
    return ref.digest


def _hear_bundle(run: Run, origin: Origin, said: Said) -> list[Item]:
    """Take in the published bundle, and say whether it starts from the same facts."""
    folder = run.plan.destination
    if not is_published(folder):
        recorded = any(
            kind == PUBLISHED for kind, _ in run.ledger.events(run.ref.product, run.ref.release)
        )
        what = "is no longer where it was published" if recorded else "is not published yet"
        return [Item(BUNDLE, True, f"The bundle {what}, so it is not compared.")]
    try:
        published: PublishedOrigin = read_published(FolderBundle(folder))
    except NotReplayable as problem:
        return [Item(BUNDLE, False, f"The bundle cannot be read: {problem.what}.")]
    for table, witnesses in published.witnesses.items():
        said.setdefault(table, {}).update(witnesses)
    different = origin.differs(published.origin)
    sentence = (
        f"The bundle starts from another {', '.join(different)}."
        if different
        else "The bundle starts from the same facts and measurements as the ledger."
    )
    return [Item(BUNDLE, not different, sentence)]
