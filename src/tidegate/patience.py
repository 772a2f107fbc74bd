"""Patience: a server that is down is waited for, aloud, and nothing is lost meanwhile.

Brokers are bounced and databases are restarted. Whoever talks to one raises `Unavailable` when it cannot be reached,
and must be able to try the same thing again from the start: connect anew, begin a new transaction. What fails for
another reason is raised at once, for no waiting mends it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tidegate.errors import Unavailable

Result = TypeVar("Result")

FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0


def patiently(
    action: Callable[[], Result],
    say: Callable[[str], None],
    stop: threading.Event | None = None,
    longest_wait: float = LONGEST_WAIT,
) -> Result:
    """Do it, and when a server is away, wait (0.5 s, 1 s, 2 s … `longest_wait`) and do it again.

    Each new kind of trouble is said once, and that it is over. When `stop` is set there is no more waiting: the
    trouble is raised.
    """
    stop = stop or threading.Event()
    wait, since, said = FIRST_WAIT, time.monotonic(), ""
    while True:
        try:
            result = action()
        except Unavailable as trouble:
            if trouble.message != said:
                say(f"waiting: {trouble.message}")
                said = trouble.message
            if stop.wait(wait):
                raise
            wait = min(wait * 2, longest_wait)
        else:
            if said:
                say(f"going on after {time.monotonic() - since:.0f} s of waiting")
            return result
