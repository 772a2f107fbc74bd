"""The steps of a transcript: what acts, and what is said about it.

`batch`, `watermark`, `clock` and `restart` act. `expect`, `late`, `partially_late`, `future`,
`duplicates` and `watermark_is` check the acting step before them. An acting step and its checks are
one `Scene`; what a scene does not mention must not have happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tidegate.testing.reading import Fields, TranscriptError, choice, flag, listed, micros_of, natural, number, plain

Aggregate = Literal["collect", "sum", "count"]
Refusal = Literal["late", "partially_late", "future", "duplicates"]
REFUSALS: tuple[Refusal, ...] = get_args(Refusal)
DEFAULT_KEY = "k"


@dataclass(frozen=True)
class EventIn:
    """An event of a `batch:` step."""

    time: int
    key: str
    value: int | float
    partition: int
    id: str | None
    arrival: int | None
    source: str | None = None
    """`None` where there is only one."""


@dataclass(frozen=True)
class Batch:
    events: tuple[EventIn, ...]


@dataclass(frozen=True)
class MoveWatermark:
    """With several sources: of the one that is named, or of all."""

    to: int
    source: str | None = None


@dataclass(frozen=True)
class MoveClock:
    to: int


@dataclass(frozen=True)
class Restart:
    pass


Action = Batch | MoveWatermark | MoveClock | Restart


@dataclass(frozen=True)
class Expected:
    """A pane or an event as far as the transcript describes it: only the fields given are compared."""

    fields: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class ExpectPanes:
    panes: tuple[Expected, ...]


@dataclass(frozen=True)
class ExpectEvents:
    kind: Refusal
    events: tuple[Expected, ...]


@dataclass(frozen=True)
class ExpectWatermark:
    """`None`: nothing has moved it yet."""

    us: int | None


Check = ExpectPanes | ExpectEvents | ExpectWatermark


@dataclass(frozen=True)
class Scene:
    """One acting step, and what the steps after it say about it."""

    action: Action
    checks: tuple[Check, ...]


def read_scenes(
    steps: list[Any], aggregate: Aggregate, *, manual: bool, sources: Mapping[str, bool] | None = None
) -> tuple[Scene, ...]:
    """Read the steps; `manual` says whether `watermark:` steps are allowed, `sources` the same by name, if several."""
    scenes: list[Scene] = []
    for position, step in enumerate(steps, start=1):
        try:
            read = _step(step, aggregate, manual, sources or {})
        except TranscriptError as error:
            raise TranscriptError(f"step {position}: {error.message}", hint=error.hint) from error
        if isinstance(read, Action):
            scenes.append(Scene(read, ()))
        elif scenes:
            scenes[-1] = Scene(scenes[-1].action, (*scenes[-1].checks, read))
        else:
            raise TranscriptError(f"step {position}: {next(iter(step))!r} comes before any step that acts")
    if not scenes:
        raise TranscriptError("steps must hold at least one step that acts: batch, watermark, clock or restart")
    return tuple(scenes)


def _step(step: Any, aggregate: Aggregate, manual: bool, sources: Mapping[str, bool]) -> Action | Check:
    if not isinstance(step, Mapping) or len(step) != 1:
        raise TranscriptError(f"a step must be a mapping with one field, but is {step!r}")
    ((kind, content),) = step.items()
    match kind:
        case "batch":
            return Batch(tuple(_event(event, sources) for event in listed(content, "batch")))
        case "watermark":
            return _move_watermark(content, manual, sources)
        case "clock":
            return MoveClock(micros_of(content, "clock"))
        case "restart":
            if not flag(content, "restart"):
                raise TranscriptError("restart must be true; leave the step out otherwise")
            return Restart()
        case "expect":
            return ExpectPanes(tuple(_expected_pane(pane, aggregate) for pane in listed(content, "expect")))
        case "late" | "partially_late" | "future" | "duplicates":
            return ExpectEvents(kind, tuple(_expected_event(event, kind, sources) for event in listed(content, kind)))
        case "watermark_is":
            return ExpectWatermark(None if content is None else micros_of(content, "watermark_is"))
        case _:
            known = ", ".join(["batch", "watermark", "clock", "restart", "expect", *REFUSALS, "watermark_is"])
            raise TranscriptError(f"step {kind!r} is unknown", hint=f"one of {known}")


def _move_watermark(content: Any, manual: bool, sources: Mapping[str, bool]) -> MoveWatermark:
    named = None
    if sources and isinstance(content, Mapping):
        if len(content) != 1:
            raise TranscriptError(f"a watermark step names one source, but is {content!r}")
        ((name, content),) = content.items()
        named = choice(name, "source", tuple(sources))
        manual = sources[named]
    if not manual:
        raise TranscriptError("watermark steps need a manual watermark; a strategy moves it by itself")
    return MoveWatermark(micros_of(content, "watermark"), named)


def _event(value: Any, sources: Mapping[str, bool]) -> EventIn:
    if not isinstance(value, Mapping):
        value = {"t": value}
    fields = Fields(value, "event")
    given = dict(_event_fields(fields, sources, time=fields.need("t")))
    arrival = fields.take("arrival")
    fields.done()
    return EventIn(
        time=given["time"],
        key=given.get("key", DEFAULT_KEY),
        value=given.get("value", value["t"]),
        partition=given.get("partition", 0),
        id=given.get("id"),
        arrival=None if arrival is None else micros_of(arrival, "event arrival"),
        source=given.get("source", next(iter(sources), None)),
    )


def _expected_event(value: Any, kind: str, sources: Mapping[str, bool]) -> Expected:
    if not isinstance(value, Mapping):
        return Expected((("time", micros_of(value, f"{kind} event")),))
    fields = Fields(value, f"{kind} event")
    expected = Expected(tuple(_event_fields(fields, sources, time=fields.take("t"))))
    fields.done()
    return expected


def _event_fields(fields: Fields, sources: Mapping[str, bool], time: Any) -> list[tuple[str, Any]]:
    """The fields that a given and an expected event share, as far as they are there."""
    found: list[tuple[str, Any]] = []
    if time is not None:
        found.append(("time", micros_of(time, "event t")))
    for name, read in (("key", plain), ("value", number), ("partition", natural), ("id", plain)):
        content = fields.take(name)
        if content is not None:
            found.append((name, read(content, f"event {name}")))
    if sources and (named := fields.take("source")) is not None:
        found.append(("source", choice(named, "source", tuple(sources))))
    return found


def _expected_pane(value: Any, aggregate: Aggregate) -> Expected:
    fields = Fields(value, "pane")
    found: list[tuple[str, Any]] = []

    def take(name: str, read: Any) -> None:
        if name in fields:
            found.append((name, read(fields.take(name), f"pane {name}")))

    take("key", plain)
    take("window", _bounds)
    if aggregate == "collect":
        take("values", lambda content, what: tuple(number(item, what) for item in listed(content, what)))
    else:
        take("value", number)
    take("timing", lambda content, what: choice(content, what, ("early", "on_time", "late")))
    take("index", natural)
    take("final", flag)
    take("change", lambda content, what: choice(content, what, ("upsert", "retract")))
    shown, other = ("values", "value") if aggregate == "collect" else ("value", "values")
    if other in fields:
        raise TranscriptError(f"pane has {other!r}, but aggregate {aggregate} gives {shown!r}")
    fields.done()
    return Expected(tuple(found))


def _bounds(content: Any, what: str) -> tuple[int, int] | None:
    if content == "global":
        return None
    if not isinstance(content, list) or len(content) != 2:
        raise TranscriptError(f"{what} must be [start, end] or global, but is {content!r}")
    return micros_of(content[0], what), micros_of(content[1], what)
