"""`pgsr serve`: a server, the schedules of some products and their runs, with one command."""

from __future__ import annotations

import os
import shlex
import signal
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.homes import HomeFolder, home_for, runnable
from flows.cli.release import Verbose
from pgsr_core.errors import PgsrError
from tasks.storage.places import HOME_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.series import Series
    from tasks.storage.zones import Home

HEADING = """\
# Written by `pgsr serve CONFIG… --prefect-yaml FILE`; schedules are changed in the configurations.
# Deploy with `prefect deploy --all --prefect-file FILE` from the folder that paths are relative to,
# and start a worker on each machine: `prefect worker start --pool pgsr --type process`.
# The server and the workers share a secret (PREFECT_SERVER_API_AUTH_STRING there, and
# PREFECT_API_AUTH_STRING here): whoever else may write to the server decides what workers run.
# A worker runs only what was served from its PGSR_HOME: write this file anew, there, after an edit.
# One run of a product at a time; a slot that comes due meanwhile waits, since it is a release too.
"""


class NotToBeServed(PgsrError):
    """These configurations cannot be served together; nothing was started."""


def serve(
    configurations: Annotated[
        list[Path], typer.Argument(help="The products' YAML files.", show_default=False)
    ],
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Where the Prefect server listens.")
    ] = 4200,
    at_once: Annotated[
        int, typer.Option(min=1, help="Releases to be made at the same time on this machine.")
    ] = 1,
    prefect_yaml: Annotated[
        Path | None,
        typer.Option(help="Serve nothing; write the deployments, for a work pool, to this file."),
    ] = None,
    home: HomeFolder = None,
    verbose: Verbose = False,
) -> None:
    """Serve products: make every release when it comes due, and those that were missed.

    Starts a Prefect server of its own unless PREFECT_API_URL names one. Ctrl-C stops both; what
    was being made is finished at the next start.

    Example: pgsr serve household-sizes.yaml
    """
    from flows.cli.screen import out
    from flows.prefect_settings import use_prefect
    from flows.server import serving_alone

    products = _products(configurations, home)
    place = _only_home(products)
    _say_what_begins(products)
    if prefect_yaml is not None:
        _write(products, place, prefect_yaml)
        return
    use_prefect(place, verbose=verbose)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a service is stopped like this
    with suppress(KeyboardInterrupt), serving_alone(place):
        _record(products, place)
        # Runs are processes of their own: they are to look for the record where it is.
        os.environ[HOME_VARIABLE] = str(place.root)
        _serve(products, place, port=port, at_once=at_once)
    out.print("Stopped. Whatever was finished is kept; the next start goes on.")


def _serve(products: Mapping[Path, Series], home: Home, *, port: int, at_once: int) -> None:
    """Serve on the server that the environment names, or on one of our own."""
    from flows.prefect_settings import API, client_of, explained
    from flows.server import own_server, password_file

    served = tuple(products.values())
    configured = os.environ.get(API)
    if configured:
        _show(products, configured)
        _warn_if_open(configured)
        with explained():
            from flows.serving import serve as serve_until_stopped

            serve_until_stopped(served, at_once=at_once)
        return
    with own_server(home, port=port) as server, client_of(server):
        _show(products, server.address, password=password_file(home))
        with explained():
            from flows.serving import serve as serve_until_stopped

            serve_until_stopped(served, at_once=at_once, gone=server.gone)


def _record(products: Mapping[Path, Series], home: Home) -> None:
    """Note which configurations may be run, as they are now.

    Raises:
        NotToBeServed: one was edited while it was read.
    """
    from tasks.series import Series
    from tasks.served import Served, record_served

    served = [Served.now(series.product, path) for path, series in products.items()]
    again = [Series.open(path, home=home).configuration for path in products]
    if again != [series.configuration for series in products.values()]:
        raise NotToBeServed(
            "a configuration was edited while it was read. Remedy: run the same again."
        )
    record_served(home, served)


def _warn_if_open(address: str) -> None:
    from flows.cli.screen import warn
    from tasks.server_check import what_is_open

    for says, remedy in what_is_open(address):
        warn(f"{says}. Remedy: {remedy}.")


