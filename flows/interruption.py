"""Ctrl-C and SIGTERM where nothing is lost by an end at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from tasks import operator

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SIGNALLED = 128  # and the signal's number: how a shell tells of it


@contextmanager
def ending_at_once(end_workers: Callable[[], None]) -> Iterator[None]:
    """As long as it is open, a signal ends this process and its workers as a power cut would.

    For flows that have every result on record before they go on. An orderly end would be one of
    Prefect's, which tells its server of every task first. A temporary server ends with this
    process. Within a flow: outside of it, Prefect's own handler of SIGTERM would be in front.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        operator.terminal().stage_failed("", KeyboardInterrupt())
        end_workers()
        os._exit(SIGNALLED + number)

    if threading.current_thread() is not threading.main_thread():
        yield  # signals are not ours to handle
        return
    before = [(number, signal.signal(number, end)) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
