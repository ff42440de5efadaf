"""What a schedule starts: each slot's release once, and first what was begun before it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.deployment import described
from tasks.boundary import StageFailed
from tasks.failpoints import VARIABLE
from tasks.ledger.ledger import Ledger
from tasks.order import Order, place_order
from tasks.run import RunRef
from tasks.series import Series
from tasks.served import Served, record_served
from tasks.storage.zones import Home
from tests.flows.commandline import Pgsr, edit

ROOT = Path(__file__).parents[2]
PREFECT_YAML = ROOT / "deployments" / "prefect.yaml"
PRODUCT = "household-sizes"


def serve(configuration: Path) -> None:
    """Note a configuration as `pgsr serve` does."""
    series = Series.open(configuration)
    record_served(series.home, [Served.now(series.product, configuration)])


@pytest.fixture
def monthly(virginia: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The fixture's product with a release for each month, served."""
    monkeypatch.setenv("PGSR_HOME", str(virginia / ".pgsr"))
    configuration = virginia / "product.yaml"
    edit(configuration, "release: synthetic-1", 'release: "{date:%Y-%m}"')
    with configuration.open("a") as file:
        file.write('schedule: {cron: "0 6 1 * *", timezone: Europe/Berlin, catch_up: none}\n')
    serve(configuration)
    return configuration


def ledger_of(configuration: Path) -> Ledger:
    return Ledger(f"sqlite:///{configuration.parent / '.pgsr' / 'ledger.sqlite'}")


def month(configuration: Path, number: int) -> datetime:
    """The slot of a month of 2026."""
    schedule = Series.open(configuration).schedule
    assert schedule is not None
    return datetime(2026, number, 1, 6, tzinfo=schedule.zone)


def published(configuration: Path) -> list[str]:
    return sorted(path.name for path in (configuration.parent / "public" / PRODUCT).glob("*"))


# --- deployments ----------------------------------------------------------------------------


def test_the_deployments_for_a_work_pool_are_those_that_the_configurations_ask_for() -> None:
    deployments = yaml.safe_load(PREFECT_YAML.read_text())["deployments"]
    named = [Path(each["parameters"]["configuration"]) for each in deployments]
    assert {ROOT / path for path in named} == set((ROOT / "deployments/products").glob("*.yaml"))
    assert deployments == [described(Series.open(ROOT / path), path) for path in named]


def test_a_deployment_names_a_flow_that_is_there() -> None:
    [entrypoint] = {
        each["entrypoint"] for each in yaml.safe_load(PREFECT_YAML.read_text())["deployments"]
    }
    module, _, flow = entrypoint.rpartition(".")
    assert import_module(module).release_product.name == getattr(import_module(module), flow).name


@pytest.mark.usefixtures("release_in_process")
def test_a_slot_that_comes_due_while_another_is_made_waits_for_it(monthly: Path) -> None:
    from prefect import get_client
    from prefect.states import Completed, Pending

    from flows.serving import deployment

    async def take(client: Any, run: Any) -> str:
        """Do what a runner or worker does first; returns the state that the server allows."""
        await client.set_flow_run_state(run.id, Pending())
        return str((await client.read_flow_run(run.id)).state.name)

    async def race() -> list[str]:
        deployed = await (await deployment(Series.open(monthly))).aapply()
        async with get_client() as client:
            runs = [await client.create_flow_run_from_deployment(deployed) for _ in range(2)]
            states = [await take(client, run) for run in runs]
            await client.set_flow_run_state(runs[0].id, Completed(), force=True)
            return [*states, await take(client, runs[1])]

    assert asyncio.run(race()) == ["Pending", "AwaitingConcurrencySlot", "Pending"]


# --- slots ----------------------------------------------------------------------------------


@dataclass
class Stages:
    """Stands in for the stages of a release: notes which were started, and fails if told to."""

    started: list[str] = field(default_factory=list)
    failing: dict[str, StageFailed] = field(default_factory=dict)

    def __call__(self, ref: RunRef) -> None:
        self.started.append(ref.release)
        if ref.release in self.failing:
            ref.note(state="failed", stage="cpwl", error="Error")
            raise self.failing[ref.release]
        ref.ledger().record("published", ref.product, ref.release)


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch, release_in_process: object) -> Stages:
    found = Stages()
    monkeypatch.setattr("flows.scheduled.run_stages", found)
    return found


