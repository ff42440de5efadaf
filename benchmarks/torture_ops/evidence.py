"""What an office has made, and what is wrong with it: each due release once, and nothing else."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from benchmarks.torture_ops.office import Office
from benchmarks.torture_ops.products import EPSILON, public_key
from flows.cli.app import app
from pgsr_core.attestation.provenance import PROVENANCE_FILE
from tasks.ledger.inspection import check_ledger
from tasks.ledger.ledger import Ledger

# Events that may happen once for each release; others are repeated by whoever goes on with it.
ONCE = ("measured", "published")


def wrong(office: Office, due: Mapping[Path, Set[str]]) -> Iterator[str]:
    """Say all that is not as it must be.

    Args:
        office: with nothing running any more.
        due: the releases that must exist, by configuration; the folder's name is the product's.
    """
    ledger = office.ledger()
    wanted = {configuration.parent.name: releases for configuration, releases in due.items()}
    yield from _differences("public folder", _names(office.public), wanted)
    for product, releases in wanted.items():
        yield from _differences(product, _names(office.public / product), releases)
    for configuration, releases in due.items():
        for release in sorted(releases):
            yield from _of_bundle(office, ledger, configuration, release)
    yield from _of_ledger(ledger, wanted)
    yield from (
        f"ledger check: {finding.name}: {finding.detail}"
        for finding in check_ledger(office.ledger_url, office.home / "witness.json")
        if not finding.passed
    )


def _of_bundle(office: Office, ledger: Ledger, configuration: Path, release: str) -> Iterator[str]:
    product = configuration.parent.name
    name, bundle = f"{product}/{release}", office.public / product / release
    if not bundle.is_dir():
        return
    arguments = ["audit", "verify", str(bundle), "--key", str(public_key(configuration))]
    if CliRunner().invoke(app, arguments).exit_code != 0:
        yield f"{name}: pgsr audit verify says no"
        return
    signed = _signed(bundle)
    measured = ledger.measurement(product, release)
    if measured is None or signed["measurement_digest"] != measured.digest:
        yield f"{name}: the bundle's measurements are not the ledger's"
    head = signed["ledger_head"]
    hashes = {event.sequence: event.hash for event in ledger.timeline()}
    if hashes.get(head["sequence"]) != head["hash"]:
        yield f"{name}: the bundle's head of the ledger is not in the ledger"


def _of_ledger(ledger: Ledger, wanted: Mapping[str, Set[str]]) -> Iterator[str]:
    due = {(product, release) for product, names in wanted.items() for release in names}
    timeline = ledger.timeline()
    for kind in ONCE:
        told = Counter((e.product, e.release) for e in timeline if e.kind == kind)
        yield from _differences(f"{kind} events", told, due)
        yield from (f"{name}: {kind} {n} times" for name, n in told.items() if n > 1)
    states = {(s.product, s.release): s.state for s in ledger.run_states()}
    yield from _differences("run states", states, due)
    yield from (f"{name} is {state}" for name, state in states.items() if state != "published")
    accounts = ledger.accounts()
    yield from _differences("populations", [account.population for account in accounts], wanted)
    for account in accounts:
        charged = Counter(charge.release for charge in ledger.charges(account.population))
        releases = wanted.get(account.population, set())
        if charged != Counter(releases) or account.spent != len(releases) * EPSILON:
            yield f"{account.population}: {charged.total()} charges, {len(releases)} due"
        if account.reserved:
            yield f"{account.population}: a reservation is still open"


def _signed(bundle: Path) -> dict[str, Any]:
    envelope = json.loads((bundle / PROVENANCE_FILE).read_bytes())
    statement: dict[str, Any] = json.loads(base64.b64decode(envelope["payload"]))
    return dict(statement["predicate"])


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def _differences(what: str, found: Iterable[Any], wanted: Iterable[Any]) -> Iterator[str]:
    found, wanted = set(found), set(wanted)
    for extra in sorted(found - wanted, key=str):
        yield f"{what}: {extra} should not be there"
    for missing in sorted(wanted - found, key=str):
        yield f"{what}: {missing} is missing"
