"""The flow that a schedule starts: name and source follow from the slot's date."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, runtime

from flows.release import release
from tasks.stages.prepare import prepare


@flow(name="release-product", persist_result=False)
def release_product(configuration: str) -> dict[str, Any]:
    """Decide the release of this slot and run it; the same slot again changes nothing.

    Args:
        configuration: path of the product's YAML, whose release name and source may hold date
            templates such as ``{date:%Y}-Q{quarter}``.
    """
    slot: datetime = runtime.flow_run.scheduled_start_time
    run = prepare(Path(configuration), slot=slot.date(), warn=get_run_logger().warning)
    return release(run.home, run.product, run.release)
