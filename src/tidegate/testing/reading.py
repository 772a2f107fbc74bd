"""Reading plain YAML values strictly: each function returns what it was asked for or says what is wrong.

Windows, triggers and watermark strategies are read here too, because they are values that know
nothing of steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tidegate.errors import TidegateError
from tidegate.time import FOREVER
from tidegate.triggers import (
    AfterWatermark,
    AllOf,
    AnyOf,
    Count,
    Default,
    Each,
    EveryEventTime,
    EveryProcessingTime,
    FinalOnly,
    Trigger,
)
from tidegate.watermarks import Manual, Watermark, WatermarkStrategy
from tidegate.windows import Global, Hopping, Rolling, Session, Tumbling, Window

TRIGGERS = "default, final_only, count, after_watermark, any, all, each, every_event_time, every_processing_time"


class TranscriptError(TidegateError):
    """A transcript says something that the format does not know."""


class Fields:
    """The fields of a mapping, taken out one by one; `done` refuses those that nobody asked for."""

    def __init__(self, value: Any, what: str) -> None:
        if not isinstance(value, Mapping):
            raise TranscriptError(f"{what} must be a mapping, but is {value!r}")
        self.what = what
        self.rest = dict(value)
        self.asked: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self.rest

    def take(self, name: str, default: Any = None) -> Any:
        self.asked.append(name)
        return self.rest.pop(name, default)

    def need(self, name: str) -> Any:
        if name not in self.rest:
            raise TranscriptError(f"{self.what} has no field {name!r}")
        return self.take(name)

    def done(self) -> None:
        if self.rest:
            unknown = ", ".join(repr(name) for name in self.rest)
            raise TranscriptError(f"{self.what} has an unknown field {unknown}", hint=f"known: {', '.join(self.asked)}")


def number(value: Any, what: str) -> int | float:
    # YAML's true is a Python int, and `.nan` equals nothing, not even itself.
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TranscriptError(f"{what} must be a number, but is {value!r}")
    return value


def micros_of(value: Any, what: str) -> int:
    """Seconds as microseconds."""
    us = round(number(value, what) * 1_000_000)
    # Spark counts microseconds in 64 bits, and beyond FOREVER a time would pass for the end of the stream.
    if abs(us) >= FOREVER:
        raise TranscriptError(f"{what} {value!r} is out of range")
    return us


def duration(value: Any, what: str) -> timedelta:
    return timedelta(microseconds=micros_of(value, what))


def natural(value: Any, what: str, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise TranscriptError(f"{what} must be a whole number of at least {least}, but is {value!r}")
    return value


def plain(value: Any, what: str) -> str:
    """A key or an id: a string, or a number that is read as one."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise TranscriptError(f"{what} must be a string, but is {value!r}", hint="put it in quotes")


def text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise TranscriptError(f"{what} must be a text, but is {value!r}")
    return value


def flag(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise TranscriptError(f"{what} must be true or false, but is {value!r}")
    return value


def choice(value: Any, what: str, choices: tuple[str, ...]) -> Any:
    if value not in choices:
        raise TranscriptError(f"{what} {value!r} is unknown", hint=f"one of {', '.join(choices)}")
    return value


def listed(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise TranscriptError(f"{what} must be a list, but is {value!r}")
    return value


def _single(value: Any, what: str) -> tuple[str, Any]:
    """The name and content of a mapping with exactly one field, such as `{count: 2}`."""
    if isinstance(value, Mapping) and len(value) == 1:
        ((name, content),) = value.items()
        return str(name), content
    raise TranscriptError(f"{what} {value!r} is unknown")


def read_window(value: Any) -> Window:
    if value == "global":
        return Global()
    kind, content = _single(value, "window")
    if kind == "tumbling" and not isinstance(content, Mapping):
        return Tumbling(duration(content, "tumbling size"))
    if kind == "rolling" and not isinstance(content, Mapping):
        return Rolling(duration(content, "rolling size"))
    if kind not in ("tumbling", "hopping", "session"):
        raise TranscriptError(f"window {kind!r} is unknown", hint="one of tumbling, hopping, session, rolling, global")
    fields = Fields(content, kind)
    window: Window
    if kind == "session":
        cap = fields.take("max_length")
        gap = duration(fields.need("gap"), "session gap")
        window = Session(gap, None if cap is None else duration(cap, "session max_length"))
    else:
        size = duration(fields.need("size"), f"{kind} size")
        offset = duration(fields.take("offset", 0), f"{kind} offset")
        if kind == "tumbling":
            window = Tumbling(size, offset)
        else:
            window = Hopping(size, duration(fields.need("slide"), "hopping slide"), offset)
    fields.done()
    return window


def read_trigger(value: Any) -> Trigger:
    if value == "default":
        return Default()
    if value == "final_only":
        return FinalOnly()
    if not isinstance(value, Mapping) or len(value) != 1:
        raise TranscriptError(f"trigger {value!r} is unknown", hint=f"one of {TRIGGERS}")
    kind, content = _single(value, "trigger")
    if kind == "count":
        return Count(natural(content, "trigger count", least=1))
    if kind == "every_event_time":
        return EveryEventTime(duration(content, "trigger every_event_time"))
    if kind == "every_processing_time":
        return EveryProcessingTime(duration(content, "trigger every_processing_time"))
    if kind == "after_watermark":
        fields = Fields({} if content is None else content, "trigger after_watermark")
        early, late = fields.take("early"), fields.take("late")
        fields.done()
        return AfterWatermark(*(None if part is None else read_trigger(part) for part in (early, late)))
    if kind in ("any", "all", "each"):
        parts = [read_trigger(part) for part in listed(content, f"trigger {kind}")]
        if not parts:
            raise TranscriptError(f"trigger {kind} has no parts")
        return AnyOf(*parts) if kind == "any" else AllOf(*parts) if kind == "all" else Each(*parts)
    raise TranscriptError(f"trigger {kind!r} is unknown", hint=f"one of {TRIGGERS}")


def read_watermark(value: Any) -> WatermarkStrategy:
    if value == "manual":
        return Manual()
    if not isinstance(value, Mapping):
        raise TranscriptError(f"watermark {value!r} is unknown", hint="manual, or a mapping such as {delay: 5}")
    fields = Fields(value, "watermark")
    delay = duration(fields.take("delay", 0), "watermark delay")
    idle_after, max_future = fields.take("idle_after"), fields.take("max_future")
    idle_flush = flag(fields.take("idle_flush", False), "watermark idle_flush")
    fields.done()
    if delay < timedelta(0):
        raise TranscriptError(f"watermark delay must not be negative, but is {value['delay']!r}")
    return Watermark(
        delay,
        None if idle_after is None else duration(idle_after, "watermark idle_after"),
        # The library guards by default, the format only when asked to.
        None if max_future is None else duration(max_future, "watermark max_future"),
        idle_flush,
    )
