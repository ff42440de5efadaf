"""`pgsr serve`: a server, the schedules of some products and their runs, with one command."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.release import Verbose
from pgsr_core.errors import PgsrError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from tasks.series import Series
    from tasks.storage.zones import Home

API = "PREFECT_API_URL"
HEADING = """\
# Written by `pgsr serve CONFIG… --prefect-yaml FILE`; schedules are changed in the configurations.
# Deploy with `prefect deploy --all --prefect-file FILE` from the folder that paths are relative to,
# and start a worker on each machine: `prefect worker start --pool pgsr --type process`.
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

    products = _products(configurations)
    home = _only_home(products)
    if prefect_yaml is not None:
        _write(products, prefect_yaml)
        return
    use_prefect(home, verbose=verbose, join=False)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a service is stopped like this
    with suppress(KeyboardInterrupt), serving_alone(home), _server(home, port) as address:
        os.environ[API] = address
        _show(products, address)
        from flows.serving import serve as serve_until_stopped

        serve_until_stopped(tuple(products.values()), at_once=at_once)
    out.print("Stopped. Whatever was finished is kept; the next start goes on.")


def _products(configurations: list[Path]) -> dict[Path, Series]:
    """Read all configurations.

    Raises:
        NotToBeServed: two of the same product, or one without a schedule.
    """
    from tasks.series import Series

    products = {path: Series.open(path) for path in configurations}
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
            "them in PGSR_HOME."
        )
    return homes.pop()


def _server(home: Home, port: int) -> AbstractContextManager[str]:
    from flows.server import own_server

    configured = os.environ.get(API)
    return nullcontext(configured) if configured else own_server(home, port=port)


def _show(products: Mapping[Path, Series], address: str) -> None:
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
    out.print("Ctrl-C stops. pgsr status shows the releases.")


def _write(products: Mapping[Path, Series], file: Path) -> None:
    """Write `prefect.yaml`: the same deployments, for workers of a pool; the ledger notes it."""
    import yaml

    from flows.cli.screen import out
    from flows.deployment import WORK_POOL, described

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
    out.print(f"Wrote    {file}; next: prefect deploy --all --prefect-file {file}", soft_wrap=True)
    out.print(f"         and, on each machine: prefect worker start --pool {WORK_POOL}")
