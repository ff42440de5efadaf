"""The log for machines: one JSON line on standard error for every start and end of a stage.

It may be collected anywhere, so it holds names, what may be said of errors, durations and memory,
and nothing that was counted left of the barrier. `PGSR_LOG=json` turns it on.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime

VARIABLE = "PGSR_LOG"
JSON = "json"
_FIELDS = "pgsr"  # where a record carries its fields
_logger = logging.getLogger("pgsr")


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object; a traceback, which may quote anything, is left out."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        said = {"at": at, "level": record.levelname.lower(), "event": record.getMessage()}
        return json.dumps({**said, **getattr(record, _FIELDS, {})}, default=str)


def is_json() -> bool:
    """Whether the log is to be read by a machine."""
    return os.environ.get(VARIABLE, "").strip().lower() == JSON


def say(event: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Log an event with its fields, if the log is on."""
    if is_json():
        write_json_lines()
        _logger.log(level, event, extra={_FIELDS: fields})


def write_json_lines() -> None:
    """Let everything that this software logs come out as JSON lines on standard error."""
    handler = logging.StreamHandler(sys.stderr)  # whatever it is now
    handler.setFormatter(JsonLines())
    _logger.handlers[:] = [handler]
    _logger.setLevel(logging.INFO)
    _logger.propagate = False
