"""The process of a Prefect server: how it is started, and that it ends with whoever started it.

The starter binds the port and hands the open socket over, so that nobody else can listen there in
the server's place, not even after its death: what clients send and believe is the server's alone.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pgsr_core.errors import Unavailable
from tasks.storage.zones import PRIVATE_UMASK, append_private, disk_told

HOST = "127.0.0.1"
USER = "pgsr"
START_SECONDS = 180.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.2
SECRET_BYTES = 32
# What may not stand in the way of the settings below, nor quieten the server's own log.
_OURS = (
    "PREFECT_API_AUTH_STRING",
    "PREFECT_API_KEY",
    "PREFECT_API_URL",
    "PREFECT_LOGGING_",
    "PREFECT_SERVER_API_",
    "PREFECT_SERVER_CORS_",
    "PREFECT_SERVER_CSRF_",
    "PREFECT_SERVER_UI_API_URL",
    "PREFECT_UI_API_URL",
)


class ServerDidNotStart(Unavailable):
    """The Prefect server ended, or did not answer in time."""


@dataclass(frozen=True)
class Server:
    """A Prefect server, and the secret without which it answers nobody.

    Attributes:
        address: of its interface.
        secret: what clients and the owner's browser show it, as ``user:password``.
        process: its process id.
        gone: set when it was started here and has ended.
    """

    address: str
    secret: str = field(repr=False)
    process: int
    gone: threading.Event = field(default_factory=threading.Event, compare=False, repr=False)


@contextmanager
def running_server(
    listening: socket.socket,
    folder: Path,
    *,
    settings: Mapping[str, str],
    keep_open: tuple[int, ...] = (),
) -> Iterator[Server]:
    """Start a server on a bound socket, wait for it, and stop it on leaving.

    Args:
        listening: bound, and ours for as long as the server may be asked.
        folder: its working folder, with its log.
        settings: of Prefect, on top of the environment's.
        keep_open: descriptors that are to live as long as it does.

    Raises:
        ServerDidNotStart: it ended, or did not answer in time.
    """
    listening.listen()
    origin = f"http://{HOST}:{listening.getsockname()[1]}"
    secret = f"{USER}:{secrets.token_urlsafe(SECRET_BYTES)}"
    log = folder / "server.log"
    environment = {**_environment(origin, secret), **settings}
    process = _start(listening, folder, log, environment, keep_open)
    server = Server(f"{origin}/api", secret, process.pid)
    threading.Thread(target=_hold_the_port, args=(process, listening, server), daemon=True).start()
    try:
        _wait_for(server, folder, log)
        yield server
    finally:
        _stop(process)


def _environment(origin: str, secret: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return {
        **kept,
        "PREFECT__SERVER_FINAL": "1",
        "PREFECT_SERVER_API_AUTH_STRING": secret,
        # Its own pages are the only ones that may ask; other sites' are not told what it answers.
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": origin,
        "PREFECT_SERVER_UI_API_URL": f"{origin}/api",
    }


def _start(
    listening: socket.socket,
    folder: Path,
    log: Path,
    environment: Mapping[str, str],
    keep_open: tuple[int, ...],
) -> subprocess.Popen[bytes]:
    append_private(log, "")
    with disk_told(log), log.open("ab") as sink:
        return subprocess.Popen(  # noqa: S603  (our own interpreter, fixed arguments)
            # -P: no module is taken from the folder that one happens to stand in.
            [sys.executable, "-P", "-m", "flows.server_process", str(listening.fileno())],
            cwd=folder,
            env=environment,
            # Open for as long as we live: its end is how the server learns of ours.
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
            pass_fds=(listening.fileno(), *keep_open),
            umask=PRIVATE_UMASK,
            # Ctrl-C is for us; the server goes last.
            start_new_session=True,
        )


def _hold_the_port(
    process: subprocess.Popen[bytes], listening: socket.socket, server: Server
) -> None:
    """When the server ends: keep its port, and turn everybody away instead of letting them wait."""
    process.wait()
    server.gone.set()
    with suppress(OSError):  # closed: nobody asks any more
        listening.settimeout(POLL_SECONDS)
        while True:
            with suppress(TimeoutError):
                listening.accept()[0].close()


def _wait_for(server: Server, folder: Path, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not server.gone.is_set() and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{server.address}/health", timeout=2):  # noqa: S310  (our own)
                return
        except OSError:
            time.sleep(POLL_SECONDS)
    raise ServerDidNotStart(
        f"the Prefect server did not start. Remedy: see that the disk of {folder} is there, "
        f"writable and not full, see {log}, and run the same again."
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()


# --- in the server's process ------------------------------------------------------------------


def _serve(descriptor: int) -> None:
    import uvicorn

    threading.Thread(target=_end_with_starter, daemon=True).start()
    application = "prefect.server.api.server:create_app"
    config = uvicorn.Config(application, factory=True, lifespan="on", log_level="error")
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


def _end_with_starter() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
