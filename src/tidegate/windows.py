"""Windows: how a stream is cut into finite pieces of event time.

A window is a half-open interval ``[start, end)``. It is *complete* when the watermark reaches its
end and *closed* when the watermark reaches its end plus the allowed lateness.

- ``Tumbling(size)``: windows ``[k·size + offset, (k+1)·size + offset)``; each event is in one.
- ``Hopping(size, slide)``: windows ``[k·slide + offset, k·slide + offset + size)``; each event is in
  ``size / slide`` of them. Events are folded once, into slices of ``gcd(size, slide)``.
- ``Session(gap, max_length)``: an event occupies ``[t, t + gap)``; what touches or overlaps is one
  session, ``[first, last + gap)``. The cap bounds the span from first to last event.
- ``Calendar(unit, timezone)``: hours, days, weeks, months, quarters, years as people of that time
  zone live them; a day with a change of daylight saving time has 23 or 25 hours.
- ``Rolling(size)``: one result per event, over the last ``size`` up to it.
- ``Global()``: one window that ends with the stream.

These are plain values: they know no Spark and hold no state.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Literal
from zoneinfo import ZoneInfo, available_timezones

from tidegate.errors import PipelineError
from tidegate.time import Duration, micros, positive, show

CalendarUnit = Literal["hour", "day", "week", "month", "quarter", "year"]
CALENDAR_UNITS: tuple[str, ...] = ("hour", "day", "week", "month", "quarter", "year")


@dataclass(frozen=True, init=False)
class Hopping:
    """Windows of `size` that start every `slide`; with `slide == size` they tumble."""

    size: int
    slide: int
    offset: int

    def __init__(self, size: Duration, slide: Duration, offset: Duration = "0s") -> None:
        size_us, slide_us = positive(size, what="window size"), positive(slide, what="window slide")
        if slide_us > size_us:
            raise PipelineError(
                f"hopping window with slide {slide!r} longer than its size {size!r} would skip events",
                hint="choose a slide that is at most the size",
            )
        object.__setattr__(self, "size", size_us)
        object.__setattr__(self, "slide", slide_us)
        object.__setattr__(self, "offset", micros(offset, what="window offset") % slide_us)

    @property
    def slice(self) -> int:
        """The length into which time is cut so that every window is a whole number of slices."""
        return gcd(self.size, self.slide)

    def __str__(self) -> str:
        offset = f", offset {show(self.offset)}" if self.offset else ""
        return f"hopping {show(self.size)} by {show(self.slide)}{offset}"


class Tumbling(Hopping):
    """Windows of `size`, one after the other."""

    def __init__(self, size: Duration, offset: Duration = "0s") -> None:
        super().__init__(size, size, offset)

    def __str__(self) -> str:
        return f"tumbling {show(self.size)}" + (f", offset {show(self.offset)}" if self.offset else "")


@dataclass(frozen=True, init=False)
class Session:
    """Periods of activity of a key, separated by more than `gap` of silence."""

    gap: int
    max_length: int | None

    def __init__(self, gap: Duration, max_length: Duration | None = None) -> None:
        object.__setattr__(self, "gap", positive(gap, what="session gap"))
        cap = None if max_length is None else positive(max_length, what="session max_length")
        if cap is not None and cap < self.gap:
            raise PipelineError(f"session max_length {max_length!r} is shorter than its gap {gap!r}")
        object.__setattr__(self, "max_length", cap)

    def __str__(self) -> str:
        return f"session gap {show(self.gap)}" + (f", at most {show(self.max_length)}" if self.max_length else "")


@dataclass(frozen=True)
class Calendar:
    """Windows as the calendar of a time zone cuts them."""

    unit: CalendarUnit
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if self.unit not in CALENDAR_UNITS:
            raise PipelineError(f"calendar unit {self.unit!r} is unknown", hint=f"one of {', '.join(CALENDAR_UNITS)}")
        if self.timezone not in available_timezones():
            raise PipelineError(f"time zone {self.timezone!r} is unknown", hint='a name such as "Europe/Berlin"')

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)

    def __str__(self) -> str:
        return f"calendar {self.unit} in {self.timezone}"


@dataclass(frozen=True, init=False)
class Rolling:
    """One result per event, over the events of its key in `(t − size, t]`."""

    size: int

    def __init__(self, size: Duration) -> None:
        object.__setattr__(self, "size", positive(size, what="rolling size"))

    def __str__(self) -> str:
        return f"rolling {show(self.size)}"


@dataclass(frozen=True)
class Global:
    """One window per key that holds the whole stream."""

    def __str__(self) -> str:
        return "global"


Window = Hopping | Session | Calendar | Rolling | Global
