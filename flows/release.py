"""The release flow: from a person table to a published bundle, one stage after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow

from flows.takeover import sign_in
from tasks.alerts.occasions import alerting
from tasks.artifacts import shown
from tasks.corrections.withdrawal import refuse_withdrawn
from tasks.run import RunRef
from tasks.stages.cumulative import cumulative
from tasks.stages.ingest import ingest
from tasks.stages.margins import margins
from tasks.stages.noise import noise, recall
from tasks.stages.post_process import post_process
from tasks.stages.publish import publish
from tasks.stages.validate import validate
from tasks.storage.temporary import remove_spill


@flow(
    name="release",
    flow_run_name="{product}/{release}",
    persist_result=False,
    on_running=[sign_in],
)
def release(home: str, product: str, release: str) -> dict[str, Any]:
    """Run a prepared release, or go on where an earlier run stopped.

    Every stage that was finished is used as it is; measurements that the ledger holds are
    recalled, never drawn again. So the same call is the first run, a retry and a resume.
    """
    run = RunRef(home, product, release)
    with run.alone(), alerting(run):
        return run_stages(run)


def run_stages(run: RunRef) -> dict[str, Any]:
    """Every stage after the other, inside of a flow."""
    refuse_withdrawn(run, run.ledger())
    remove_spill(run.installation)
    with shown(run):
        measurements = recall(run)
        if measurements is None:
            measurements = noise(run, cumulative(run, ingest(run)))
        table = measurements
        for step in run.open_measured().plan.mechanism.steps:
            table = post_process(step.name)(run, table)
        uncertainty = margins(run, measurements, table)
        checks = validate(run, table, uncertainty)
        bundle = publish(run, table, uncertainty, checks)
    return {"bundle": str(Path(bundle)), "checks": checks}
