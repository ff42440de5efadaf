"""Prefect's record of who runs what: a run signs in, and runs of dead processes are written off.

Prefect does not see that a machine was killed: the flow run stays `Running` and, with a limit of
one run for each product, may keep the next one waiting. The ledger needs none of this; whatever
cannot be reached or read here changes nothing about the release.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

import httpx
from prefect import Flow, State, runtime
from prefect.client.orchestration import PrefectClient, SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.exceptions import PrefectException
from prefect.states import Crashed

from tasks.ledger.owner import Owner, this_process

OWNER_LABEL = "pgsr.owner"
UNREACHABLE = (httpx.HTTPError, PrefectException)


def sign_in(flow: Flow[..., Any], flow_run: FlowRun, state: State) -> None:  # noqa: ARG001
    """When a run starts: note its process in Prefect, and write off runs of dead ones."""
    with suppress(*UNREACHABLE), get_client(sync_client=True) as client:
        client.update_flow_run_labels(flow_run.id, {OWNER_LABEL: str(this_process())})
        write_off_the_dead(client)


def name_this_run(name: str) -> None:
    """Show the release instead of a made-up name in Prefect's pages."""
    with suppress(*UNREACHABLE), get_client(sync_client=True) as client:
        client.update_flow_run(runtime.flow_run.id, name=name)


def write_off_the_dead(client: SyncPrefectClient) -> None:
    """Mark as crashed every run of ours that Prefect takes for running and whose process is gone.

    Only processes of this machine are known to be gone; others are left to their own.
    """
    running = FlowRunFilter.model_validate({"state": {"type": {"any_": [StateType.RUNNING]}}})
    for run in client.read_flow_runs(flow_run_filter=running):
        owner = _owner(run)
        if owner is not None and owner.is_surely_gone():
            message = f"process {owner.process} of {owner.host} is gone"
            client.set_flow_run_state(run.id, Crashed(message=message), force=True)


async def write_off_the_taken(client: PrefectClient, deployed: UUID) -> None:
    """Mark as crashed every run that an earlier runner of a deployment took and never started.

    To be called where no other runner of the deployment can be at work.
    """
    taken = FlowRunFilter.model_validate(
        {
            "deployment_id": {"any_": [deployed]},
            "state": {"type": {"any_": [StateType.PENDING]}},
        }
    )
    for run in await client.read_flow_runs(flow_run_filter=taken):
        message = "the process that took this run ended before it started"
        await client.set_flow_run_state(run.id, Crashed(message=message), force=True)


def _owner(run: FlowRun) -> Owner | None:
    label = run.labels.get(OWNER_LABEL)
    return Owner.parse(label) if isinstance(label, str) else None
