"""Prefect's settings for this product, and its server; to be called before Prefect is imported.

Everything is a default: what the environment says already (a server's address, a log level)
stands. The server of a `pgsr serve` in the same state folder is used, so that its pages show
every run; where none runs, a temporary one is started.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from flows.server import find_server, temporary_server
from flows.server_process import Server
from pgsr_core.errors import PgsrError, Unavailable
from tasks.storage.zones import Home, make_private_folder

API = "PREFECT_API_URL"
SECRET = "PREFECT_API_AUTH_STRING"  # noqa: S105  (a variable's name)
# Of a request, 14 seconds in all: whoever waits at a terminal is told soon that a server is gone.
RETRIES = {"PREFECT_CLIENT_MAX_RETRIES": "3"}
SENDING_SECONDS = 5.0


class PrefectFailed(Unavailable):
    """Prefect's server is gone, or cannot do what it is asked; carries the name of the error."""

    def __init__(self, error: str) -> None:
        self.error = error
        super().__init__(
            f"Prefect's server is gone or did not do what it was asked ({error}). Whatever was "
            "finished is kept. Remedy: see that it runs and that its disk is not full (pgsr "
            "doctor), and run the same again."
        )


@contextmanager
def using_prefect(home: Home, *, verbose: bool) -> Iterator[None]:
    """Settings and a server for the flows that are run meanwhile.

    Raises:
        ServerDidNotStart: a temporary one was needed.
        PrefectFailed: it did not last.
    """
    use_prefect(home, verbose=verbose)
    for name, value in RETRIES.items():
        os.environ.setdefault(name, value)
    if os.environ.get(API):
        with explained():
            yield
        return
    found = find_server(home)
    if found is not None:
        with client_of(found), explained():
            yield
        return
    with temporary_server(home) as server, client_of(server), explained():
        try:
            yield
        finally:
            _send_what_is_left()


@contextmanager
def explained() -> Iterator[None]:
    """Turn what Prefect's client says of its server into an error that says what to do.

    Raises:
        PrefectFailed: the server is gone, or cannot do what it is asked.
    """
    try:
        yield
    except Exception as error:
        if not _is_of_prefect(error):
            raise
        failure = PrefectFailed(type(error).__name__)
    else:
        return
    # Raised outside of the except block: the original is not chained to it.
    raise failure


def _is_of_prefect(error: BaseException | None) -> bool:
    """Whether an error is one of Prefect's client, or was raised on account of one."""
    if error is None or isinstance(error, PgsrError) or "prefect" not in sys.modules:
        return False
    import httpx
    from prefect.exceptions import PrefectException
    from websockets.exceptions import WebSocketException

    of_prefect = (httpx.HTTPError, PrefectException, WebSocketException)
    return isinstance(error, of_prefect) or _is_of_prefect(error.__cause__ or error.__context__)


def _send_what_is_left() -> None:
    """Wait, but not long, for the logs and events that Prefect sends in the background."""
    if "prefect" not in sys.modules:
        return
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for sender in (APILogWorker, EventsWorker):
        sender.drain_all(timeout=SENDING_SECONDS)


@contextmanager
def client_of(server: Server) -> Iterator[None]:
    """Let this process, and those it starts, ask a server; the secret is in no command line."""
    settings = {API: server.address, SECRET: server.secret}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def use_prefect(home: Home, *, verbose: bool) -> None:
    """Keep Prefect's files in our home, its chatter off the terminal and its reports at home.

    Args:
        home: the installation.
        verbose: let its log through.
    """
    make_private_folder(home.prefect)
    quiet = {
        # Its pages keep the log; the terminal shows the stages instead.
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_ROOT_LEVEL": "CRITICAL",
        "PREFECT_INTERNAL_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_CLI_WRAP_LINES": "false",
    }
    defaults = {
        "PREFECT_HOME": str(home.prefect),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
        **({} if verbose else quiet),
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    # Without it, each log record that cannot be sent to a server is a line on the terminal.
    logging.raiseExceptions = verbose
    # Prefect never starts a server of its own: it would answer everybody.
    os.environ["PREFECT_SERVER_EPHEMERAL_ENABLED"] = "false"
