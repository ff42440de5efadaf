"""`pgsr alerts`: try a product's alerts, look for what nobody told, and let a server tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from flows.cli.homes import HomeFolder, home_for
from flows.cli.release import AsJson, ConfigurationFile
from pgsr_core.errors import PgsrError

if TYPE_CHECKING:
    from tasks.configuration.loading import LoadedConfiguration

alerts = typer.Typer(
    name="alerts",
    help="Try and install the alerts of a product.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


class NoAlerts(PgsrError):
    """The configuration tells nobody."""

    def __init__(self) -> None:
        super().__init__(
            "the configuration tells nobody. Remedy: add alerts: with a webhook, an email, or both."
        )


@alerts.command("test")
def send_test(configuration: ConfigurationFile, as_json: AsJson = False) -> None:
    """Send a test message through every channel that the configuration names.

    Ends with 1 if one of them did not take it.

    Example: pgsr alerts test household-sizes.yaml
    """
    from flows.cli.screen import out, say_json
    from tasks.alerts.delivery import DELIVERED, deliver
    from tasks.alerts.message import Alert

    found = _loaded(configuration).configuration
    if found.alerts is None:
        raise NoAlerts
    sent = deliver(Alert(None, found.product), found.alerts)
    if as_json:
        say_json(sent)
    else:
        for channel, outcome in sent.items():
            mark = "[green]✓[/]" if outcome == DELIVERED else "[bold red]✗[/]"
            out.print(f"{mark} {channel:<8} {outcome}")
    if set(sent.values()) != {DELIVERED}:
        raise typer.Exit(1)


@alerts.command()
def check(
    configuration: ConfigurationFile, home: HomeFolder = None, as_json: AsJson = False
) -> None:
    """Tell, once, if the newest release that came due is not out; for a timer to run.

    Needs no Prefect, so it also works when whatever runs the schedule does not. Ends with 1 if
    a release is overdue.

    Example: pgsr alerts check household-sizes.yaml
    """
    from flows.cli.screen import out, say_json
    from tasks.alerts.schedules import tell_missed
    from tasks.series import Series

    series = Series.open(configuration, home=home_for(configuration, home))
    if series.configuration.alerts is None:
        raise NoAlerts
    overdue = tell_missed(series)
    if as_json:
        say_json({"overdue": overdue.name if overdue is not None else None})
    else:
        out.print("Nothing is overdue." if overdue is None else f"{overdue.name} is overdue.")
    if overdue is not None:
        raise typer.Exit(1)


@alerts.command()
def install(
    configuration: ConfigurationFile, home: HomeFolder = None, as_json: AsJson = False
) -> None:
    """Let the Prefect server tell the webhook of runs that failed, crashed or are late.

    Installing again replaces what was installed.

    Example: pgsr alerts install household-sizes.yaml
    """
    from flows.cli.screen import out, say_json
    from flows.prefect_settings import using_prefect

    loaded = _loaded(configuration)
    with using_prefect(home_for(configuration, home), verbose=False):
        from tasks.alerts.automations import install as put_on_server

        names = put_on_server(loaded.configuration)
    if as_json:
        say_json(list(names))
        return
    for name in names:
        out.print(f"Installed {name}", markup=False)


def _loaded(configuration: ConfigurationFile) -> LoadedConfiguration:
    from tasks.configuration.loading import load_configuration

    return load_configuration(configuration)
