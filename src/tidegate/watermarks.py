"""Watermarks: how far event time has come, and who says so.

Per source partition ``w_p = max(event time seen in p) − delay``. The source's watermark is the
minimum over its partitions that are not idle; it holds when none is live, and never goes back.
It moves only between micro-batches: a batch is judged by the watermark before it.

That is `Watermark`. In `ArrivalTime` the place of the newest event time is taken by the newest arrival, in
`Punctuated` by what the events themselves say; everything else is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.time import Duration, micros, positive, show


@dataclass(frozen=True, init=False)
class Watermark:
    """Bounded delay per partition.

    `delay`: how far behind the newest event of its partition an event may come and be on time.
    `idle_after`: a partition that has brought nothing for this long, while it had nothing to bring,
    no longer holds the watermark back (default: never).
    `max_future`: an event further than this ahead of its arrival is a dead letter `FUTURE` and moves
    nothing (default: one hour; `None` turns the guard off).
    `idle_flush`: when every partition is idle, go to the furthest of them instead of holding.
    """

    delay: int
    idle_after: int | None
    max_future: int | None
    idle_flush: bool

    def __init__(
        self,
        delay: Duration = "0s",
        idle_after: Duration | None = None,
        max_future: Duration | None = "1h",
        idle_flush: bool = False,
    ) -> None:
        def optional(value: Duration | None, what: str) -> int | None:
            return None if value is None else positive(value, what=what)

        object.__setattr__(self, "delay", micros(delay, what="watermark delay"))
        object.__setattr__(self, "idle_after", optional(idle_after, "watermark idle_after"))
        object.__setattr__(self, "max_future", optional(max_future, "watermark max_future"))
        object.__setattr__(self, "idle_flush", idle_flush)

    def __str__(self) -> str:
        parts = [f"delay {show(self.delay)}"]
        parts += [f"idle after {show(self.idle_after)}"] if self.idle_after else []
        parts += [f"max future {show(self.max_future)}"] if self.max_future else []
        return ", ".join(parts)


class ArrivalTime(Watermark):
    """As far as the newest arrival minus `delay`, whatever time the events carry.

    For sources whose clocks cannot be trusted to move time, such as devices without one: an event is late when it
    is older than `delay` by the time it arrives. An arrival later than our own clock is not believed.
    """

    def __str__(self) -> str:
        return f"arrival time, {super().__str__()}"


@dataclass(frozen=True, init=False)
class Punctuated(Watermark):
    """As far as the events themselves say: the largest value of `column`, a column or SQL expression of a TIMESTAMP.

    In most events it is NULL; a marker event, or a field that the producer sets when it knows, carries it. A partition
    that has brought events and no mark yet holds the watermark back.
    """

    column: str

    def __init__(
        self,
        column: str,
        idle_after: Duration | None = None,
        max_future: Duration | None = "1h",
        idle_flush: bool = False,
    ) -> None:
        super().__init__("0s", idle_after, max_future, idle_flush)
        object.__setattr__(self, "column", column)

    def __str__(self) -> str:
        return f"punctuated by {self.column}, {super().__str__()}"


@dataclass(frozen=True)
class Manual:
    """Only the driver moves it: for tests and transcripts."""

    def __str__(self) -> str:
        return "manual"


WatermarkStrategy = Watermark | Manual
