"""The operator's view: whose runs stand where, how long stages took, what failed, who was told.

For the confidential zone only. Errors are named as they are outside of it (tasks/outside.py); their
texts, which may quote the data, stay in the operator's log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pgsr_core.chain import Event
from tasks.alerts.occasions import EVENT as ALERTED
from tasks.configuration.model import Configuration
from tasks.ledger.database import connect, snapshot
from tasks.ledger.runs import RunState, run_states
from tasks.observations import Observation, observations
from tasks.outside import IN_WORDS, INPUT_STOPPED, recorded_name
from tasks.run import NoSuchRun, PlanDamaged, RunRef
from tasks.storage.zones import Home
from tasks.timeline import moment


@dataclass(frozen=True)
class StageRow:
    """The last attempt at a stage."""

    name: str
    seen: Observation

    @property
    def seconds(self) -> str:
        """How long it took."""
        return f"{self.seen.seconds:,.1f}"

    @property
    def megabytes(self) -> str:
        """The most memory that its process had held until then."""
        return f"{self.seen.peak_bytes / 1e6:,.0f}"

    @property
    def error(self) -> str:
        """What may be said of what stopped it; empty if it finished."""
        return _error(self.name, self.seen.error)

    @property
    def ended(self) -> str:
        """When, in UTC."""
        return _moment(self.seen.ended)


@dataclass(frozen=True)
class AlertRow:
    """Something that people were told of."""

    at: str
    name: str
    sent: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Operation:
    """A run as its operator sees it."""

    state: RunState
    stages: tuple[StageRow, ...]
    alerts: tuple[AlertRow, ...]

    @property
    def name(self) -> str:
        """PRODUCT/RELEASE."""
        return f"{self.state.product}/{self.state.release}"

    @property
    def error(self) -> str:
        """What may be said of what stopped it; empty if nothing did."""
        return _error(self.state.stage, self.state.error)

    @property
    def host(self) -> str:
        """The machine that last worked on it."""
        process = self.state.process
        return process.host if process is not None else "?"

    @property
    def process(self) -> str:
        """Its process there."""
        process = self.state.process
        return str(process.process) if process is not None else "?"

    @property
    def updated(self) -> str:
        """When it noted where it stands, in UTC."""
        return _moment(self.state.updated)

    @property
    def flow_runs(self) -> tuple[str, ...]:
        """Prefect's ids of the runs that made the last attempts."""
        found = (row.seen.flow_run for row in self.stages)
        return tuple(dict.fromkeys(run for run in found if run is not None))


def operations_of(home: Home, events: Sequence[Event]) -> tuple[Operation, ...]:
    """Every run of the ledger, by product and release, with what this installation saw of it."""
    with snapshot(connect(home.ledger_url)) as connection:
        states = run_states(connection)
    return tuple(Operation(state, _stages(home, state), _alerts(state, events)) for state in states)


def configuration_of(home: Home, product: str, release: str) -> Configuration | None:
    """What a release was decided by; None where its plan is not here."""
    try:
        return RunRef(str(home.root), product, release).open().plan.configuration
    except (NoSuchRun, PlanDamaged):
        return None


def _stages(home: Home, state: RunState) -> tuple[StageRow, ...]:
    seen = observations(home.run(state.product, state.release).safe)
    rows = (StageRow(name, observation) for name, observation in seen.items())
    return tuple(sorted(rows, key=lambda row: row.seen.ended))


def _alerts(state: RunState, events: Sequence[Event]) -> tuple[AlertRow, ...]:
    found = []
    for event in events:
        if event.kind == ALERTED and (event.product, event.release) == (
            state.product,
            state.release,
        ):
            sent = event.facts.get("sent")
            outcomes = sent.items() if isinstance(sent, Mapping) else ()
            told = tuple((str(channel), str(outcome)) for channel, outcome in outcomes)
            found.append(AlertRow(moment(event), str(event.facts.get("alert")), told))
    return tuple(found)


def _error(stage: str, recorded: str | None) -> str:
    name = recorded_name(stage, recorded)
    return IN_WORDS if name == INPUT_STOPPED else name or ""


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
