"""A release in this process, stage by stage as the flow has them, without Prefect."""

from __future__ import annotations

import os
from pathlib import Path

from tasks.run import RunRef
from tasks.stages.cumulative import cumulative
from tasks.stages.ingest import ingest
from tasks.stages.noise import noise, recall
from tasks.stages.post_process import post_process
from tasks.stages.publish import publish
from tasks.stages.validate import validate


def run_stages(ref: RunRef) -> Path:
    """Run a prepared release and return its bundle."""
    before = os.umask(0o022)
    try:
        return _run_stages(ref)
    finally:
        os.umask(before)  # stages close it for their process, and other tests share this one


def _run_stages(ref: RunRef) -> Path:
    table = recall.fn(ref)
    if table is None:
        table = noise.fn(ref, cumulative.fn(ref, ingest.fn(ref)))
    for step in ref.open().plan.mechanism.steps:
        table = post_process(step.name).fn(ref, table)
    return Path(publish.fn(ref, table, validate.fn(ref, table)))
