"""What an executor hands back: neutral values that know neither the model nor Spark.

Times and windows are whole microseconds; the window `None` is the global one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Timing = Literal["early", "on_time", "late"]
Change = Literal["upsert", "retract"]


@dataclass(frozen=True)
class PaneOut:
    """A pane as an executor hands it back; `values` with aggregate collect, else `value`."""

    key: str
    window: tuple[int, int] | None
    values: tuple[int | float, ...] | None
    value: int | float | None
    timing: Timing
    index: int
    final: bool
    change: Change


@dataclass(frozen=True)
class EventOut:
    """An event that was refused, or accepted only in part."""

    time: int
    key: str
    value: int | float
    partition: int
    id: str | None
    source: str | None = None
    """`None` where there is only one."""


@dataclass(frozen=True)
class Step:
    """What one acting step brought out; `watermark` is `None` while nothing has moved it."""

    panes: tuple[PaneOut, ...] = ()
    late: tuple[EventOut, ...] = ()
    partially_late: tuple[EventOut, ...] = ()
    future: tuple[EventOut, ...] = ()
    duplicates: tuple[EventOut, ...] = ()
    watermark: int | None = None
