"""`pgsr release` and `pgsr resume`: start a release, or go on where it stopped."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.homes import HomeFolder, home_at, home_for
from pgsr_core.errors import PgsrError, Unavailable

if TYPE_CHECKING:
    from flows.prefect_settings import PrefectFailed
    from tasks.boundary import StageFailed
    from tasks.run import RunRef

ConfigurationFile = Annotated[
    Path, typer.Argument(help="The product's YAML file.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document for scripts.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show Prefect's own log as well.")]
Slot = Annotated[
    datetime | None,
    typer.Option(
        "--date",
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"],
        help="Slot for templates in names and paths, in the schedule's time zone [now].",
    ),
]


class StageError(PgsrError):
    """A stage failed in a way that nobody foresaw; the operator's log holds the traceback."""

    exit_code = 3


class PrefectStopped(Unavailable):
    """Prefect's server went away before the release was out."""


def release(
    configuration: ConfigurationFile,
    slot: Slot = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Run a release: ingest, cumulative, noise, isotonic, CPWL, validate, publish.

    Example: pgsr release household-sizes.yaml
    """
    from flows.cli.screen import warn
    from tasks.run import create_run, run_of
    from tasks.stages.prepare import decide_release, refuse_early
    from tasks.standing import is_the_same_release

    place = home_for(configuration, home)
    planned, place = decide_release(configuration, slot=slot_time(slot), home=place, warn=warn)
    ref = run_of(planned, place)
    with ref.alone():
        refuse_early(planned, place, warn=warn)
        if is_the_same_release(ref, planned.plan):
            report_no_change(ref, as_json=as_json)
            return
        run_and_report(create_run(planned, place), as_json=as_json, verbose=verbose)


def resume(
    name: Annotated[str, typer.Argument(help="PRODUCT/RELEASE, as in pgsr status.")],
    home: HomeFolder = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Go on with a release that stopped: never charges or draws again.

    Example: pgsr resume household-sizes/2026-Q3
    """
    from tasks.order import open_or_prepare
    from tasks.run import RunRef
    from tasks.standing import is_the_same_release
    from tasks.storage.zones import split_run_name

    ref = RunRef(str(home_at(home).root), *split_run_name(name))
    if not ref.folder.safe.exists():
        ref.open()  # says that it was never started here, before a ledger is made
    with ref.alone():
        run = open_or_prepare(ref)
        run.committed()  # refused now if it was not measured by this plan
        if is_the_same_release(ref, run.plan):
            report_no_change(ref, as_json=as_json)
            return
        run_and_report(ref, as_json=as_json, verbose=verbose)


def run_and_report(ref: RunRef, *, as_json: bool, verbose: bool) -> None:
    """Run the flow with its stages on the screen, then say what came of it."""
    from flows.cli.outcome import report_outcome

    execute(ref, verbose=verbose)
    report_outcome(ref, as_json=as_json)


def report_no_change(ref: RunRef, *, as_json: bool) -> None:
    """Say that the release is out, and that this time nothing was done."""
    from flows.cli.outcome import report_outcome
    from flows.cli.screen import warn

    warn(f"{ref.name} is published already: nothing was charged, drawn or changed.")
    report_outcome(ref, as_json=as_json, changed=False)


def execute(ref: RunRef, *, verbose: bool) -> None:
    """Run the release flow in this process.

    Raises:
        PgsrError: what stopped a stage, in full, for the operator's eyes.
    """
    from flows.cli.screen import StageDisplay, complain
    from flows.prefect_settings import PrefectFailed, using_prefect
    from tasks import logs, operator

    display = StageDisplay(ref.name)
    try:
        with using_prefect(ref.installation, verbose=verbose), display:
            operator.watch(display)
            failure = _run_flow(ref)
    except PrefectFailed as failed:
        _go_on_without_prefect(ref, failed)
        return
    if failure is None:
        return
    cause = display.failure
    scrubbed = StageError(
        f"{failure}. Nothing was published; whatever was finished is kept. "
        f"Remedy: see {ref.folder.operator_log}, then pgsr resume {ref.name}."
    )
    if logs.is_json():
        # What the operator may read on a terminal must not go where the log is collected.
        complain(str(scrubbed))
        raise typer.Exit(failure.exit_code or StageError.exit_code)
    raise cause if isinstance(cause, PgsrError) else scrubbed


def _go_on_without_prefect(ref: RunRef, failed: PrefectFailed) -> None:
    """Prefect's server went away: if the release is out all the same, that is all that counts.

    Raises:
        PrefectStopped: it is not.
    """
    from flows.cli.screen import warn
    from tasks.standing import is_the_same_release

    if not is_the_same_release(ref, ref.open().plan):
        raise PrefectStopped(
            f"Prefect's server is gone or did not do what it was asked ({failed.error}). Whatever "
            "was finished is kept. Remedy: see that its disk is not full and, if PREFECT_API_URL "
            f"names a server, that it runs; then pgsr resume {ref.name}."
        )
    warn(f"Prefect's server went away ({failed.error}); {ref.name} is published all the same.")


def _run_flow(ref: RunRef) -> StageFailed | None:
    from flows.release import release as release_flow
    from tasks.boundary import StageFailed

    try:
        release_flow(ref.home, ref.product, ref.release)
    except StageFailed as failure:
        return failure
    return None


def slot_time(slot: datetime | None) -> datetime:
    """The moment that templates are filled in for."""
    return slot if slot is not None else datetime.now(UTC)
