"""The operator's channel: what depends on confidential data goes here and nowhere else.

Row counts, row positions and full error texts reach the terminal of the one who runs the
release and a 0600 log in the confidential zone. Prefect sees the names of stages and, of
errors, what may be said outside (tasks/outside.py).
"""

from __future__ import annotations

import threading
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from tasks.storage.zones import append_private, make_private_folder


class Terminal(Protocol):
    """Whoever watches a run in this process."""

    def stage_started(self, stage: str) -> None: ...

    def stage_advanced(self, stage: str, done: int, total: int | None, unit: str) -> None: ...

    def stage_finished(self, stage: str, note: str) -> None: ...

    def stage_failed(self, stage: str, error: BaseException) -> None: ...


class Silence:
    """Nobody watches: a scheduled run."""

    def stage_started(self, stage: str) -> None:
        """Say nothing."""

    def stage_advanced(self, stage: str, done: int, total: int | None, unit: str) -> None:
        """Say nothing."""

    def stage_finished(self, stage: str, note: str) -> None:
        """Say nothing."""

    def stage_failed(self, stage: str, error: BaseException) -> None:
        """Say nothing."""


_lock = threading.Lock()
_terminal: Terminal = Silence()


def watch(terminal: Terminal) -> None:
    """Send this process's progress to a terminal; there is one per process."""
    global _terminal  # noqa: PLW0603  (the terminal of a process is global by nature)
    with _lock:
        _terminal = terminal


def terminal() -> Terminal:
    """The terminal of this process."""
    return _terminal


def log_failure(path: Path, stage: str, error: BaseException) -> None:
    """Write the full story to the operator's own log."""
    make_private_folder(path.parent)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    story = "".join(traceback.format_exception(error))
    append_private(path, f"{at} {stage} {type(error).__name__}\n{story}\n")
