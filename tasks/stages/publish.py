"""Publish: build the bundle in a staging folder and rename it into the public folder.

Right of the barrier: reads the safe store and the ledger's account.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from pgsr_core.attestation.provenance import LedgerHead
from pgsr_core.budget import Account
from pgsr_core.description import Description
from pgsr_core.hierarchy import RegionTree
from pgsr_core.lineage import Lineage
from pgsr_core.margins import MARGINS
from pgsr_core.scales import expected_absolute_noise
from tasks import failpoints, operator
from tasks.boundary import stage
from tasks.ledger.bookkeeping import PUBLISHED
from tasks.publication.bundle import build_bundle
from tasks.publication.errors import AlreadyPublished, GateNotPassed
from tasks.publication.facts import BundleFacts, CheckFacts, StatedLevel
from tasks.publication.place import (
    Published,
    confirm_published,
    is_published,
    make_public_folder,
    publish_bundle,
    recorded_digests,
    staging_folder,
)
from tasks.publication.signing import sign_bundle, signing_key
from tasks.run import Run, RunRef
from tasks.stages.margins import MarginTables
from tasks.storage.tables import MatrixStore, TableRef

STAGE = "publish"


@stage(STAGE, retry=True)
def publish(
    ref: RunRef, table: TableRef, margins: MarginTables | None, checks: list[dict[str, Any]]
) -> str:
    """Publish the validated table; the same release published before is left as it is.

    Raises:
        AlreadyPublished: another bundle stands at the release's place.
        GateNotPassed: a check is missing or failed.
    """
    run = ref.open_measured()
    of_margins = {} if margins is None else margins.digests
    validated = {"digest": table.digest, "margins": of_margins, "passed": True}
    if not run.ledger.has_event("validated", ref.product, ref.release, **validated):
        raise GateNotPassed(())
    digests = {**_digests_before(run), table.table: table.digest, **of_margins}
    published = _published_before(run, digests)
    if published is None:
        try:
            published = _build_and_publish(run, table, margins, checks, digests)
        except AlreadyPublished:  # by another run of the release, if it is the same bundle
            published = _published_before(run, digests)
            if published is None:
                raise
    failpoints.reach("publish.renamed")
    said = {"digests": digests, "files": dict(published.checksums)}
    if not run.ledger.has_event(PUBLISHED, ref.product, ref.release, **said):
        run.ledger.record(PUBLISHED, ref.product, ref.release, **said)
    ref.note(state="published", stage=STAGE)
    operator.terminal().stage_finished(STAGE, f"{len(published.checksums)} files")
    return str(published.folder)


def _digests_before(run: Run) -> dict[str, str]:
    """Digests of the measurements and of the tables between them and the released one."""
    events = run.ledger.events(run.ref.product, run.ref.release)
    computed = {said["stage"]: said["digest"] for kind, said in events if kind == "computed"}
    between = {step.name: computed[step.name] for step in run.plan.mechanism.steps[:-1]}
    return {"measurements": run.measurement().digest, **between}


def _published_before(run: Run, digests: dict[str, str]) -> Published | None:
    destination = run.plan.destination
    if is_published(destination) and recorded_digests(destination) == digests:
        return confirm_published(destination)
    return None


def _build_and_publish(
    run: Run,
    table: TableRef,
    margins: MarginTables | None,
    checks: list[dict[str, Any]],
    digests: dict[str, str],
) -> Published:
    plan = run.plan
    run.ledger.require_still_alone(plan.product, plan.release)
    key = signing_key(plan, run.ref.installation)
    to = plan.destination.parent.parent
    make_public_folder(to)
    with staging_folder(to, plan.product, plan.release) as staging:
        with run.safe_connection(writable_folder=staging.folder) as connection:
            store = MatrixStore(connection, run.tree)
            store.read(table, sizes=plan.sizes)  # what is published is what was judged
            if margins is not None:
                margins.check(store, sizes=plan.sizes)
            for name, digest in _digests_before(run).items():  # the report shows these as well
                store.read(TableRef(name, digest), sizes=plan.measured_sizes)
            facts = _bundle_facts(run, store, checks, digests)
            formats = plan.configuration.publish.formats
            keyid = None if key is None else key.public.keyid
            build_bundle(connection, staging.bundle, facts, formats=formats, keyid=keyid)
        if key is not None:
            head = run.ledger.head()
            run.ledger.remember_published(head)
            signed_head = LedgerHead(head.sequence, head.hash)
            sign_bundle(staging.bundle, facts, plan, key=key, ledger_head=signed_head)
        failpoints.reach("publish.staged")
        return publish_bundle(staging.bundle, staging.destination)


def _levels(described: Description, tree: RegionTree, *, columns: int) -> tuple[StatedLevel, ...]:
    """Every level as it was measured, root first."""
    regions = np.diff(tree.level_start).tolist()
    measured = zip(regions, described.split, described.scales, strict=True)
    return tuple(
        StatedLevel(
            level=number,
            regions=count,
            cells=count * columns,
            epsilon=epsilon,
            scale=scale,
            expected_absolute_noise=expected_absolute_noise(scale),
        )
        for number, (count, epsilon, scale) in enumerate(measured, start=1)
    )


def _bundle_facts(
    run: Run, store: MatrixStore, checks: list[dict[str, Any]], digests: dict[str, str]
) -> BundleFacts:
    """What the bundle says of itself: of the measurement, what the ledger committed with it."""
    plan = run.plan
    configuration = plan.configuration
    measurement = run.measurement()
    described = Description.read(measurement.descriptor)
    account: Account = run.ledger.account(described.population)
    repetitions = configuration.margins.repetitions
    stages = [step.name for step in plan.mechanism.steps] + [MARGINS] * (repetitions > 0)
    records = {name: store.record(name) for name in stages}
    return BundleFacts(
        product=plan.product,
        release=plan.release,
        published_on=datetime.now(UTC).date(),
        code_version=plan.code_version,
        simulation=measurement.simulation,
        population=described.population,
        unit_of_privacy=described.unit_of_privacy or configuration.population.unit_of_privacy,
        epsilon=described.epsilon,
        levels=_levels(described, run.tree, columns=len(measurement.sizes)),
        neighbours=described.neighbours,
        sensitivity=described.sensitivity,
        query=described.query,
        mechanism=plan.mechanism.name,
        notation=plan.mechanism.notation,
        sampler=measurement.sampler,
        units_from_data=described.units_from_data,
        groups=measurement.groups,
        smallest_size=plan.smallest_size,
        largest_size=described.largest_size,
        largest_contribution=described.largest_contribution,
        keeps_region_totals=plan.mechanism.keeps_region_totals,
        spent_on_population=account.spent,
        budget=account.budget,
        checks=tuple(CheckFacts(**check) for check in checks),
        certificates={name: record.certificate for name, record in records.items() if record},
        digests=digests,
        lineage=Lineage(
            replaces=configuration.replaces,
            reposted_from=measurement.release if measurement.release != plan.release else None,
        ),
        margin_repetitions=repetitions,
    )