def test_a_slot_whose_data_are_not_there_says_so_and_is_made_when_they_are(
    monthly: Path, stages: Stages
) -> None:
    from flows.scheduled import release_product

    persons = monthly.parent / "persons"
    persons.rename(monthly.parent / "late")
    with pytest.raises(StageFailed, match="stage prepare failed: ConfigurationError"):
        release_product(str(monthly), month(monthly, 7))
    [state] = ledger_of(monthly).run_states()
    assert (state.state, state.stage, state.error) == ("failed", "prepare", "ConfigurationError")
    log = monthly.parent / ".pgsr" / "confidential" / PRODUCT / "2026-07" / "operator.log"
    assert "source.persons" in log.read_text()
    assert stages.started == []

    (monthly.parent / "late").rename(persons)
    release_product(str(monthly), month(monthly, 7))
    assert stages.started == ["2026-07"]


def test_a_configuration_that_was_edited_since_it_was_served_is_not_run(
    monthly: Path, stages: Stages, capsys: pytest.CaptureFixture[str]
) -> None:
    from flows.cli.app import app
    from flows.scheduled import release_product

    edit(monthly, "neighbours:", "neighbours: ")
    with pytest.raises(StageFailed, match="stage schedule failed: EditedSinceServed") as refused:
        release_product(str(monthly), month(monthly, 7))
    assert str(monthly) not in str(refused.value)
    assert stages.started == []
    home = Series.open(monthly).home
    assert "was edited since it was served" in home.operator_log.read_text()
    assert not home.run(PRODUCT, "2026-07").safe.exists()
    app(["status"], standalone_mode=False)
    assert "Remedy: if it is to be released as it is now" in capsys.readouterr().err
    serve(monthly)
    release_product(str(monthly), month(monthly, 7))
    assert stages.started == ["2026-07"]


