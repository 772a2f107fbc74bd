"""Which windows an event is in, and how sessions are cut."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tidegate.model.windows import calendar_window, cut_sessions, hopping_windows
from tidegate.windows import Calendar, CalendarUnit, Hopping, Session, Tumbling

SESSION = Session("10us")
CAPPED = Session("10us", "20us")


def instant(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


def cut(window: Session, *times: int) -> list[tuple[tuple[int, int], list[int]]]:
    return cut_sessions(window, times, lambda time: time)


def test_a_tumbling_event_is_in_exactly_one_window() -> None:
    assert hopping_windows(Tumbling("10us"), 9) == [(0, 10)]
    assert hopping_windows(Tumbling("10us"), 10) == [(10, 20)]
    assert hopping_windows(Tumbling("10us"), -1) == [(-10, 0)]
    assert hopping_windows(Tumbling("10us", offset="3us"), 2) == [(-7, 3)]


def test_a_hopping_event_is_in_every_window_that_covers_it() -> None:
    assert hopping_windows(Hopping("10us", "5us"), 7) == [(0, 10), (5, 15)]
    assert hopping_windows(Hopping("10us", "4us"), 8) == [(0, 10), (4, 14), (8, 18)]
    assert hopping_windows(Hopping("10us", "4us"), 11) == [(4, 14), (8, 18)]


@pytest.mark.parametrize(
    ("unit", "zone", "time", "start", "end"),
    [
        ("hour", "UTC", "2024-05-01T10:59:59", "2024-05-01T10:00:00", "2024-05-01T11:00:00"),
        ("hour", "Asia/Kolkata", "2024-05-01T10:10:00", "2024-05-01T09:30:00", "2024-05-01T10:30:00"),
        # The hour from 2 to 3 that Berlin lives twice is two windows.
        ("hour", "Europe/Berlin", "2024-10-27T00:30:00", "2024-10-27T00:00:00", "2024-10-27T01:00:00"),
        ("hour", "Europe/Berlin", "2024-10-27T01:30:00", "2024-10-27T01:00:00", "2024-10-27T02:00:00"),
        ("day", "Europe/Berlin", "2024-03-31T12:00:00", "2024-03-30T23:00:00", "2024-03-31T22:00:00"),
        ("day", "Europe/Berlin", "2024-10-27T12:00:00", "2024-10-26T22:00:00", "2024-10-27T23:00:00"),
        # Midnight does not exist in Cairo on this day: the day begins with the jump.
        ("day", "Africa/Cairo", "2024-04-26T12:00:00", "2024-04-25T22:00:00", "2024-04-26T21:00:00"),
        # Havana goes back from 1 to 0, so midnight comes twice: the first one begins the day.
        ("day", "America/Havana", "2024-11-03T05:30:00", "2024-11-03T04:00:00", "2024-11-04T05:00:00"),
        ("week", "UTC", "2024-05-05T23:00:00", "2024-04-29T00:00:00", "2024-05-06T00:00:00"),
        ("month", "UTC", "2024-12-31T23:00:00", "2024-12-01T00:00:00", "2025-01-01T00:00:00"),
        ("quarter", "UTC", "2024-11-15T00:00:00", "2024-10-01T00:00:00", "2025-01-01T00:00:00"),
        ("quarter", "UTC", "2024-02-29T00:00:00", "2024-01-01T00:00:00", "2024-04-01T00:00:00"),
        ("year", "Asia/Tokyo", "2024-12-31T16:00:00", "2024-12-31T15:00:00", "2025-12-31T15:00:00"),
    ],
)
def test_calendar_windows_are_as_people_live_them(
    unit: CalendarUnit, zone: str, time: str, start: str, end: str
) -> None:
    assert calendar_window(Calendar(unit, zone), instant(time)) == (instant(start), instant(end))


def test_sessions_merge_when_they_touch() -> None:
    assert cut(SESSION, 10, 0) == [((0, 20), [0, 10])]
    assert cut(SESSION, 0, 11) == [((0, 10), [0]), ((11, 21), [11])]


def test_a_cap_bounds_the_span_from_first_to_last() -> None:
    assert cut(CAPPED, 0, 10, 20, 30) == [((0, 30), [0, 10, 20]), ((30, 40), [30])]


def test_a_cut_session_ends_where_the_next_begins() -> None:
    assert cut(CAPPED, 2, 11, 19, 24) == [((2, 24), [2, 11, 19]), ((24, 34), [24])]


def test_a_slice_is_never_torn() -> None:
    assert cut(CAPPED, 5, 14, 20, 28) == [((5, 20), [5, 14]), ((20, 38), [20, 28])]
