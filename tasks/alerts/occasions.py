"""When there is something to tell: a run that stopped, a budget that runs out.

Whatever goes wrong while telling stays here: an alert never fails or blocks a release.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tasks.alerts.delivery import DELIVERED, deliver
from tasks.alerts.message import Alert
from tasks.boundary import StageFailed
from tasks.configuration.alerts import Alerts, Kind
from tasks.configuration.model import Configuration
from tasks.ledger.ledger import Ledger
from tasks.run import NoSuchRun, RunRef

EVENT = "alerted"
# What stops a release in front of the public folder, by the name of the error.
GATES = frozenset({"GateFailed", "GateNotPassed", "CertificateFailed"})
logger = logging.getLogger("pgsr.alerts")


@contextmanager
def alerting(ref: RunRef, configuration: Configuration | None = None) -> Iterator[None]:
    """Tell when the run inside fails, or leaves little budget.

    Args:
        ref: the release that is run.
        configuration: of its product, where it has no plan yet.
    """
    try:
        yield
    except Exception as error:
        stage = error.stage if isinstance(error, StageFailed) else None
        name = error.error if isinstance(error, StageFailed) else type(error).__name__
        with quietly():
            tell_failure(ref, configuration or _planned(ref), stage=stage, error=name)
        raise
    with quietly():
        tell_budget(ref.ledger(), configuration or _planned(ref), ref.release)


def tell_failure(
    ref: RunRef, configuration: Configuration | None, *, stage: str | None, error: str
) -> None:
    """Tell that a run stopped; a gate that said no is an occasion of its own."""
    kind = Kind.GATE if error in GATES else Kind.FAILURE
    settings = settings_for(configuration, kind)
    if settings is not None:
        flow_run, link = _prefect_run()
        alert = Alert(kind, ref.product, ref.release, stage, error, flow_run=flow_run, link=link)
        # The ledger may be what failed: it is opened when the alert is on its way.
        _send(alert, settings, ref.ledger)


def tell_budget(ledger: Ledger, configuration: Configuration | None, release: str) -> bool:
    """Tell, once for each release, that the population's budget runs out."""
    settings = settings_for(configuration, Kind.BUDGET)
    if settings is None or configuration is None:
        return False
    population = configuration.population.name
    account = ledger.account(population, budget=configuration.population.budget)
    if account.remaining >= settings.budget_below * account.budget:
        return False
    alert = Alert(Kind.BUDGET, configuration.product, release, population=population)
    return tell_once(alert, settings, ledger)


def tell_once(alert: Alert, settings: Alerts, ledger: Ledger) -> bool:
    """Tell what was not told of this release before; says whether it was told now."""
    told = any(
        kind == EVENT and facts.get("alert") == alert.name and DELIVERED in facts["sent"].values()
        for kind, facts in ledger.events(alert.product, alert.release or "")
    )
    if not told:
        _send(alert, settings, lambda: ledger)
    return not told


def _send(alert: Alert, settings: Alerts, ledger: Callable[[], Ledger]) -> None:
    sent = deliver(alert, settings)
    for channel, outcome in sent.items():
        if outcome != DELIVERED:
            logger.warning("alert %s not delivered by %s: %s", alert.name, channel, outcome)
    ledger().record(EVENT, alert.product, alert.release, alert=alert.name, sent=sent)


def settings_for(configuration: Configuration | None, kind: Kind) -> Alerts | None:
    """Where a product wants to be told of an occasion; None if it does not."""
    settings = configuration.alerts if configuration is not None else None
    return settings if settings is not None and kind in settings.on else None


def _planned(ref: RunRef) -> Configuration | None:
    try:
        return ref.open().plan.configuration
    except NoSuchRun:
        return None


def _prefect_run() -> tuple[str | None, str | None]:
    """The flow run around us and its page, where there is one."""
    from prefect import runtime
    from prefect.utilities.urls import url_for

    flow_run = runtime.flow_run.id
    return (flow_run, url_for("flow-run", obj_id=flow_run)) if flow_run else (None, None)


@contextmanager
def quietly() -> Iterator[None]:
    """Whatever keeps an alert from being told is noted, and nothing else."""
    try:
        yield
    except Exception as error:  # a release is worth more than its alert
        logger.warning("an alert could not be told: %s", type(error).__name__)
