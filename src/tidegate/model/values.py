"""What goes into the model and what comes out: events, panes, and the step of one micro-batch.

All times are whole microseconds. `BEGINNING` and `INFINITY` stand for a watermark that has not come yet and for the end
of a drained stream; they are integers, so that every comparison of the semantics page can be written as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

INFINITY = 1 << 70
"""The watermark of a drained stream, and the end of the global window."""
BEGINNING = -INFINITY
"""The watermark before anything has moved it."""

Number = int | float
Bounds = tuple[int, int]
Timing = Literal["early", "on_time", "late"]
Change = Literal["upsert", "retract"]


SOURCE = "events"
"""The source of events that name none."""


@dataclass(frozen=True)
class Event:
    """One event. Without `arrival` it arrives at the clock of its batch; `mark` is a punctuated watermark."""

    time: int
    key: str = "k"
    value: Number = 0
    partition: int = 0
    id: str | None = None
    arrival: int | None = None
    mark: int | None = None
    source: str = SOURCE


@dataclass(frozen=True)
class Pane:
    """One firing of a (key, window); `window` is `None` for the global window."""

    key: str
    window: Bounds | None
    events: tuple[Event, ...]
    timing: Timing
    index: int
    final: bool
    change: Change = "upsert"

    @property
    def values(self) -> tuple[Number, ...]:
        """The values of the pane's events, sorted."""
        return tuple(sorted(event.value for event in self.events))


@dataclass(frozen=True)
class Step:
    """What one micro-batch did: each of its events is in exactly one of the first four.

    `partially_late` repeats those of `accepted` that missed a window which had closed. `watermark` is `W_out`, or
    `None` while nothing has moved it.
    """

    accepted: tuple[Event, ...] = ()
    late: tuple[Event, ...] = ()
    future: tuple[Event, ...] = ()
    duplicates: tuple[Event, ...] = ()
    partially_late: tuple[Event, ...] = ()
    panes: tuple[Pane, ...] = ()
    watermark: int | None = None


def is_closed(end: int, allowed_lateness: int, watermark: int) -> bool:
    """A window is closed at `end + allowed_lateness ≤ W`; the end of the stream closes every window."""
    return watermark >= INFINITY or end + allowed_lateness <= watermark
