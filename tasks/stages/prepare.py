"""Before the first stage: decide the plan and see that the release may go on at all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from fractions import Fraction
from pathlib import Path

from pgsr_core.budget import overruled, show
from tasks.configuration.loading import LoadedConfiguration, load_configuration
from tasks.configuration.plan import Planned, make_plan
from tasks.corrections.replacement import refuse_unknown_replaced
from tasks.corrections.withdrawal import refuse_withdrawn
from tasks.ingestion.source_digest import keyed_source_digest
from tasks.ingestion.units import PublicUnits, reopen_units
from tasks.ledger.database import identity_of
from tasks.ledger.holders import note_ledger, refuse_held_elsewhere
from tasks.ledger.ledger import Ledger, MeasurementRequest
from tasks.publication.preflight import refuse_unpublishable
from tasks.run import Run, RunRef, create_run, run_of
from tasks.storage.zones import Home


def home_of(loaded: LoadedConfiguration) -> Home:
    """The installation that a configuration belongs to, unless another one is named.

    Raises:
        HomeNotSafe: others may write it, or it is somebody else's.
    """
    return Home.locate(beside=loaded.folder)


def unheard(_: str) -> None:
    """Nobody is there to be told."""


def prepare(
    configuration: Path,
    *,
    slot: date,
    home: Home | None = None,
    warn: Callable[[str], None] = unheard,
) -> RunRef:
    """Decide a release and store its plan; a release that was measured must be the same one.

    Args:
        configuration: the product's YAML.
        slot: for templates in names and paths.
        home: the installation; the one that the configuration belongs to by default.
        warn: told what the configuration says in vain, and what is new; public facts only.

    Raises:
        ConfigurationError: everything that is wrong with the configuration.
        HeldElsewhere: another ledger of this user holds the population.
        ReleaseInUse: another process works on it.
        BudgetExceeded: the release does not fit the population's budget.
        ReleaseHasOtherMeasurements: the name stands for other measurements.
    """
    planned, home = decide_release(configuration, slot=slot, home=home, warn=warn)
    with run_of(planned, home).alone():
        refuse_early(planned, home, warn=warn)
        return create_run(planned, home)


def decide_release(
    configuration: Path,
    *,
    slot: date,
    home: Home | None = None,
    warn: Callable[[str], None] = unheard,
) -> tuple[Planned, Home]:
    """Decide a release from its configuration; nothing is stored, and no new ledger opened.

    Raises:
        ConfigurationError: everything that is wrong with the configuration.
        HeldElsewhere: another ledger of this user holds the population.
        PgsrError: it could not be published; see `refuse_unpublishable`.
    """
    loaded = load_configuration(configuration)
    planned = make_plan(loaded, slot=slot)
    home = home or home_of(loaded)
    refuse_unpublishable(planned.plan, home)
    _look_before_opening(planned, home, warn=warn)
    return planned, home


def _look_before_opening(planned: Planned, home: Home, *, warn: Callable[[str], None]) -> None:
    """Refuse a second ledger for a population; say that a budget begins, before it does."""
    plan = planned.plan
    population, cost = plan.configuration.population, plan.cost
    ledger = Ledger.existing(home.ledger_url, witness=home.witness)
    if ledger is not None and ledger.measurement(plan.product, plan.release) is not None:
        cost = Fraction(0)  # it was paid for, and is not paid for again
    refuse_held_elsewhere(home, ledger, population.name, cost=cost)
    unlisted = note_ledger(home, population.name, cost=cost)
    begins = what_begins(home, ledger, population.name, population.budget)
    if begins is not None:
        warn(begins)
        if unlisted is not None:
            warn(unlisted)


def refuse_early(planned: Planned, home: Home, *, warn: Callable[[str], None]) -> None:
    """Say no before any work is done, where the ledger will say no later anyway."""
    plan = planned.plan
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


def what_begins(home: Home, ledger: Ledger | None, population: str, budget: Fraction) -> str | None:
    """Say that a budget begins here; None where the ledger knows the population.

    Neither a typing error in a name nor another folder must give a population a new budget
    without a word.
    """
    accounts = ledger.accounts() if ledger is not None else ()
    if population in {account.population for account in accounts}:
        return None
    place = identity_of(home.ledger_url)
    begins = f"begins with a budget of {show(budget)}, whatever other ledgers say of it."
    if accounts:
        return f"population {population} is new to the ledger {place}: it {begins}"
    return f"this opens a new ledger, {place}: population {population} {begins}"


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
