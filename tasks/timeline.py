"""The event log for people and for lineage tools: a timeline, its verification, OpenLineage.

Events hold digests and public numbers only (see tasks/ledger/events.py), so whatever is made of
them here is as safe to show as they are.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pgsr_core.chain import GENESIS, Event, Head
from tasks.ledger.bookkeeping import MEASURED, PUBLISHED, RAISED
from tasks.storage.zones import Home

if TYPE_CHECKING:
    from tasks.ledger.inspection import Finding

_SHOWN_DIGITS = 12
_DIGEST_LENGTH = 64

OPEN_LINEAGE = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = "https://openlineage.io/spec/facets"
_PRODUCER = "urn:pgsr:{version}"
NAMESPACE = "pgsr"
# Run ids follow from the chain's hashes, so that exporting twice names the same runs.
_RUN_IDS = uuid.uuid5(uuid.NAMESPACE_URL, "urn:pgsr:open-lineage")


@dataclass(frozen=True)
class Filter:
    """Which events to show; what is None does not matter.

    Attributes:
        kinds: one of these.
        product: of this product.
        release: of this release.
        since: on this day (UTC) or later.
        until: on this day (UTC) or earlier.
    """

    kinds: tuple[str, ...] = ()
    product: str | None = None
    release: str | None = None
    since: date | None = None
    until: date | None = None

    def takes(self, event: Event) -> bool:
        """Whether an event is to be shown."""
        day = _day(event.at)
        return (
            (not self.kinds or event.kind in self.kinds)
            and self.product in (None, event.product)
            and self.release in (None, event.release)
            and (self.since is None or (day is not None and day >= self.since))
            and (self.until is None or (day is not None and day <= self.until))
        )


@dataclass(frozen=True)
class Log:
    """The whole event log as it is kept, and what is wrong with it."""

    events: tuple[Event, ...]
    head: Head
    problems: tuple[str, ...]


def read_log(home: Home) -> Log | None:
    """Read and verify the log without trusting it: chain, books, its own head and the witness.

    Unlike opening the ledger this does not refuse a broken one; an auditor wants to see it.
    None where there is no ledger.

    Raises:
        PgsrError: the ledger cannot be read at all.
    """
    from tasks.ledger.database import connect, snapshot
    from tasks.ledger.events import read_events
    from tasks.ledger.inspection import check_ledger
    from tasks.ledger.versions import ledger_exists, require_current, version_of

    if not ledger_exists(home.ledger_url):
        return None
    found = check_ledger(home.ledger_url, home.witness)
    problems = [f"{item.name}: {item.detail}" for item in found if _breaks(item)]
    with snapshot(connect(home.ledger_url)) as connection:
        require_current(version_of(connection))
        events = read_events(connection)
    return Log(events, events[-1].head if events else GENESIS, tuple(problems))


def _breaks(item: Finding) -> bool:
    """Whether a finding is about what the log says; how its file is kept is the doctor's matter."""
    return not item.passed and item.name in {"chain", "witness", "books", "database"}


def moment(event: Event) -> str:
    """When, to the second; as it stands where it is no time."""
    try:
        return datetime.fromisoformat(event.at).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except ValueError:
        return event.at


def describe(event: Event) -> str:
    """Say in a line what an event is about, besides spending and checks."""
    if event.kind == RAISED:
        facts = event.facts
        return (
            f"budget of population {facts.get('population')} raised from {facts.get('before')} to "
            f"{facts.get('budget')}: {facts.get('reason')}"
        )
    said = {
        name: value
        for name, value in event.facts.items()
        if name not in {"epsilon", "checks", "passed", "key"}
    }
    return ", ".join(f"{name} {_shown(value)}" for name, value in said.items())


def spent(event: Event) -> str:
    """The ε that an event charged; empty where it charged nothing."""
    return str(event.facts.get("epsilon", "")) if event.kind == MEASURED else ""


def checks(event: Event) -> str:
    """How many checks passed, and which did not; empty where none ran."""
    outcomes = event.facts.get("checks")
    if not isinstance(outcomes, Mapping):
        return ""
    failed = sorted(name for name, passed in outcomes.items() if passed is not True)
    text = f"{len(outcomes) - len(failed)} of {len(outcomes)} passed"
    return f"{text}; failed: {', '.join(failed)}" if failed else text


def _shown(value: Any) -> str:
    if isinstance(value, str):
        is_digest = len(value) == _DIGEST_LENGTH and value.isalnum()
        return f"{value[:_SHOWN_DIGITS]}…" if is_digest else value
    if isinstance(value, Mapping):
        return f"of {', '.join(sorted(value))}"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _day(at: str) -> date | None:
    try:
        return datetime.fromisoformat(at).astimezone(UTC).date()
    except ValueError:
        return None


