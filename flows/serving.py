"""The process that serves products on one machine: it deploys them, catches up, and runs them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLimitConfig
from prefect.runner import Runner
from prefect.schedules import Cron
from prefect.types.entrypoint import EntrypointType

from flows.deployment import ONE_AT_A_TIME
from flows.scheduled import release_product
from flows.takeover import write_off_the_dead, write_off_the_taken

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment

    from tasks.series import Series


def serve(products: Iterable[Series], *, at_once: int) -> None:
    """Run every product's releases as they come due, until the process is told to stop.

    Args:
        products: each with a schedule.
        at_once: how many releases may be made at the same time on this machine.
    """
    now = datetime.now(UTC)
    owed = [(series, {*series.begun(), *series.missed(now)}) for series in products]
    with get_client(sync_client=True) as client:
        write_off_the_dead(client)
    asyncio.run(_serve(owed, at_once=at_once))


async def _serve(owed: list[tuple[Series, set[datetime]]], *, at_once: int) -> None:
    runner = Runner(name="pgsr", pause_on_shutdown=False, limit=at_once)
    async with get_client() as client:
        for series, slots in owed:
            deployed = await runner.aadd_deployment(await deployment(series))
            await write_off_the_taken(client, deployed)
            # One run brings all of them out that are missing; see flows/scheduled.py.
            if slots:
                newest = {"slot": max(slots).isoformat()}
                await client.create_flow_run_from_deployment(deployed, parameters=newest)
    await _until_told_to_stop(runner)


async def _until_told_to_stop(runner: Runner) -> None:
    """Let the runner work until Ctrl-C or SIGTERM, and end with its processes gone."""
    running = asyncio.create_task(runner.start())
    await asyncio.sleep(0)  # it sets a handler of its own first, which would end in a traceback
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    with suppress(asyncio.CancelledError):
        await running


async def deployment(series: Series) -> RunnerDeployment:
    """A product's deployment: its schedule, and one run at a time."""
    schedule = series.schedule
    return await release_product.ato_deployment(
        name=series.product,
        parameters={"configuration": str(series.loaded.path)},
        schedules=[Cron(schedule.cron, timezone=schedule.timezone)] if schedule else [],
        concurrency_limit=ConcurrencyLimitConfig.model_validate(ONE_AT_A_TIME),
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
