"""A web server of a test's own that keeps what is posted to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Inbox:
    """What was posted, and how to answer: the listed statuses first, then 204."""

    def __init__(self, path: str) -> None:
        self.posts: list[dict[str, Any]] = []
        self.answers: list[int] = []
        self.arrived = threading.Event()
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                inbox.posts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(inbox.answers.pop(0) if inbox.answers else 204)
                self.end_headers()
                inbox.arrived.set()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.05])
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._server.server_port}{path}"

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def open_inbox(path: str = "/hook") -> Iterator[Inbox]:
    inbox = Inbox(path)
    try:
        yield inbox
    finally:
        inbox.close()
