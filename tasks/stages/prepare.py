"""Before the first stage: decide the plan and see that the release may go on at all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

from pgsr_core.budget import overruled
from tasks.configuration.loading import LoadedConfiguration, load_configuration
from tasks.configuration.plan import Planned, make_plan
from tasks.corrections.replacement import refuse_unknown_replaced
from tasks.corrections.withdrawal import refuse_withdrawn
from tasks.ingestion.source_digest import keyed_source_digest
from tasks.ingestion.units import PublicUnits, reopen_units
from tasks.ledger.ledger import MeasurementRequest
from tasks.publication.signing import named_key
from tasks.run import Run, RunRef, create_run
from tasks.storage.zones import Home


def home_of(loaded: LoadedConfiguration) -> Home:
    """The installation that a configuration belongs to."""
    return Home.locate(beside=loaded.folder)


def unheard(_: str) -> None:
    """Nobody is there to be told."""


def prepare(configuration: Path, *, slot: date, warn: Callable[[str], None] = unheard) -> RunRef:
    """Decide a release and store its plan; a release that was measured must be the same one.

    Args:
        configuration: the product's YAML.
        slot: for templates in names and paths.
        warn: told what the configuration says in vain; public facts only.

    Raises:
        ConfigurationError: everything that is wrong with the configuration.
        BudgetExceeded: the release does not fit the population's budget.
        ReleaseHasOtherMeasurements: the name stands for other measurements.
    """
    return create_run(*decide_release(configuration, slot=slot, warn=warn))


def decide_release(
    configuration: Path, *, slot: date, warn: Callable[[str], None] = unheard
) -> tuple[Planned, Home]:
    """The same, but nothing is stored; raises as `prepare` does."""
    loaded = load_configuration(configuration)
    planned = make_plan(loaded, slot=slot)
    home = home_of(loaded)
    refuse_early(planned, home, warn=warn)
    return planned, home


def refuse_early(planned: Planned, home: Home, *, warn: Callable[[str], None]) -> None:
    """Say no before any work is done, where the ledger will say no later anyway."""
    plan = planned.plan
    named_key(plan)  # refused now if it cannot be used
    ref = RunRef(str(home.root), plan.product, plan.release)
    ledger = ref.ledger()
    refuse_withdrawn(ref, ledger)
    refuse_unknown_replaced(plan, ledger)
    population = plan.configuration.population
    account = ledger.account(population.name, budget=population.budget)
    notice = overruled(account, population.budget)
    if notice is not None:
        warn(notice)
    measured = ledger.measurement(plan.product, plan.release)
    if measured is None:
        account.require(plan.cost)
    else:
        measured.require_same(measurement_request(Run(ref, plan)))


def measurement_request(run: Run) -> MeasurementRequest:
    """What the ledger is asked to charge for: the plan and the data as they are now."""
    plan = run.plan
    digest = keyed_source_digest(plan.source_files(), key=run.source_key())
    return MeasurementRequest(
        key=plan.measurement_key(digest),
        population=plan.configuration.population.name,
        budget=plan.configuration.population.budget,
        product=plan.product,
        release=plan.release,
        epsilon=plan.cost,
        descriptor=plan.measurement_descriptor(digest),
    )


def public_units(run: Run) -> PublicUnits | None:
    """The unit table that the plan was made from; None where units come from the data.

    Raises:
        FileChanged: the table is no longer the one that was planned with.
    """
    configuration = run.plan.configuration
    if configuration.units_from_data:
        return None
    return reopen_units(
        configuration.units,
        folder=Path(run.plan.folder),
        groups_by_region=run.groups_by_region,
        digest=run.plan.units_digest or "",
    )