# --- OpenLineage ------------------------------------------------------------------------------


def open_lineage(events: Sequence[Event]) -> Iterator[dict[str, Any]]:
    """Turn events into OpenLineage run events (spec 2-0-2): one run for every recorded stage.

    The log records ends, so a run STARTs at the time of the release's event before it: the
    earliest moment at which it can have begun. Who ran it, and where, is not exported.

    Args:
        events: in order, all of those of each release that is to be exported.
    """
    before: dict[tuple[str | None, str | None], Event] = {}
    made: dict[tuple[str | None, str | None], dict[str, str]] = {}
    for event in events:
        release = (event.product, event.release)
        job = _job(event)
        if job is not None:
            tables = made.setdefault(release, {})
            yield from _stage_run(event, before.get(release, event), job, tables)
        before[release] = event


def _job(event: Event) -> str | None:
    """The stage whose end an event records; None for an event that ends no stage."""
    stages = {MEASURED: "noise", "validated": "validate", PUBLISHED: "publish"}
    if event.product is None or event.release is None:
        return None
    if event.kind == "computed":
        return str(event.facts.get("stage", "computed"))
    return stages.get(event.kind)


def _stage_run(
    event: Event, started: Event, job: str, tables: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield START and the end of one stage, and note the table that it made.

    Invariant: `tables` holds, in order, the digests of the tables that the release has so far.
    """
    inputs = _inputs(event, tables)
    outputs: dict[str, str] = {}
    digest = event.facts.get("digest")
    if event.kind == MEASURED:
        outputs = {"measurements": str(digest)}
    elif event.kind == "computed":
        outputs = {job: str(digest)}
    elif event.kind == PUBLISHED:
        outputs = {str(k): str(v) for k, v in dict(event.facts.get("files", {})).items()}
    if event.kind in {MEASURED, "computed"}:
        tables.update(outputs)
    failed = event.kind == "validated" and event.facts.get("passed") is not True
    yield _run_event("START", started.at, event, job)
    ended = _run_event("FAIL" if failed else "COMPLETE", event.at, event, job)
    ended["inputs"] = [_dataset(event, name, value) for name, value in inputs.items()]
    ended["outputs"] = [_dataset(event, name, value) for name, value in outputs.items()]
    if event.kind == "validated" and ended["inputs"]:
        ended["inputs"][0]["inputFacets"] = _assertions(event)
    yield ended


def _inputs(event: Event, tables: Mapping[str, str]) -> dict[str, str]:
    """What a stage read: the tables that a verdict or a publication names, else the newest."""
    if event.kind == MEASURED or not tables:
        return {}
    named: set[object] = set()
    if event.kind != "computed":
        groups = [
            event.facts.get("digests"),
            event.facts.get("margins"),
            {"judged": event.facts.get("digest")},
        ]
        named = {said for group in groups if isinstance(group, Mapping) for said in group.values()}
    newest = list(tables)[-1]
    read = {name: digest for name, digest in tables.items() if digest in named}
    return read or {newest: tables[newest]}


def _run_event(kind: str, at: str, event: Event, job: str) -> dict[str, Any]:
    return {
        "eventType": kind,
        "eventTime": at,
        "run": {
            "runId": str(uuid.uuid5(_RUN_IDS, event.hash)),
            "facets": {
                "pgsr_event": {
                    **_base("urn:pgsr:open-lineage:event:1"),
                    "sequence": event.sequence,
                    "hash": event.hash,
                    "release": event.release,
                    **({"epsilon": spent(event)} if spent(event) else {}),
                }
            },
        },
        "job": {"namespace": NAMESPACE, "name": f"{event.product}.{job}"},
        "inputs": [],
        "outputs": [],
        "producer": _producer(),
        "schemaURL": OPEN_LINEAGE,
    }


def _dataset(event: Event, name: str, digest: str) -> dict[str, Any]:
    schema = f"{_FACETS}/1-0-0/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet"
    return {
        "namespace": NAMESPACE,
        "name": f"{event.product}/{event.release}/{name}",
        "facets": {"version": {**_base(schema), "datasetVersion": f"sha256:{digest}"}},
    }


def _assertions(event: Event) -> dict[str, Any]:
    name = "DataQualityAssertionsDatasetFacet"
    outcomes = event.facts.get("checks")
    return {
        "dataQualityAssertions": {
            **_base(f"{_FACETS}/1-0-1/{name}.json#/$defs/{name}"),
            "assertions": [
                {"assertion": str(check), "success": passed is True}
                for check, passed in (outcomes if isinstance(outcomes, Mapping) else {}).items()
            ],
        }
    }


def _base(schema: str) -> dict[str, str]:
    return {"_producer": _producer(), "_schemaURL": schema}


def _producer() -> str:
    return _PRODUCER.format(version=version("pgsr"))
