"""Crash points: named places where a test may kill this process, as a power cut would.

Reliability is shown by killing a real driver at each point where a crash could lose or double
something. ``TIDEGATE_CRASH_AT=mid_sink`` kills the process when it reaches the point ``mid_sink``,
``TIDEGATE_CRASH_AT=mid_sink:3`` when it reaches it for the third time. SIGKILL is used because nothing
can catch it: no ``finally``, no flush, no rollback runs. Without the variable a point costs one comparison.
"""

from __future__ import annotations

import os
import signal

# Read once: a point stands in hot loops, and a process does not change its mind about dying.
_NAME, _, _COUNT = os.environ.get("TIDEGATE_CRASH_AT", "").partition(":")
_remaining = int(_COUNT or "1")


def point(name: str) -> None:
    """Die here, if this run was told to."""
    global _remaining
    if not _NAME or name != _NAME:
        return
    _remaining -= 1
    if _remaining == 0:
        os.kill(os.getpid(), signal.SIGKILL)
