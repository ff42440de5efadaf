"""A release in this process: the flow's own stages, one after the other, without Prefect."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import pytest
from prefect import Task

from tasks.run import RunRef


def run_stages(ref: RunRef) -> Path:
    """Run a prepared release and return its bundle; errors are those that Prefect would see."""
    import flows.release as module

    before = os.umask(0o022)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, task in list(vars(module).items()):
                if isinstance(task, Task):
                    patch.setattr(module, name, task.fn)
            step_task = module.post_process
            patch.setattr(module, "post_process", lambda step: step_task(step).fn)
            patch.setattr(module, "shown", lambda _: nullcontext())
            return Path(module.release.fn(ref.home, ref.product, ref.release)["bundle"])
    finally:
        os.umask(before)  # stages close it for their process, and other tests share this one
