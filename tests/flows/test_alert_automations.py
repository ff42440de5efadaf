"""Alerts of real runs: from the process that fails, and from the Prefect server on its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from pgsr_core.errors import PgsrError
from tests.tasks.inbox import Inbox, open_inbox

CANARY = "canary-0815"
SECONDS = 60


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with open_inbox(f"/hook?token={CANARY}") as inbox:
        yield inbox


@pytest.fixture
def product(virginia: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A product that tells a webhook, whose address is in the environment."""
    monkeypatch.setenv("OFFICE_WEBHOOK", inbox.address)
    configuration = virginia / "product.yaml"
    configuration.write_text(f"{configuration.read_text()}alerts: {{webhook: $OFFICE_WEBHOOK}}\n")
    return configuration


def test_a_run_that_fails_tells_its_flow_run_and_stage_and_nothing_else(
    product: Path,
    inbox: Inbox,
    release_in_process: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tasks.stages import noise

    def explode(*_: object) -> None:
        raise RuntimeError(CANARY)

    monkeypatch.setattr(noise, "_recalled", explode)
    monkeypatch.setattr(noise.recall, "retries", 0)
    with pytest.raises(PgsrError):
        release_in_process(product)
    [post] = inbox.posts
    assert (post["stage"], post["error"]) == ("recall", "RuntimeError")
    assert post["flow_run"] in post["link"]
    for leak in (CANARY, str(product.parent)):
        assert leak not in json.dumps(post)


@pytest.mark.usefixtures("release_in_process")
def test_the_server_tells_of_a_run_that_crashed_and_installing_again_tells_it_once(
    product: Path, inbox: Inbox
) -> None:
    for _ in range(2):
        installed = CliRunner().invoke(app, ["alerts", "install", str(product), "--json"])
        assert installed.exit_code == 0, installed.output
    assert len(json.loads(installed.stdout)) == 2

    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.states import Crashed, Late

    @flow(name="another-machine")
    def runs_elsewhere(secret: str) -> None:
        """A stand-in: it is the server that sees what becomes of its runs."""

    with get_client(sync_client=True) as client:
        flow_id = client.create_flow(runs_elsewhere)
        ours = client.create_deployment(flow_id, name="household-sizes")
        theirs = client.create_deployment(flow_id, name="another-product")
        for deployment, state in ((theirs, Crashed), (ours, Crashed), (ours, Late)):
            run = client.create_flow_run_from_deployment(deployment, parameters={"secret": CANARY})
            inbox.arrived.clear()
            client.set_flow_run_state(run.id, state(message=CANARY), force=True)
            if deployment == ours:
                assert inbox.arrived.wait(SECONDS)
                assert str(run.id) in inbox.posts[-1]["text"]
        for name in json.loads(installed.stdout):
            [automation] = client.read_automations_by_name(name)
            client.delete_automation(automation.id)
    told = [(post["alert"], post["product"]) for post in inbox.posts]
    assert told == [("failure", "household-sizes"), ("missed", "household-sizes")]
    assert CANARY not in json.dumps(inbox.posts)


def test_a_test_message_says_whether_it_was_taken(product: Path, inbox: Inbox) -> None:
    sent = CliRunner().invoke(app, ["alerts", "test", str(product)])
    assert sent.exit_code == 0, sent.output
    assert inbox.posts[0]["alert"] == "test"
    inbox.answers = [404]
    refused = CliRunner().invoke(app, ["alerts", "test", str(product), "--json"])
    assert refused.exit_code == 1
    assert json.loads(refused.stdout) == {"webhook": "HTTP status 404"}
