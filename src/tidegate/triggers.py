"""Triggers: when a window speaks. They never decide what is lost.

A trigger is asked once per micro-batch and window, after the whole batch is in and the watermark
has moved, so there is at most one upsert pane per batch and window. No trigger finishes: all repeat,
and a window that closes with elements no pane has shown emits a last pane with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidegate.errors import PipelineError
from tidegate.time import Duration, positive, show

Accumulation = Literal["accumulating", "discarding", "retracting"]
ACCUMULATIONS: tuple[str, ...] = ("accumulating", "discarding", "retracting")
OnTime = Literal["always", "if_changed"]


@dataclass(frozen=True)
class Default:
    """One on-time pane at the end, then one late pane per micro-batch with late-but-allowed events."""

    def __str__(self) -> str:
        return "default"


@dataclass(frozen=True)
class Count:
    """Each time `n` or more elements have come since the last pane."""

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise PipelineError(f"trigger Count({self.n}) would never make sense; n must be at least 1")

    def __str__(self) -> str:
        return f"count {self.n}"


@dataclass(frozen=True)
class AfterWatermark:
    """The on-time pane, `early` panes before it, `late` panes after it (default: one per batch)."""

    early: Trigger | None = None
    late: Trigger | None = None

    def __str__(self) -> str:
        parts = [f"early {self.early}"] if self.early else []
        parts += [f"late {self.late}"] if self.late else []
        return "after watermark" + (f" ({', '.join(parts)})" if parts else "")


@dataclass(frozen=True, init=False)
class AnyOf:
    """True when any part is true."""

    parts: tuple[Trigger, ...]

    def __init__(self, *parts: Trigger) -> None:
        object.__setattr__(self, "parts", parts)

    def __str__(self) -> str:
        return f"any of ({', '.join(map(str, self.parts))})"


@dataclass(frozen=True, init=False)
class AllOf:
    """True when each part has come true since the last pane."""

    parts: tuple[Trigger, ...]

    def __init__(self, *parts: Trigger) -> None:
        object.__setattr__(self, "parts", parts)

    def __str__(self) -> str:
        return f"all of ({', '.join(map(str, self.parts))})"


@dataclass(frozen=True, init=False)
class Each:
    """The first part once, then the second once, …; the last one stays."""

    parts: tuple[Trigger, ...]

    def __init__(self, *parts: Trigger) -> None:
        object.__setattr__(self, "parts", parts)

    def __str__(self) -> str:
        return f"each of ({', '.join(map(str, self.parts))})"


@dataclass(frozen=True, init=False)
class EveryEventTime:
    """When the watermark crosses a multiple of `interval`."""

    interval: int

    def __init__(self, interval: Duration) -> None:
        object.__setattr__(self, "interval", positive(interval, what="trigger interval"))

    def __str__(self) -> str:
        return f"every {show(self.interval)} of event time"


@dataclass(frozen=True, init=False)
class EveryProcessingTime:
    """When the clock crosses a multiple of `interval`."""

    interval: int

    def __init__(self, interval: Duration) -> None:
        object.__setattr__(self, "interval", positive(interval, what="trigger interval"))

    def __str__(self) -> str:
        return f"every {show(self.interval)} of processing time"


@dataclass(frozen=True)
class FinalOnly:
    """One pane per window, when it closes."""

    def __str__(self) -> str:
        return "final only"


Trigger = Default | Count | AfterWatermark | AnyOf | AllOf | Each | EveryEventTime | EveryProcessingTime | FinalOnly