def test_an_edit_between_the_digest_and_the_plan_is_not_run(
    monthly: Path, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows import scheduled

    def place_order_late(ref: RunRef, order: Order) -> None:
        place_order(ref, order)
        edit(monthly, "sizes: {", "sizes: {max: 19, largest_contribution: 1} #")

    monkeypatch.setattr(scheduled, "place_order", place_order_late)
    with pytest.raises(StageFailed, match="stage schedule failed: EditedSinceServed"):
        scheduled.release_product(str(monthly), month(monthly, 7))
    assert stages.started == []


def test_a_configuration_is_run_in_the_home_it_was_served_from_only(
    monthly: Path, stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.scheduled import release_product

    # A configuration of somebody's own, with a home of his own beside it that vouches for it.
    theirs = tmp_path / "theirs" / "product.yaml"
    theirs.parent.mkdir()
    theirs.write_text(monthly.read_text())
    record_served(Home(theirs.parent / ".pgsr"), [Served.now(PRODUCT, theirs)])
    with pytest.raises(StageFailed, match="stage schedule failed: NotServed"):
        release_product(str(theirs), month(monthly, 7))
    monkeypatch.setenv("PGSR_HOME", str(tmp_path / "another"))
    with pytest.raises(StageFailed, match="stage schedule failed: NotServed"):
        release_product(str(monthly), month(monthly, 7))
    assert stages.started == []


def test_an_earlier_release_that_cannot_be_finished_is_told_and_holds_no_later_one_up(
    monthly: Path, stages: Stages
) -> None:
    from flows.scheduled import EarlierUnfinished, release_product

    stages.failing["2026-06"] = StageFailed("cpwl", "ZeroDivisionError", None)
    with pytest.raises(StageFailed, match="stage cpwl failed"):
        release_product(str(monthly), month(monthly, 6))
    with pytest.raises(EarlierUnfinished, match=f"{PRODUCT}/2026-06 could not be finished"):
        release_product(str(monthly), month(monthly, 7))
    # Bad input, and nothing was charged: the later run has nothing to be ashamed of.
    stages.failing["2026-06"] = StageFailed("ingest", "DuplicatePerson", 2)
    release_product(str(monthly), month(monthly, 8))
    stages.failing.clear()
    release_product(str(monthly), month(monthly, 9))
    release_product(str(monthly), month(monthly, 9))
    tried = ["2026-06", *("2026-06", "2026-07"), *("2026-06", "2026-08"), *("2026-06", "2026-09")]
    assert stages.started == tried


def prefect_states(home: Path) -> list[str]:
    """What Prefect takes runs of the release flow in a state folder for."""
    from prefect import get_client

    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs()
    ours = [run for run in runs if run.parameters.get("home") == str(home)]
    return [run.state.name for run in ours if run.state is not None]


def test_the_next_slot_first_finishes_a_release_whose_process_was_killed(
    pgsr: Pgsr, monthly: Path, release_in_process: Callable[[Path], None]
) -> None:
    from flows.scheduled import release_product

    killed = pgsr(
        *("release", "product.yaml", "--date", "2026-07-01T06:00"),
        cwd=monthly.parent,
        **{VARIABLE: "noise.committed"},
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    drawn = ledger_of(monthly).measurement(PRODUCT, "2026-07")
    assert drawn is not None
    assert prefect_states(monthly.parent / ".pgsr") == ["Running"]
    [state] = ledger_of(monthly).run_states()
    assert state.shown == "dead"

    outcome = release_product(str(monthly), month(monthly, 8))

    assert outcome["brought_out"] == [f"{PRODUCT}/2026-07", f"{PRODUCT}/2026-08"]
    assert published(monthly) == ["2026-07", "2026-08"]
    ledger = ledger_of(monthly)
    assert ledger.measurement(PRODUCT, "2026-07") == drawn
    [account] = ledger.accounts()
    assert (account.spent, account.reserved) == (Fraction(1), 0)
    assert prefect_states(monthly.parent / ".pgsr") == ["Crashed"]

    # The same slot again changes nothing; the data are not even looked for.
    (monthly.parent / "persons").rename(monthly.parent / "archived")
    before = ledger.timeline()
    assert release_product(str(monthly), month(monthly, 8))["brought_out"] == []
    assert ledger.timeline() == before


def test_the_next_slot_does_not_publish_a_draw_under_a_plan_that_was_swapped_since(
    pgsr: Pgsr, monthly: Path, release_in_process: Callable[[Path], None]
) -> None:
    from flows.scheduled import EarlierUnfinished, release_product

    killed = pgsr(
        *("release", "product.yaml", "--date", "2026-07-01T06:00"),
        cwd=monthly.parent,
        **{VARIABLE: "noise.committed"},
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    plan = Series.open(monthly).home.run(PRODUCT, "2026-07").plan
    plan.write_text(plan.read_text().replace('"epsilon": "1/2"', '"epsilon": "1/40"'))
    with pytest.raises(EarlierUnfinished, match=f"{PRODUCT}/2026-07"):
        release_product(str(monthly), month(monthly, 8))
    assert published(monthly) == ["2026-08"]


@pytest.mark.usefixtures("release_in_process")
def test_what_was_missed_while_nothing_was_served_is_made_once_at_the_next_start(
    monthly: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows import serving

    edit(monthly, "catch_up: none", "catch_up: latest")
    serve(monthly)
    series = Series.open(monthly)
    series.home.create()
    in_spring = Ledger(series.home.ledger_url, clock=month(monthly, 4).timestamp)
    facts = {"cron": "0 6 1 * *", "timezone": "Europe/Berlin", "pattern": "{date:%Y-%m}"}
    in_spring.record("scheduled", PRODUCT, None, **facts)
    # Whatever is due, and back, instead of waiting for Ctrl-C.
    monkeypatch.setattr(
        serving, "_until_told_to_stop", lambda runner, _: runner.start(run_once=True)
    )

    [latest] = series.missed(datetime.now(UTC))
    serving.serve([series], at_once=1)
    assert published(monthly) == [series.release(latest).release]
    once = ledger_of(monthly).timeline()
    serving.serve([series], at_once=1)
    assert ledger_of(monthly).timeline() == once
