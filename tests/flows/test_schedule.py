"""What a schedule starts: the deployment file is sound and its flow releases the slot once."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from tasks.configuration.loading import load_configuration
from tests.flows.commandline import edit

DEPLOYMENTS = Path(__file__).parents[2] / "deployments"


def test_every_deployment_names_a_flow_and_a_sound_configuration() -> None:
    described = yaml.safe_load((DEPLOYMENTS / "prefect.yaml").read_text())
    for deployment in described["deployments"]:
        module, _, flow = deployment["entrypoint"].partition(".py:")
        assert hasattr(import_module(module.replace("/", ".")), flow)
        configuration = DEPLOYMENTS.parent / deployment["parameters"]["configuration"]
        loaded = load_configuration(configuration)
        assert loaded.configuration.product == deployment["name"]
        assert deployment["concurrency_limit"]["limit"] == 1


@pytest.mark.usefixtures("release_in_process")
def test_a_scheduled_run_releases_its_slot_once(virginia: Path) -> None:
    from flows.scheduled import release_product

    configuration = virginia / "product.yaml"
    edit(configuration, "release: synthetic-1", 'release: "{date:%Y-%m-%d}"')
    first = release_product(str(configuration))
    again = release_product(str(configuration))
    assert first["bundle"] == again["bundle"]
    assert Path(first["bundle"]).name == datetime.now(UTC).date().isoformat()
