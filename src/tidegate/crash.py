"""Crash points: named places where a test may kill this process, as a power cut would.

Reliability is shown by killing a real driver at each point where a crash could lose or double
something. ``TIDEGATE_CRASH_AT=mid_sink`` kills the process when it reaches the point ``mid_sink``,
``TIDEGATE_CRASH_AT=mid_sink:3`` when it reaches it for the third time, and ``TIDEGATE_CRASH_AT=revenue/mid_sink:3``
when it does so for the sink ``revenue``. SIGKILL is used because nothing can catch it: no ``finally``, no flush, no
rollback runs. Without the variable a point costs one comparison.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Read once: a point stands in hot loops, and a process does not change its mind about dying.
_WHERE, _, _COUNT = os.environ.get("TIDEGATE_CRASH_AT", "").partition(":")
_WHOSE, _, _NAME = _WHERE.rpartition("/")
_remaining = int(_COUNT or "1")
_working_for: ContextVar[str] = ContextVar("working_for", default="")


@contextmanager
def working_for(name: str) -> Iterator[None]:
    """Points that are reached in this block belong to `name`: the same point of another can be told from them."""
    before = _working_for.set(name)
    try:
        yield
    finally:
        _working_for.reset(before)


def point(name: str) -> None:
    """Die here, if this run was told to."""
    global _remaining
    if not _NAME or name != _NAME or (_WHOSE and _working_for.get() != _WHOSE):
        return
    _remaining -= 1
    if _remaining == 0:
        os.kill(os.getpid(), signal.SIGKILL)
