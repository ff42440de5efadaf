"""The process that serves products on one machine: it deploys them, catches up, and runs them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLimitConfig
from prefect.runner import Runner
from prefect.schedules import Cron
from prefect.types.entrypoint import EntrypointType

from flows.deployment import ONE_AT_A_TIME
from flows.scheduled import release_product
from flows.server_process import POLL_SECONDS
from flows.takeover import write_off_the_dead, write_off_the_taken
from pgsr_core.errors import Unavailable

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment

    from tasks.series import Series


class ServerGone(Unavailable):
    """The server that `pgsr serve` started has ended."""


def serve(products: Iterable[Series], *, at_once: int, gone: Event | None = None) -> None:
    """Run every product's releases as they come due, until the process is told to stop.

    Args:
        products: each with a schedule.
        at_once: how many releases may be made at the same time on this machine.
        gone: set when our own server has ended.

    Raises:
        ServerGone: it has.
    """
    now = datetime.now(UTC)
    owed = [(series, {*series.begun(), *series.missed(now)}) for series in products]
    with get_client(sync_client=True) as client:
        write_off_the_dead(client)
    gone = gone or Event()
    try:
        asyncio.run(_serve(owed, at_once=at_once, gone=gone))
    except Exception:
        if not gone.is_set():
            raise
    if gone.is_set():
        raise ServerGone(
            "the Prefect server has ended. Whatever was finished is kept; the next start goes on. "
            "Remedy: see server.log in PGSR_HOME/prefect and whether the disk is full, and start "
            "pgsr serve again."
        )


async def _serve(owed: list[tuple[Series, set[datetime]]], *, at_once: int, gone: Event) -> None:
    runner = Runner(name="pgsr", pause_on_shutdown=False, limit=at_once)
    async with get_client() as client:
        for series, slots in owed:
            deployed = await runner.aadd_deployment(await deployment(series))
            await write_off_the_taken(client, deployed)
            # One run brings all of them out that are missing; see flows/scheduled.py.
            if slots:
                newest = {"slot": max(slots).isoformat()}
                await client.create_flow_run_from_deployment(deployed, parameters=newest)
    await _until_told_to_stop(runner, gone)


async def _until_told_to_stop(runner: Runner, gone: Event) -> None:
    """Let the runner work until Ctrl-C, SIGTERM or the end of its server, its processes gone."""
    running = asyncio.create_task(runner.start())
    await asyncio.sleep(0)  # it sets a handler of its own first, which would end in a traceback
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    watching = asyncio.create_task(_cancel_when(gone, running))
    with suppress(asyncio.CancelledError):
        await running
    watching.cancel()


async def _cancel_when(gone: Event, running: asyncio.Task[None]) -> None:
    while not gone.is_set():
        await asyncio.sleep(POLL_SECONDS)
    running.cancel()


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
