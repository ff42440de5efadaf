"""Named points at which a test makes the process die, to prove that a rerun is safe.

``PGSR_FAILPOINT=noise.drawn`` kills the process with SIGKILL when it reaches that point. The
variable has no effect on any result: a killed run is what a power cut would leave.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "PGSR_FAILPOINT"


def reach(point: str) -> None:
    """Die here if the environment says so."""
    if os.environ.get(VARIABLE) == point:
        os.kill(os.getpid(), signal.SIGKILL)
