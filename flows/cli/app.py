"""The commands of `pgsr` and how they end."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from flows.cli.alerts import alerts
from flows.cli.audit import audit
from flows.cli.budget import budget
from flows.cli.correct import repost, withdraw
from flows.cli.demo import demo
from flows.cli.evaluate import evaluate
from flows.cli.inspect import check
from flows.cli.keys import keys
from flows.cli.ledger import ledger
from flows.cli.metrics import metrics
from flows.cli.operate import doctor, purge
from flows.cli.release import release, resume
from flows.cli.screen import complain
from flows.cli.serve import serve
from flows.cli.status import status
from flows.cli.synth import synth
from pgsr_core.errors import PgsrError
from tasks import logs
from tasks.outside import IN_WORDS

EXIT_UNEXPECTED = 70
EXIT_INTERRUPTED = 130
_HIDDEN = f"the command {IN_WORDS}. Remedy: run it with --log-format text, which says why."

app = typer.Typer(
    name="pgsr",
    help="Publish how many groups of each size live in each region, with differential privacy.",
    epilog="Exit codes: 0 success; 1 the answer is no; 2 bad input; 3 try again later.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(demo)
app.command()(synth)
app.command()(check)
app.command()(release)
app.command()(resume)
app.command()(status)
app.command()(serve)
app.command()(doctor)
app.command()(metrics)
app.command()(purge)
app.command()(withdraw)
app.command()(repost)
app.command()(evaluate)
app.add_typer(budget)
app.add_typer(keys)
app.add_typer(ledger)
app.add_typer(audit)
app.add_typer(alerts)


class LogFormat(StrEnum):
    """Who reads what a run says on standard error."""

    TEXT = "text"
    JSON = logs.JSON


@app.callback()
def log_as(
    log_format: Annotated[
        LogFormat,
        typer.Option(envvar=logs.VARIABLE, help="Stages on standard error: for people, or JSON."),
    ] = LogFormat.TEXT,
) -> None:
    """Say how to log, for every command and for the processes that it starts."""
    os.environ[logs.VARIABLE] = str(log_format)


def run() -> None:
    """Run a command and turn an expected error into its message and exit code."""
    try:
        app()
    except PgsrError as error:
        # What the operator may read on a terminal must not go where the log is collected.
        hidden = error.depends_on_data and logs.is_json()
        complain(_HIDDEN if hidden else str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        complain("interrupted; whatever was finished is kept. Remedy: pgsr resume goes on.")
        sys.exit(EXIT_INTERRUPTED)
