"""A Prefect server of our own: it lives as long as `pgsr serve`, and other commands find it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pgsr_core.errors import Unavailable
from tasks.ledger.owner import Owner, owner_of
from tasks.storage.zones import (
    PRIVATE_FILE,
    PRIVATE_UMASK,
    Home,
    append_private,
    make_private_folder,
    write_private,
)

HOST = "127.0.0.1"
START_SECONDS = 180.0
STOP_SECONDS = 30.0
_POLL_SECONDS = 0.2
_LEASES = "prefect.server.concurrency.lease_storage"
SETTINGS = {
    # A limit of one run for each product must still be known after a restart.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": f"{_LEASES}.filesystem",
    # How long a run waits before it asks again whether the one before it has ended.
    "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "5",
}


class AlreadyServing(Unavailable):
    """Another `pgsr serve` works in this state folder."""


class PortTaken(Unavailable):
    """Something else listens where the server would."""


class ServerDidNotStart(Unavailable):
    """The Prefect server ended, or did not answer in time."""


def find_server(home: Home) -> str | None:
    """The address of the server that `pgsr serve` started in a state folder, if it runs."""
    noted = _noted(home)
    return None if noted is None or noted[1].is_surely_gone() else noted[0]


@contextmanager
def own_server(home: Home, *, port: int) -> Iterator[str]:
    """Start a server, say its address, and stop it on leaving.

    Raises:
        PortTaken: its port is in use.
        ServerDidNotStart: it ended, or did not answer in time.
    """
    _stop_one_left_behind(home)
    _require_free(port)
    log = home.prefect / "server.log"
    server = _start(port, log)
    try:
        address = f"http://{HOST}:{port}/api"
        noted = {"address": address, "owner": str(owner_of(server.pid))}
        write_private(_note(home), json.dumps(noted).encode())
        _wait_for(address, server, log)
        yield address
    finally:
        _stop(server)
        _note(home).unlink(missing_ok=True)


@contextmanager
def serving_alone(home: Home) -> Iterator[None]:
    """Hold the state folder's lock, which ends with the process.

    Raises:
        AlreadyServing: another process holds it.
    """
    make_private_folder(home.prefect)
    descriptor = os.open(home.prefect / "serve.lock", os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
    with os.fdopen(descriptor) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyServing(
                f"another pgsr serve works in {home.root}. Remedy: stop it first, or give it all "
                "configurations at once."
            ) from None
        yield


def _stop_one_left_behind(home: Home) -> None:
    """End the server of a `pgsr serve` that was killed and could not do it."""
    noted = _noted(home)
    if noted is None:
        return
    owner = noted[1]
    deadline = time.monotonic() + STOP_SECONDS
    while owner.is_here() and not owner.is_surely_gone() and time.monotonic() < deadline:
        with suppress(ProcessLookupError):
            os.kill(owner.process, signal.SIGTERM)
        time.sleep(_POLL_SECONDS)


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            raise PortTaken(
                f"port {port} is in use. Remedy: pgsr serve --port with another one, or name the "
                "Prefect server that listens there in PREFECT_API_URL."
            ) from None


def _start(port: int, log: Path) -> subprocess.Popen[bytes]:
    hushed = ("PREFECT_LOGGING_", "PREFECT_API_URL")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hushed)}
    address = ("--host", HOST, "--port", str(port))
    append_private(log, "")
    with log.open("ab") as sink:
        return subprocess.Popen(  # noqa: S603  (our own interpreter, fixed arguments)
            [sys.executable, "-m", "prefect", "server", "start", *address],
            env={**SETTINGS, **environment},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            umask=PRIVATE_UMASK,
            # Ctrl-C is for us; the server goes last.
            start_new_session=True,
        )


def _wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=2):  # noqa: S310  (our own)
                return
        except OSError:
            time.sleep(_POLL_SECONDS)
    raise ServerDidNotStart(f"the Prefect server did not start. Remedy: see {log}, and try again.")


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _note(home: Home) -> Path:
    return home.prefect / "server.json"


def _noted(home: Home) -> tuple[str, Owner] | None:
    try:
        noted = json.loads(_note(home).read_bytes())
        owner = Owner.parse(noted["owner"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None if owner is None else (str(noted["address"]), owner)
