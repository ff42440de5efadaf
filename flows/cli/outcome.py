"""What `pgsr release`, `resume` and `demo` say at the end: where, what was spent, what holds."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from flows.cli.screen import out, say_json, table
from pgsr_core.attestation.dsse import claimed_keyid
from pgsr_core.attestation.provenance import PROVENANCE_FILE
from pgsr_core.budget import show
from pgsr_core.description import Description
from tasks.publication.documents import CHECKS, REPORT
from tasks.run import RunRef


def report_outcome(ref: RunRef, *, as_json: bool, changed: bool = True) -> None:
    """Describe a published release from its bundle and the ledger.

    Args:
        ref: the release.
        as_json: for scripts.
        changed: whether this command did anything; it was published before otherwise.
    """
    run = ref.open()
    plan = run.plan
    folder = plan.destination
    checks: list[dict[str, Any]] = json.loads((folder / CHECKS).read_text())["checks"]
    measurement = run.measurement()
    population = Description.read(measurement.descriptor).population
    account = run.ledger.account(population)
    measured = measurement.release
    envelope = folder / PROVENANCE_FILE
    keyid = claimed_keyid(envelope.read_bytes()) if envelope.is_file() else None
    reposted_from = measured if measured != ref.release else None
    if as_json:
        say_json(
            {
                "release": ref.name,
                "changed": changed,
                "bundle": str(folder),
                "report": str(folder / REPORT),
                "simulation": plan.configuration.simulate,
                "epsilon": str(measurement.epsilon),
                "keyid": keyid,
                "replaces": plan.configuration.replaces,
                "reposted_from": reposted_from,
                "population": population,
                "spent": str(account.spent),
                "budget": str(account.budget),
                "checks": {check["name"]: check["passed"] for check in checks},
            }
        )
        return
    grid = table("Checks", "suite", "what holds", "")
    for check in checks:
        mark = "[green]passed[/]" if check["passed"] else "[red]FAILED[/]"
        grid.add_row(check["suite"], check["statement"], mark)
    out.print(grid)
    if plan.configuration.simulate:
        out.print("[bold red]A simulation: NOT PRIVATE, nothing was charged.[/]")
    else:
        what = f"epsilon {show(measurement.epsilon)}"
        if reposted_from is not None:
            what = f"nothing: the measurements are those that {reposted_from} was charged for"
        out.print(
            f"Spent    {what}; population {population}: "
            f"{show(account.spent)} of {show(account.budget)}, {show(account.remaining)} left"
        )
    out.print(f"Bundle   {folder}", soft_wrap=True)
    out.print(f"Report   {folder / REPORT}", soft_wrap=True)
    if keyid is not None:
        named = plan.configuration.publish.signing_key
        key = Path(plan.folder) / named if named else ref.installation.signing_key
        out.print(f"Signed   {keyid}", soft_wrap=True)
        command = f"pgsr keys public {shlex.quote(str(key))}"
        out.print(f"         {command} prints the key to verify with", soft_wrap=True, markup=False)
