"""Reposting: a new release computed from the measurements of an earlier one.

Everything right of the barrier is a function of the measurements and public facts, so another
mechanism for the same query, or a newer version of the software, costs nothing (post-processing:
Dwork and Roth 2014, Proposition 2.1). Nothing confidential is read: it works after a purge.
"""

from __future__ import annotations

from importlib.metadata import version

from pgsr_core.errors import PgsrError, Refused
from pgsr_core.mechanisms import MECHANISMS, why_not
from tasks.configuration.model import identifier
from tasks.configuration.names import new_release
from tasks.configuration.plan import Planned, ReleasePlan
from tasks.corrections.replacement import was_published
from tasks.ingestion.regions import RegionTable
from tasks.ledger.reposts import Repost
from tasks.publication.preflight import refuse_unpublishable
from tasks.run import Run, RunRef, create_run, run_of


class UnusableName(PgsrError):
    """The new release's name, or the mechanism's, cannot be one."""


class NeedsOtherMeasurements(Refused):
    """A mechanism asks for another query than the one that was measured."""

    def __init__(self, *, mechanism: str, source: Run) -> None:
        measured = source.plan.mechanism.query
        fitting = sorted(name for name, known in MECHANISMS.items() if known.query is measured)
        super().__init__(
            f"mechanism {mechanism} needs {MECHANISMS[mechanism].query} measurements, and those of "
            f"{source.ref.name} are {measured}; noise is never drawn again for them. Remedy: use "
            f"{' or '.join(fitting)}, or make a new release, which spends budget."
        )


def prepare_repost(source: RunRef, *, release: str, mechanism: str | None = None) -> RunRef:
    """Decide a release of known measurements and record it; the release flow does the rest.

    Args:
        source: the release whose measurements are used; it was measured, published or not.
        release: the new name.
        mechanism: another one for the same query; the same by default.

    Raises:
        NoSuchRun, NoMeasurements: there is nothing to start from.
        UnusableName: the new name, or the mechanism, is none.
        NeedsOtherMeasurements: the mechanism asks another query.
        NameTaken: the new name stands for something else.
        ReleaseHasOtherMeasurements: the plan of the source is not the one that was measured by.
        ReleaseInUse: another process works on the new release.
    """
    run = source.open()
    measurement = run.measurement()
    plan = _plan(run, release=release, mechanism=mechanism or run.plan.mechanism.name)
    refuse_unpublishable(plan, source.installation)
    planned = _planned(plan, run)
    repost = Repost(
        product=source.product,
        source=source.release,
        release=release,
        mechanism=plan.mechanism.name,
        key=measurement.key,
        digest=measurement.digest,
    )
    with run_of(planned, source.installation).alone():
        run.ledger.repost(repost)
        return create_run(planned, source.installation)


def _plan(run: Run, *, release: str, mechanism: str) -> ReleasePlan:
    """The earlier plan under a new name; all that the measurements depend on stays."""
    if mechanism not in MECHANISMS:
        raise UnusableName(f"mechanism: {why_not(mechanism)}. Remedy: name another one.")
    try:
        new_release(identifier(release))
    except ValueError as error:
        raise UnusableName(f"the new release's name {error}. Remedy: choose another one.") from None
    if MECHANISMS[mechanism].query is not run.plan.mechanism.query:
        raise NeedsOtherMeasurements(mechanism=mechanism, source=run)
    cells = sum(level.cells for level in run.plan.levels)
    MECHANISMS[mechanism].refuse_if_out_of_reach(cells=cells)
    source = run.ref
    replaces = source.release if was_published(run.ledger, source.product, source.release) else None
    changes = {
        "release": release,
        "mechanism": mechanism,
        "replaces": replaces,
        "schedule": None,  # one name, one release
    }
    return run.plan.model_copy(
        update={
            "configuration": run.plan.configuration.model_copy(update=changes),
            "release": release,
            "code_version": version("pgsr"),
        }
    )


def _planned(plan: ReleasePlan, run: Run) -> Planned:
    """A plan with the public inputs of the earlier run, checked against their digest."""
    groups = None if plan.groups_digest is None else run.groups_by_region
    with run.safe_connection(read_only=True) as connection:
        rows = connection.execute('SELECT "name" FROM regions ORDER BY region_index').fetchall()
    return Planned(plan, RegionTable(run.tree, tuple(name for (name,) in rows)), groups)
