"""Which windows an event is in, and how events of a key are cut into sessions.

- Hopping and tumbling: ``[k·slide + offset, k·slide + offset + size)`` for every k that covers t.
- Calendar: from one local midnight (hour, Monday, first of the month, …) to the next.
- Session: see `cut_sessions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from typing import TypeVar

from tidegate.model.values import Bounds
from tidegate.time import SECOND
from tidegate.windows import Calendar, Hopping, Session

T = TypeVar("T")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = 3_600 * SECOND


def hopping_windows(window: Hopping, time: int) -> list[Bounds]:
    """All windows that cover `time`, earliest first; exactly one when they tumble."""
    last = time - (time - window.offset) % window.slide
    first = last - (last - time + window.size - 1) // window.slide * window.slide
    return [(start, start + window.size) for start in range(first, last + 1, window.slide)]


def calendar_window(window: Calendar, time: int) -> Bounds:
    """The hour, day, week, … of the time zone in which `time` lies."""
    local = (EPOCH + timedelta(microseconds=time)).astimezone(window.zone)
    if window.unit == "hour":
        # By the offset in force and not by the local label: the hour that clocks live twice in
        # autumn is two windows, and every hour has sixty minutes.
        offset = _micros(local.utcoffset() or timedelta())
        start = time - (time + offset) % HOUR
        return start, start + HOUR
    day = local.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None, fold=0)
    if window.unit == "day":
        first, following = day, day + timedelta(days=1)
    elif window.unit == "week":
        first = day - timedelta(days=day.weekday())
        following = first + timedelta(days=7)
    else:
        months = {"month": 1, "quarter": 3, "year": 12}[window.unit]
        first = day.replace(day=1, month=(day.month - 1) // months * months + 1)
        years, month = divmod(first.month - 1 + months, 12)
        following = first.replace(year=first.year + years, month=month + 1)
    return _instant(first, window), _instant(following, window)


def _instant(local: datetime, window: Calendar) -> int:
    # fold=0: of a midnight that comes twice the first counts; one that is skipped is the moment of the jump.
    return _micros(local.replace(tzinfo=window.zone).astimezone(UTC) - EPOCH)


def _micros(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)


def cut_sessions(window: Session, items: Iterable[T], time: Callable[[T], int]) -> list[tuple[Bounds, list[T]]]:
    """Cut items of one key into sessions, earliest first.

    Time is divided into slices ``[k·gap, (k+1)·gap)``, whose events always share a session. Slices
    join in time order while the first event is at most `gap` after the last one and the span from
    first to last event stays within `max_length`. A session is ``[first, last + gap)``, but ends at
    the next one's first event if that is earlier. Without a cap this is plain merging.
    """
    sessions: list[list[T]] = []
    for _, group in groupby(sorted(items, key=time), key=lambda item: time(item) // window.gap):
        piece = list(group)
        current = sessions[-1] if sessions else None
        if (
            current is not None
            and time(piece[0]) - time(current[-1]) <= window.gap
            and (window.max_length is None or time(piece[-1]) - time(current[0]) <= window.max_length)
        ):
            current.extend(piece)
        else:
            sessions.append(piece)
    ends = [time(session[-1]) + window.gap for session in sessions]
    for position, (_, following) in enumerate(pairwise(sessions)):
        ends[position] = min(ends[position], time(following[0]))
    return [((time(session[0]), end), session) for session, end in zip(sessions, ends, strict=True)]
