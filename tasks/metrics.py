"""Metrics of an installation as Prometheus text: stages, releases, budgets; internal only.

Nothing here is for the public: durations and memory may tell about the data. The number of rows
does, so it is left out unless it is asked for, and then it may not leave the confidential zone.
"""

from __future__ import annotations

import secrets
import stat
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from pgsr_core.errors import PgsrError, Refused
from tasks.observations import noted_rows, observations, observed_runs
from tasks.storage.zones import PRIVATE_FILE, Home, sync_folder

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tasks.ledger.ledger import Ledger

FILE = "metrics.prom"
_STAGE = ("product", "release", "stage")
_POPULATION = ("population",)


class RowsAreConfidential(Refused):
    """Rows are counted left of the barrier, and the file would be outside of it."""

    def __init__(self) -> None:
        super().__init__(
            "the number of rows depends on confidential data, so it is written only below the "
            "folder confidential/ of PGSR_HOME. Remedy: name a file there, or leave --rows out."
        )


class MetricsNotWritten(PgsrError):
    """The file cannot be written."""


def render(home: Home, ledger: Ledger | None, *, rows: bool = False) -> bytes:
    """What an installation has to show at the moment, as Prometheus text.

    Args:
        home: the installation.
        ledger: its ledger; None before the first release.
        rows: also how many rows each release has read.
    """
    # A registry of its own: the library's global one would add facts about this process.
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    _stages(registry, home)
    if ledger is not None:
        _releases(registry, ledger)
        _budgets(registry, ledger)
    if rows:
        _rows(registry, home)
    return generate_latest(registry)


def _stages(registry: CollectorRegistry, home: Home) -> None:
    from prometheus_client import Gauge

    names = {
        "pgsr_stage_duration_seconds": "How long the last attempt at a stage took.",
        "pgsr_stage_peak_memory_bytes": "Most memory held by its process when the stage ended.",
        "pgsr_stage_ended_timestamp_seconds": "When the last attempt at a stage ended.",
        "pgsr_stage_attempts": "Attempts at a stage so far.",
        "pgsr_stage_failures": "How many of them failed.",
    }
    gauges = [Gauge(name, text, _STAGE, registry=registry) for name, text in names.items()]
    for product, release in observed_runs(home):
        for stage, seen in observations(home.run(product, release).safe).items():
            values = (seen.seconds, seen.peak_bytes, seen.ended, seen.attempts, seen.failures)
            for gauge, value in zip(gauges, values, strict=True):
                gauge.labels(product, release, stage).set(value)


def _releases(registry: CollectorRegistry, ledger: Ledger) -> None:
    from prometheus_client import Gauge

    gauge = Gauge(
        "pgsr_releases", "Releases by product and state.", ("product", "state"), registry=registry
    )
    states = Counter((state.product, state.shown) for state in ledger.run_states())
    for labels, count in states.items():
        gauge.labels(*labels).set(count)
    events = Gauge("pgsr_ledger_events", "Events in the ledger.", registry=registry)
    events.set(ledger.head().sequence)


def _budgets(registry: CollectorRegistry, ledger: Ledger) -> None:
    from prometheus_client import Gauge

    names = {
        "pgsr_budget_epsilon": "Epsilon that may ever be spent on a population.",
        "pgsr_spent_epsilon": "Epsilon spent on it so far.",
        "pgsr_reserved_epsilon": "Epsilon reserved by runs that are drawing.",
        "pgsr_remaining_epsilon": "Epsilon that is left.",
    }
    gauges = [Gauge(name, text, _POPULATION, registry=registry) for name, text in names.items()]
    charge = Gauge(
        "pgsr_charge_epsilon",
        "Epsilon that a release was charged.",
        ("population", "product", "release"),
        registry=registry,
    )
    for account in ledger.accounts():
        amounts = (account.budget, account.spent, account.reserved, account.remaining)
        for gauge, amount in zip(gauges, amounts, strict=True):
            gauge.labels(account.population).set(float(amount))
        for paid in ledger.charges(account.population):
            charge.labels(account.population, paid.product, paid.release).set(float(paid.epsilon))


def _rows(registry: CollectorRegistry, home: Home) -> None:
    from prometheus_client import Gauge

    gauge = Gauge(
        "pgsr_source_rows", "Rows that a release read.", ("product", "release"), registry=registry
    )
    for product, release in observed_runs(home):
        rows = noted_rows(home.run(product, release).confidential)
        if rows is not None:
            gauge.labels(product, release).set(rows)


def write(path: Path, content: bytes) -> None:
    """Replace a file at once, so that no collector reads half of it.

    A new file is for its owner alone (0600). One that is there keeps its mode: whoever lets a
    collector of another user read it decides so once.

    Raises:
        MetricsNotWritten: the folder is missing or cannot be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else PRIVATE_FILE
        draft.touch(mode=PRIVATE_FILE, exist_ok=False)
        draft.write_bytes(content)
        draft.chmod(mode)
        draft.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise MetricsNotWritten(
            f"the metrics cannot be written ({error.strerror}). Remedy: name a file in a folder "
            "that is there and writable."
        ) from None


def refuse_rows_outside(home: Home, path: Path) -> None:
    """Keep the number of rows in the confidential zone.

    Raises:
        RowsAreConfidential: the file would be elsewhere.
    """
    if not path.resolve().is_relative_to((home.root / "confidential").resolve()):
        raise RowsAreConfidential
