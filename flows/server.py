"""Prefect servers of our own: that of `pgsr serve`, which other commands find; temporary ones."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from flows.server_process import (
    HOST,
    POLL_SECONDS,
    STOP_SECONDS,
    Server,
    ServerDidNotStart,
    running_server,
)
from pgsr_core.errors import Unavailable
from tasks.ledger.owner import Owner, owner_of
from tasks.storage.zones import (
    PRIVATE_FILE,
    Home,
    disk_told,
    make_private_folder,
    write_private,
)

_LEASES = "prefect.server.concurrency.lease_storage"
SETTINGS = {
    # A limit of one run for each product must still be known after a restart.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": f"{_LEASES}.filesystem",
    # How long a run waits before it asks again whether the one before it has ended.
    "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "5",
}
# As Prefect starts its own temporary one: no pages, and no services but the needed ones.
TEMPORARY = {"PREFECT__SERVER_EPHEMERAL": "1", "PREFECT_SERVER_UI_ENABLED": "false"}


class AlreadyServing(Unavailable):
    """Another `pgsr serve` works in this state folder."""


class PortTaken(Unavailable):
    """Something else listens where the server would."""


def password_file(home: Home) -> Path:
    """What opens the pages of the server of `pgsr serve`; there while it runs."""
    return home.prefect / "password"


def find_server(home: Home) -> Server | None:
    """The server that `pgsr serve` started in a state folder, if it runs."""
    noted = _noted(home)
    if noted is None or noted[1].is_surely_gone():
        return None
    try:
        secret = password_file(home).read_text().strip()
    except OSError:
        return None
    return Server(noted[0], secret, noted[1].process)


@contextmanager
def own_server(home: Home, *, port: int) -> Iterator[Server]:
    """Start a server that other commands find, and stop it on leaving.

    Raises:
        PortTaken: its port is in use.
        ServerDidNotStart: it ended, or did not answer in time.
    """
    _stop_one_left_behind(home)
    settings = {name: os.environ.get(name, value) for name, value in SETTINGS.items()}
    with (
        _bound(port) as listening,
        running_server(listening, home.prefect, settings=settings) as server,
    ):
        try:
            write_private(password_file(home), f"{server.secret}\n".encode())
            noted = {"address": server.address, "owner": str(owner_of(server.process))}
            write_private(_note(home), json.dumps(noted).encode())
            yield server
        finally:
            _note(home).unlink(missing_ok=True)
            password_file(home).unlink(missing_ok=True)


@contextmanager
def temporary_server(home: Home) -> Iterator[Server]:
    """Start a server for this process alone, and stop it on leaving.

    Each has a database of its own: several that share one keep each other waiting until their
    clients give up.

    Raises:
        ServerDidNotStart: it ended, or did not answer in time.
    """
    with _free_folder(home.prefect / "temporary") as (folder, lock), _bound(0) as listening:
        settings = {**TEMPORARY, "PREFECT_HOME": str(folder)}
        try:
            with running_server(listening, folder, settings=settings, keep_open=(lock,)) as server:
                yield server
        except ServerDidNotStart:
            # No guarantee rests on its database: the next one begins anew.
            for path in folder.glob("prefect.db*"):
                path.unlink(missing_ok=True)
            raise


@contextmanager
def _free_folder(parent: Path) -> Iterator[tuple[Path, int]]:
    """The first numbered folder that no living server uses, and the lock that says so."""
    for number in count(1):
        folder = parent / str(number)
        make_private_folder(folder)
        with disk_told(folder):
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            if _is_ours(lock):
                yield folder, lock
                return
        finally:
            os.close(lock)


def _is_ours(lock: int) -> bool:
    """Take a lock unless another process holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def serving_alone(home: Home) -> Iterator[None]:
    """Hold the state folder's lock, which ends with the process.

    Raises:
        AlreadyServing: another process holds it.
    """
    make_private_folder(home.prefect)
    descriptor = os.open(home.prefect / "serve.lock", os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
    with os.fdopen(descriptor) as lock:
        if not _is_ours(lock.fileno()):
            raise AlreadyServing(
                f"another pgsr serve works in {home.root}. Remedy: stop it first, or give it all "
                "configurations at once."
            )
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
        time.sleep(POLL_SECONDS)


@contextmanager
def _bound(port: int) -> Iterator[socket.socket]:
    """A socket that holds a port; any free one for 0."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except OSError:
            raise PortTaken(
                f"port {port} is in use. Remedy: pgsr serve --port with another one, or name the "
                "Prefect server that listens there in PREFECT_API_URL."
            ) from None
        yield listening


def _note(home: Home) -> Path:
    return home.prefect / "server.json"


def _noted(home: Home) -> tuple[str, Owner] | None:
    try:
        noted = json.loads(_note(home).read_bytes())
        owner = Owner.parse(noted["owner"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None if owner is None else (str(noted["address"]), owner)
