"""The `pgsr` command line.

Modules here import what is light; Prefect, DuckDB, numba and the rest are imported by the
commands that need them, so that `pgsr --help` answers at once.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line; what a user can cause ends in a message, never in a traceback."""
    from flows.cli.app import run

    run()
