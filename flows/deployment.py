"""What a product's deployment is, for `pgsr serve` and for the workers of a pool alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.series import Series

ENTRYPOINT = "flows.scheduled.release_product"
WORK_POOL = "pgsr"
# Every slot is a release of its own, so one that comes due while another is being made waits for
# it. To cancel it instead would lose a release.
ONE_AT_A_TIME = {"limit": 1, "collision_strategy": "ENQUEUE"}


def described(series: Series, configuration: Path) -> dict[str, Any]:
    """A product's deployment as an entry of `prefect.yaml`.

    Args:
        series: the product.
        configuration: its file, as workers find it from the folder of the deployment.
    """
    schedule = series.schedule
    return {
        "name": series.product,
        "entrypoint": ENTRYPOINT,
        "parameters": {"configuration": str(configuration)},
        "schedules": [{"cron": schedule.cron, "timezone": schedule.timezone}] if schedule else [],
        "concurrency_limit": ONE_AT_A_TIME,
        "work_pool": {"name": WORK_POOL},
    }
