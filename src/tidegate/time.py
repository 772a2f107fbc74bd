"""Time, as Tidegate counts it: whole microseconds since the epoch, and durations in them.

Users write durations as strings (``"5m"``, ``"1h30m"``, ``"250ms"``) or as ``timedelta``;
inside, everything is an ``int`` of microseconds, which is what Spark's timestamps are.

>>> micros("1h30m")
5400000000
>>> show(5_400_000_000)
'1h30m'
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tidegate.errors import PipelineError

Duration = str | timedelta

SECOND = 1_000_000
FOREVER = 1 << 62
"""A duration longer than any stream: `allowed_lateness="forever"`."""

_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3_600 * SECOND,
    "d": 86_400 * SECOND,
    "w": 7 * 86_400 * SECOND,
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|[smhdw])")


def micros(duration: Duration, *, what: str = "duration") -> int:
    """Turn a duration into microseconds; refuse what is not one, naming `what` it was for."""
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    if isinstance(duration, str):
        text = duration.strip().lower()
        if text == "forever":
            return FOREVER
        parts = _PART.findall(text)
        if parts and _PART.sub("", text).strip() == "":
            return sum(round(float(number) * _UNITS[unit]) for number, unit in parts)
    raise PipelineError(
        f"{what} {duration!r} is not a duration",
        hint='write a number with a unit, such as "250ms", "30s", "5m", "1h30m", "7d", or a timedelta',
    )


def positive(duration: Duration, *, what: str) -> int:
    """Like `micros`, and refuse zero and less."""
    value = micros(duration, what=what)
    if value <= 0:
        raise PipelineError(f"{what} must be longer than zero, but is {duration!r}")
    return value


def show(us: int) -> str:
    """Write microseconds as a short duration, the way a user would."""
    if us >= FOREVER:
        return "forever"
    if us == 0:
        return "0s"
    sign, rest, text = ("-", -us, "") if us < 0 else ("", us, "")
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            text += f"{count}{unit}"
    return sign + text


def show_instant(us: int | None) -> str:
    """Write an instant in ISO 8601, UTC; `–` when there is none yet."""
    if us is None:
        return "–"
    if us >= FOREVER:
        return "end of time"
    try:
        instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
    except OverflowError:
        return f"{us} µs"
    return instant.isoformat(timespec="milliseconds" if us % SECOND else "seconds").replace("+00:00", "Z")
