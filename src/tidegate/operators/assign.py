"""Assign: which slice an event belongs to, and which windows that slice is part of – as SQL on microseconds.

Time is cut into *slices* so that every window is a whole number of them: an event is folded once, into its slice, and
a window combines slices when it fires.

- hopping: slice = gcd(size, slide); slice of t is ``t − (t − offset) mod slice``. The last window of t starts at ``t
  − (t − offset) mod slide``; the first is the earliest that still contains t.
- calendar: slice = the calendar unit in its time zone; the window is the slice.
- session: slice = gap, counted from 0; events of one slice always share a session. Its bounds are made by its events,
  so `last_end` is only the earliest time at which the event's session can end: past that, an event must be judged
  with its session.
- rolling: each instant is a slice, and ends one window; it reaches into the windows that end up to `size` later.
- global: one slice, which never ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.operators.sql import END_OF_TIME, text
from tidegate.windows import Calendar, Global, Hopping, Rolling, Session, Window


@dataclass(frozen=True)
class Assignment:
    """SQL for one window kind. `time`, `slice` and `start` are names of BIGINT columns in µs."""

    window: Window

    def slice(self, time: str) -> str:
        """The start of the slice that holds `time`."""
        match self.window:
            case Hopping() as w:
                return f"({time} - pmod({time} - {w.offset}L, {w.slice}L))"
            case Calendar() as w:
                return _calendar_start(w, time)
            case Global():
                return f"CASE WHEN {time} IS NOT NULL THEN 0L END"
            case Session() as w:
                return f"({time} - pmod({time}, {w.gap}L))"
            case Rolling():
                return time

    def last_end(self, time: str) -> str:
        """The end of the last window that contains `time`: when that is closed, the event is late."""
        match self.window:
            case Hopping() as w:
                return f"({self.last_start(time)} + {w.size}L)"
            case Calendar() as w:
                return _calendar_end(w, time)
            case Session() as w:
                # A cap may end a session where the next one begins, which is never within its last slice.
                return f"({time if w.max_length is None else self.slice(time)} + {w.gap}L)"
            case Rolling():
                return time
            case _:
                return f"CASE WHEN {time} IS NOT NULL THEN {END_OF_TIME}L END"

    def last_end_of_slice(self, slice_: str) -> str:
        """The same for all events of a slice, from where the slice starts; not for sessions."""
        match self.window:
            case Hopping() as w if w.slice == w.slide:
                return f"({slice_} + {w.size}L)"
            case _:
                return self.last_end(slice_)

    def needed_until(self, slice_: str) -> str:
        """When no window can need a slice any more: those that end up to here are closed then."""
        match self.window:
            case Rolling() as w:
                return f"({slice_} + {w.size}L)"
            case _:
                return self.last_end_of_slice(slice_)

    @property
    def overlapping(self) -> bool:
        """May an event be in several windows?"""
        return isinstance(self.window, Hopping) and self.window.size != self.window.slide

    def last_start(self, time: str) -> str:
        """The start of the last window that contains `time`."""
        match self.window:
            case Hopping() as w:
                return f"({time} - pmod({time} - {w.offset}L, {w.slide}L))"
            case Session():
                return time
            case Rolling() as w:
                return f"({time} - {w.size}L)"
            case _:
                return self.slice(time)

    def first_end(self, time: str) -> str:
        """The end of the first window that contains `time`: closed while the last is open means partially late."""
        match self.window:
            case Hopping() as w if w.size != w.slide:
                last = self.last_start(time)
                return f"({last} - (({last} - {time} + {w.size - 1}L) div {w.slide}L) * {w.slide}L + {w.size}L)"
            case _:
                return self.last_end(time)

    def end(self, start: str) -> str:
        """The end of the window that starts at `start`."""
        match self.window:
            case Hopping() | Rolling() as w:
                return f"({start} + {w.size}L)"
            case Calendar() as w:
                return _calendar_end(w, start)
            case _:
                return f"CASE WHEN {start} IS NOT NULL THEN {END_OF_TIME}L END"

    def starts(self, slice_: str, after: str, upto: str) -> str | None:
        """The starts of the windows that contain a slice and end in ``(after, upto]``, as an array; None.

        The slice is the window.
        """
        match self.window:
            case Hopping() as w if w.size != w.slide:
                # Window starts lie on offset + k·slide. The slice is inside from slice + len − size up to slice; the
                # range of ends narrows that further. Both bounds are moved onto the grid.
                low = f"greatest({slice_} + {w.slice - w.size}L, {after} - {w.size - 1}L)"
                high = f"least({slice_}, {upto} - {w.size}L)"
                low = f"({low} + pmod({w.offset}L - {low}, {w.slide}L))"
                high = f"({high} - pmod({high} - {w.offset}L, {w.slide}L))"
                return f"CASE WHEN {low} <= {high} THEN sequence({low}, {high}, {w.slide}L) ELSE array() END"
            case _:
                return None

    @property
    def reach(self) -> int:
        """How much longer a window may be than its slice.

        The earliest slice that a window ending at E needs is at E − size.
        """
        match self.window:
            case Hopping() as w:
                return w.size
            case _:
                return END_OF_TIME


def _local(calendar: Calendar, time: str) -> str:
    return f"from_utc_timestamp(timestamp_micros({time}), {text(calendar.timezone)})"


def _calendar_start(calendar: Calendar, time: str) -> str:
    local = _local(calendar, time)
    if calendar.unit == "hour":
        # An hour that the clocks repeat is two windows: count back from the instant, not from the wall clock's name
        # of it.
        return f"({time} - pmod(unix_micros({local}), 3600000000L))"
    return f"unix_micros(to_utc_timestamp(date_trunc('{calendar.unit}', {local}), {text(calendar.timezone)}))"


def _calendar_end(calendar: Calendar, time: str) -> str:
    if calendar.unit == "hour":
        return f"({_calendar_start(calendar, time)} + 3600000000L)"
    months = {"month": 1, "quarter": 3, "year": 12}
    step = (
        f"INTERVAL {months[calendar.unit]} MONTH"
        if calendar.unit in months
        else f"INTERVAL {7 if calendar.unit == 'week' else 1} DAY"
    )
    following = f"date_trunc('{calendar.unit}', {_local(calendar, time)}) + {step}"
    return f"unix_micros(to_utc_timestamp({following}, {text(calendar.timezone)}))"
