"""Named points at which a test makes the process die, to prove that a rerun is safe.

``PGSR_FAILPOINT=noise.drawn`` kills the process with SIGKILL when it reaches that point, and
``PGSR_FAILPOINT=noise.drawn:stop`` stops it with SIGSTOP until somebody lets it go on. The
variable has no effect on any result: a killed run is what a power cut would leave, a stopped one
what a busy machine might.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "PGSR_FAILPOINT"
STOPS = ":stop"


def reach(point: str) -> None:
    """Die or stop here if the environment says so."""
    asked = os.environ.get(VARIABLE)
    if asked == point:
        os.kill(os.getpid(), signal.SIGKILL)
    if asked == f"{point}{STOPS}":
        os.kill(os.getpid(), signal.SIGSTOP)
