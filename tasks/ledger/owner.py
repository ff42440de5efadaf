"""Who holds a reservation: a process of a machine, told apart from a later one of the same id."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FIELDS = 4


@dataclass(frozen=True)
class Owner:
    """A process, by host, process id, start time and a nonce of its own."""

    host: str
    process: int
    started: str
    nonce: str

    def __str__(self) -> str:
        return f"{self.host}/{self.process}/{self.started}/{self.nonce}"

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """Read back what str() wrote; None for anything else."""
        parts = text.split("/")
        if len(parts) != _FIELDS or not parts[1].isdigit():
            return None
        return cls(parts[0], int(parts[1]), parts[2], parts[3])

    def is_surely_gone(self) -> bool:
        """Whether the process ran on this machine and no longer does.

        False when unsure (another machine): then only the lease tells.
        """
        return self.is_here() and _start_time(self.process) != self.started

    def is_here(self) -> bool:
        """Whether the process runs, or ran, on this machine."""
        return self.host == socket.gethostname()


def this_process() -> Owner:
    """A new owner for a reservation of this process."""
    return owner_of(os.getpid())


def owner_of(process: int) -> Owner:
    """A new owner for a process that runs on this machine."""
    return Owner(socket.gethostname(), process, _start_time(process) or "?", secrets.token_hex(8))


@cache
def actor() -> str:
    """Who runs this, for the event log."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _start_time(process: int) -> str | None:
    """The start time of a process as the kernel counts it; None if no such process lives."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _alive_without_proc(process)
    # The command name, in parentheses, may hold spaces; fields 3 and 22 are counted after it.
    fields = stat.rpartition(")")[2].split()
    # A zombie is dead: it only waits for a parent that, in a container, may never ask.
    return None if fields[0] in {"Z", "X"} else fields[19]


def _alive_without_proc(process: int) -> str | None:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "?"