def _products(configurations: list[Path], home: Path | None) -> dict[Path, Series]:
    """Read all configurations.

    Raises:
        NotToBeServed: two of the same product, or one without a schedule.
    """
    from tasks.series import Series

    products = {path: Series.open(path, home=home_for(path, home)) for path in configurations}
    names = [series.product for series in products.values()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise NotToBeServed(
            f"{', '.join(twice)} stands in more than one configuration. Remedy: leave one of them "
            "out, or give it a product name of its own."
        )
    idle = [str(path) for path, series in products.items() if series.schedule is None]
    if idle:
        raise NotToBeServed(
            f"{', '.join(idle)} has no schedule. Remedy: add a section such as "
            'schedule: {cron: "0 6 1 1,4,7,10 *", timezone: Europe/Berlin}.'
        )
    return products


def _only_home(products: Mapping[Path, Series]) -> Home:
    """The state folder of all products.

    Raises:
        NotToBeServed: they have several.
    """
    homes = {series.home for series in products.values()}
    if len(homes) > 1:
        raise NotToBeServed(
            "these products keep their state in different folders. Remedy: name one for all of "
            "them with --home or in PGSR_HOME."
        )
    return homes.pop()


def _say_what_begins(products: Mapping[Path, Series]) -> None:
    """A new ledger, or a new population in it, is never a silent matter."""
    from flows.cli.screen import warn
    from tasks.ledger.ledger import Ledger
    from tasks.stages.prepare import what_begins

    for series in products.values():
        home, population = series.home, series.configuration.population
        ledger = Ledger.existing(home.ledger_url, witness=home.witness)
        if said := what_begins(home, ledger, population.name, population.budget):
            warn(said)


def _show(products: Mapping[Path, Series], address: str, *, password: Path | None = None) -> None:
    """Say what is served, when it comes due next, and where to look."""
    from flows.cli.screen import out, table
    from tasks.configuration.slots import next_slots

    grid = table("Serving", "product", "schedule", "missed slots", "next slot", "next release")
    for series in products.values():
        schedule = series.schedule
        if schedule is None:
            continue
        [slot] = next_slots(schedule, after=datetime.now(UTC), count=1)
        grid.add_row(
            series.product,
            f"{schedule.cron} ({schedule.timezone})",
            schedule.catch_up,
            f"{slot:%Y-%m-%d %H:%M:%S %Z}",
            series.release(slot).release,
        )
    for column in grid.columns:
        column.overflow = "fold"
    out.print(grid)
    out.print(f"Prefect  {address.removesuffix('/api')}", soft_wrap=True)
    if password is not None:
        out.print(f"         the pages ask for a password: it is in {password}", soft_wrap=True)
    shows = runnable("pgsr status")
    out.print(f"Ctrl-C stops. {shows} shows the releases.", soft_wrap=True, markup=False)


def _write(products: Mapping[Path, Series], home: Home, file: Path) -> None:
    """Write `prefect.yaml`: the same deployments, for workers of a pool; the ledger notes it."""
    import yaml

    from flows.cli.screen import out
    from flows.deployment import WORK_POOL, described

    _record(products, home)
    for series in products.values():
        # A worker may come only after the first slots: they are missed from now on, not from then.
        series.put_on_schedule()
    deployments = [described(series, path) for path, series in products.items()]
    document = {"name": "pgsr", "deployments": deployments}
    try:
        file.write_text(f"{HEADING}{yaml.safe_dump(document, sort_keys=False)}")
    except OSError as error:
        raise NotToBeServed(
            f"{file} cannot be written ({error.strerror}). Remedy: name another file."
        ) from None
    deploy = f"prefect deploy --all --prefect-file {shlex.quote(str(file))}"
    out.print(f"Wrote    {file}; next: {deploy}", soft_wrap=True, markup=False)
    state = f"PGSR_HOME={shlex.quote(str(home.root))}"
    out.print(
        f"         and, on each machine: {state} prefect worker start --pool {WORK_POOL}",
        soft_wrap=True,
        markup=False,
    )
