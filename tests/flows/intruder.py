"""What another user of the machine does to a Prefect server, as that user."""

from __future__ import annotations

import base64
import json
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import websockets
from websockets.sync.client import connect

NOBODY = 65534
BUSY_SECONDS = 120
FOREIGN = "https://foreign.example"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_nobody(action: Callable[[], Any]) -> Any:
    """Run something in a process of an unprivileged user; returns what it returned, as JSON."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            said = json.dumps(action())
        except BaseException as error:  # whatever it is: the test is told
            said = json.dumps(f"{type(error).__name__}: {error}")
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return json.loads(said)


def ask(
    url: str,
    method: str = "GET",
    document: Any = None,
    *,
    secret: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, str, dict[str, str]]:
    """Status, text and headers of an answer; asked again while the database is busy."""
    shown = {"Content-Type": "application/json", **(headers or {})}
    if secret is not None:
        shown["Authorization"] = f"Basic {base64.b64encode(secret.encode()).decode()}"
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(url, method=method, data=body, headers=shown)  # noqa: S310
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                return answer.status, answer.read().decode(), dict(answer.headers)
        except urllib.error.HTTPError as refused:
            busy = refused.code == HTTPStatus.SERVICE_UNAVAILABLE
            if not busy or time.monotonic() > deadline:
                return refused.code, refused.read().decode(), dict(refused.headers)
            time.sleep(1)


def hears_events(api: str, secret: str | None) -> bool:
    """Whether the server lets somebody into its stream of events."""
    url = api.replace("http://", "ws://") + "/events/out"
    token = {} if secret is None else {"token": secret}
    try:
        with connect(url, subprotocols=[websockets.Subprotocol("prefect")], proxy=None) as stream:
            stream.send(json.dumps({"type": "auth", **token}))
            return json.loads(stream.recv(timeout=30))["type"] == "auth_success"
    except websockets.WebSocketException:
        return False


def can_listen(port: int) -> bool:
    """Whether a port can be taken, by whatever option there is."""
    options = ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,))
    for host in ("127.0.0.1", "0.0.0.0"):  # noqa: S104  (as an attacker would)
        for chosen in options:
            with socket.socket() as taken:
                for option in chosen:
                    taken.setsockopt(socket.SOL_SOCKET, option, 1)
                try:
                    taken.bind((host, port))
                    taken.listen()
                except OSError:
                    continue
                return True
    return False


def environment_of(process: int) -> dict[str, str]:
    """A process's environment, which its own user and root can read."""
    pairs = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return dict(pair.decode().split("=", 1) for pair in pairs if b"=" in pair)


def command_lines() -> bytes:
    """The command line of every process, which everybody can read."""
    found = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += path.read_bytes() + b"\n"
        except OSError:
            continue  # it has ended
    return found


def server_of(process: int) -> int | None:
    """The Prefect server that a process started."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            if parent == process and b"server_process" in path.with_name("cmdline").read_bytes():
                return int(path.parent.name)
        except OSError:
            continue
    return None


def port_of(process: int) -> int | None:
    """The port that a process listens on: in the kernel's table, which everybody can read."""
    try:
        links = [str(fd.readlink()) for fd in Path(f"/proc/{process}/fd").iterdir()]
    except OSError:
        return None
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            return int(fields[1].partition(":")[2], 16)
    return None
