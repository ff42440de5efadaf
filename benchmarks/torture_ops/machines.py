"""Machines of an office: where the system allows it, each has a host name of its own."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
COMMAND_SECONDS = 300
STOP_SECONDS = 30
# Every process of a machine carries it, so that all of them can be found.
MARK = "PGSR_TORTURE_MACHINE"
WORKER = "worker"  # a word of the worker's command line, and of no flow run's
_NAMED = 'hostname "$0" && exec "$@"'


@functools.cache
def can_be_named() -> bool:
    """Whether a process may have a host name of its own (Linux, as root)."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    tried = [unshare, "--uts", "sh", "-c", _NAMED, "other", "true"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0  # noqa: S603


@dataclass(frozen=True)
class Machine:
    """A host, with a folder for the logs of what runs there.

    Attributes:
        name: the host's; it stays the system's own where that cannot be changed.
        environment: of every process of the machine.
    """

    name: str
    folder: Path
    environment: Mapping[str, str]

    def run(self, *module: str) -> subprocess.CompletedProcess[str]:
        """Run a Python module, with its arguments, to its end."""
        return subprocess.run(  # noqa: S603  (our own interpreter)
            self._command(module),
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def start(self, *module: str, log: str) -> None:
        """Start a Python module that goes on; what it says goes to a log."""
        self.folder.mkdir(exist_ok=True)
        with (self.folder / log).open("ab") as sink:
            subprocess.Popen(  # noqa: S603  (our own interpreter)
                self._command(module),
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def lose_power(self) -> int:
        """Kill every process of the machine; says how many there were."""
        killed = 0
        while found := list(self.processes()):
            killed += len(found)
            for process in found:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
                    process.wait(STOP_SECONDS)
        return killed

    def shut_down(self) -> None:
        """End what runs as a service manager does: ask, wait, kill."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        psutil.wait_procs(list(self.processes()), timeout=STOP_SECONDS)
        self.lose_power()

    def lose_worker(self) -> int:
        """Kill the worker; the runs that it started go on without it."""
        found = [each for each in self.processes() if WORKER in _words(each)]
        for process in found:
            with suppress(psutil.NoSuchProcess):
                os.kill(process.pid, signal.SIGKILL)
                process.wait(STOP_SECONDS)
        return len(found)

    def has_runs(self) -> bool:
        """Whether a flow run lives here, with its worker or without."""
        return any(WORKER not in _words(process) for process in self.processes())

    def processes(self) -> Iterator[psutil.Process]:
        """What lives on the machine."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                alive = process.status() != psutil.STATUS_ZOMBIE
                if alive and process.environ().get(MARK) == self._mark:
                    yield process

    @property
    def _mark(self) -> str:
        return f"{self.folder}:{self.name}"

    @property
    def _environment(self) -> dict[str, str]:
        return {**self.environment, MARK: self._mark}

    def _command(self, module: tuple[str, ...]) -> list[str]:
        named = ["unshare", "--uts", "sh", "-c", _NAMED, self.name] if can_be_named() else []
        return [*named, sys.executable, "-m", *module]


def _words(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return []
