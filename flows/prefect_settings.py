"""Prefect's settings for this product; to be called before Prefect is imported.

Everything is a default: what the environment says already (a server's address, a log level)
stands. The server of a `pgsr serve` in the same state folder is used, so that its pages show
every run and only one process writes Prefect's database.
"""

from __future__ import annotations

import os

from flows.server import find_server
from tasks.storage.zones import Home, make_private_folder


def use_prefect(home: Home, *, verbose: bool, join: bool = True) -> None:
    """Keep Prefect's files in our home, its chatter off the terminal and its reports at home.

    Args:
        home: the installation.
        verbose: let its log through.
        join: use the server of a `pgsr serve` in the same home, if one runs.
    """
    make_private_folder(home.prefect)
    quiet = {
        # Its pages keep the log; the terminal shows the stages instead.
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_ROOT_LEVEL": "CRITICAL",
        "PREFECT_CLI_WRAP_LINES": "false",
    }
    server = find_server(home) if join else None
    defaults = {
        **({"PREFECT_API_URL": server} if server is not None else {}),
        "PREFECT_HOME": str(home.prefect),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        # A busy machine takes longer than the default to start the temporary server.
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
        **({} if verbose else quiet),
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
