"""Panes, windows and events as text, in the YAML flow style of the transcripts."""

from __future__ import annotations

from typing import Any

from tidegate.testing.outcomes import EventOut, PaneOut
from tidegate.testing.steps import Expected
from tidegate.time import SECOND


def show_number(value: int | float) -> str:
    """A number as a person writes it: no `.0`."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def show_seconds(us: int | None) -> str:
    if us is None:
        return "none"
    return str(us // SECOND) if us % SECOND == 0 else show_number(us / SECOND)


def show_expected(expected: Expected) -> str:
    """Only what the transcript gives."""
    return _mapping(expected.fields)


def show_pane(pane: PaneOut) -> str:
    shown: tuple[str, Any] = ("value", pane.value) if pane.values is None else ("values", pane.values)
    return _mapping(
        (
            ("key", pane.key),
            ("window", pane.window),
            shown,
            ("timing", pane.timing),
            ("index", pane.index),
            ("final", pane.final),
            ("change", pane.change),
        )
    )


def show_event(event: EventOut) -> str:
    fields: list[tuple[str, Any]] = [
        ("time", event.time),
        ("key", event.key),
        ("value", event.value),
        ("partition", event.partition),
    ]
    fields += [(name, value) for name, value in (("id", event.id), ("source", event.source)) if value is not None]
    return _mapping(tuple(fields))


def _mapping(fields: tuple[tuple[str, Any], ...]) -> str:
    names = {"time": "t"}
    return "{" + ", ".join(f"{names.get(name, name)}: {_field(name, value)}" for name, value in fields) + "}"


def _field(name: str, value: Any) -> str:
    if name == "time":
        return show_seconds(value)
    if name == "window":
        return "global" if value is None else f"[{show_seconds(value[0])}, {show_seconds(value[1])}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(show_number, value))}]"
    return value if isinstance(value, str) else show_number(value)
