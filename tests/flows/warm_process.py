"""Processes that start with the heavy libraries imported: forked from one that only imported them.

Starting the command line from nothing costs seconds of imports for each call, most of a test's
time. These are processes all the same: with their own environment, exit code and death.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path

# Prefect reads its settings when it is imported: the first process must have the right ones.
PRELOADED = ["flows.release", "flows.cli.app", "great_expectations", "altair", "opendp.prelude"]
QUIET = {
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_ROOT_LEVEL": "CRITICAL",
}


def run_warm(
    arguments: Sequence[str], *, cwd: Path, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run the command line as `subprocess.run` would, without the imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    _start_server({**environment, **QUIET})
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        process = context.Process(
            target=_command,
            args=(list(arguments), str(cwd), dict(environment), _umask(), str(out), str(err)),
        )
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise TimeoutError(f"pgsr {' '.join(arguments)}")
        said = [file.read_text() if file.exists() else "" for file in (out, err)]
    return subprocess.CompletedProcess(arguments, process.exitcode, *said)


def _start_server(environment: Mapping[str, str]) -> None:
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)


def _umask() -> int:
    """This process's; that of the one which processes are forked from may be another."""
    found = os.umask(0)
    os.umask(found)
    return found


def _command(
    arguments: list[str], cwd: str, environment: dict[str, str], umask: int, out: str, err: str
) -> None:
    from flows.cli import main

    os.umask(umask)
    for number, name in ((1, out), (2, err)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = ["pgsr", *arguments]
    sys.modules.pop("flows.cli.screen", None)  # it is as wide as the screen was at its import
    try:
        main()
    finally:
        atexit._run_exitfuncs()  # which a process made by multiprocessing skips
        sys.stdout.flush()
        sys.stderr.flush()
