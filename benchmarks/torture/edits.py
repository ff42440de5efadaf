"""A configuration is edited, and a second run started, while the first one draws.

The bundle must state what was drawn: the ledger's ε and scales, not those of the later plan.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import product

from benchmarks.torture.commands import NAME, PRODUCT, RELEASE, Office, ended
from benchmarks.torture.rows import Effort, Row, Torture, Trials
from tasks.ledger.ledger import Ledger

POINTS = ("noise.reserved", "noise.drawn", "noise.committed", "isotonic.finished")
SECOND = (("release", "product.yaml"), ("resume", NAME))
FAULT = "believe_the_plan"
DRAWN, EDITED = "'0.5'", "'0.025'"


def trial(office: Office, *, point: str, second: tuple[str, ...], kill: bool) -> Iterator[str]:
    """One history; what is wrong in the end."""
    with office.stopped(point, "release", "product.yaml") as first:
        text = office.configuration.read_text()
        if DRAWN not in text:
            yield "the configuration was not edited"
        office.configuration.write_text(text.replace(DRAWN, EDITED))
        office.run(*second)
        if kill:
            first.kill()
        else:
            first.send_signal(signal.SIGCONT)
        ended(first)
    office.run("resume", NAME)
    yield from contradictions(office)


def contradictions(office: Office) -> Iterator[str]:
    """What published statements and the ledger disagree about."""
    ledger = Ledger(f"sqlite:///{office.home / 'ledger.sqlite'}")
    measurement = ledger.measurement(PRODUCT, RELEASE)
    charges = [
        charge for account in ledger.accounts() for charge in ledger.charges(account.population)
    ]
    statements = office.statements()
    if len(charges) != 1 or len(statements) != 1 or measurement is None:
        yield f"{len(charges)} charges and {len(statements)} bundles"
        return
    scales = list(measurement.descriptor["noise"]["scales"])
    stated = statements[0]
    if stated["epsilon"]["exact"] != str(measurement.epsilon):
        yield f"ε = {measurement.epsilon} was drawn and {stated['epsilon']['exact']} stated"
    if [level["scale"]["exact"] for level in stated["levels"]] != scales:
        yield "other scales were stated than drawn"


def histories(effort: Effort, *, fault: str | None, most: int) -> Trials:
    trials = Trials()
    ways = list(product(POINTS, SECOND, (False, True)))
    for number, (point, second, kill) in enumerate(ways[:most]):
        if fault is not None and trials.violations:
            break  # it is caught
        folder = effort.folder / f"{fault or 'sound'}-{number}"
        name = f"{second[0]} at {point}{', then killed' if kill else ''}"
        office = Office.open(folder, fault=fault)
        trials.note(name, trial(office, point=point, second=second, kill=kill))
    return trials


def run(effort: Effort) -> Iterator[Row]:
    trials = histories(effort, fault=None, most=effort.times(16, 1))
    mutant = histories(effort, fault=FAULT, most=16)
    yield Row(
        "ε edited while the first run draws, with and without a kill",
        trials.count("histories"),
        "0 violations: what is stated is what was drawn",
        not trials.violations,
        f"statement from the plan: {mutant.count('histories')}",
        bool(mutant.violations),
        trials.violations,
    )


TORTURE = Torture("edits", run)
