"""The watermark, partition by partition: how far event time has come.

Per source partition ``w_p = max(event time seen in p) − delay``. The watermark is the minimum over the partitions that
are live. A partition is idle when it has brought nothing for `idle_after` of processing time while it had nothing to
bring. With no live partition the watermark holds – an outage of all producers must not make everything late – unless
`idle_flush` sends it to the furthest partition. It never goes back.

A partition without an event counts only while the source knows that it holds unread data: what is unread may be older
than all that was read. Once that is read and no event was among it (all of it refused), it holds nothing.

Instead of the event time a strategy may follow the arrival (`ArrivalTime`), or a mark in the events (`Punctuated`).

That is one source. The watermark of an operator is the minimum over the sources that feed it, and never goes back
either: a source that has said nothing yet, or is wholly idle, holds it where it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tidegate.errors import PipelineError
from tidegate.model.values import BEGINNING, INFINITY, Event
from tidegate.watermarks import ArrivalTime, Manual, Punctuated, WatermarkStrategy


@dataclass
class Partition:
    """A partition that counts: its newest event (if it has shown one), and when it last showed life."""

    newest: int | None
    last_arrival: int
    has_events: bool = False


class WatermarkTracker:
    """Follows one source. The caller observes a batch, then asks where the watermark is now."""

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self.strategy = strategy
        self.value = BEGINNING
        self.partitions: dict[int, Partition] = {}
        self.unread: frozenset[int] = frozenset()

    def is_future(self, event: Event, clock: int) -> bool:
        """Whether the event is further ahead of its arrival than `max_future` lets it be.

        The arrival is never believed later than the clock: a device set to next year must not vouch for itself.
        """
        if isinstance(self.strategy, Manual) or self.strategy.max_future is None:
            return False
        arrival = clock if event.arrival is None else min(event.arrival, clock)
        return event.time > arrival + self.strategy.max_future

    def observe(self, events: Iterable[Event], clock: int, backlog: Collection[int] = ()) -> None:
        """Take note of a batch, future events already left out.

        Late events and duplicates count: they show that their partition lives. A partition with a `backlog` (unread
        data that the source knows of, now) counts even before its first event, and does not grow idle.
        """
        self.unread = frozenset(backlog)
        for event in events:
            partition = self.partitions.setdefault(event.partition, Partition(None, clock))
            said = self._said(event, clock)
            if said is not None:
                partition.newest = said if partition.newest is None else max(partition.newest, said)
            partition.last_arrival, partition.has_events = clock, True
        for number in backlog:
            self.partitions.setdefault(number, Partition(None, clock)).last_arrival = clock

    def advance(self, clock: int) -> int:
        """The watermark after a batch at `clock`."""
        self.value = max(self.value, self._candidate(clock))
        return self.value

    def move_to(self, time: int) -> int:
        """Move a manual watermark; it never goes back."""
        if not isinstance(self.strategy, Manual):
            raise PipelineError(f"the watermark ({self.strategy}) follows its events and cannot be moved by hand")
        self.value = max(self.value, time)
        return self.value

    def end(self) -> None:
        """The input has ended: nothing can be late any more."""
        self.value = INFINITY

    def resume(self, downtime: int) -> None:
        """The pipeline was down for `downtime`: no partition could bring anything, so none grew idler."""
        for partition in self.partitions.values():
            partition.last_arrival += downtime

    def _said(self, event: Event, clock: int) -> int | None:
        """How far an event says that time has come."""
        if isinstance(self.strategy, Punctuated):
            return event.mark
        if isinstance(self.strategy, ArrivalTime):
            return clock if event.arrival is None else min(event.arrival, clock)
        return event.time

    def _candidate(self, clock: int) -> int:
        """Where the partitions say the watermark is; a manual one is moved by hand alone."""
        if isinstance(self.strategy, Manual):
            return BEGINNING
        idle_after, delay = self.strategy.idle_after, self.strategy.delay
        live = [
            partition
            for number, partition in self.partitions.items()
            if (partition.has_events or number in self.unread)
            and (idle_after is None or clock - partition.last_arrival < idle_after)
        ]
        if live:
            return min(BEGINNING if p.newest is None else p.newest - delay for p in live)
        furthest = [p.newest - delay for p in self.partitions.values() if p.newest is not None]
        return max(furthest, default=BEGINNING) if self.strategy.idle_flush else BEGINNING


class OperatorWatermark:
    """How far event time has come for an operator: the minimum over its sources, each with its own tracker."""

    def __init__(self, strategies: Mapping[str, WatermarkStrategy]) -> None:
        self.sources = {name: WatermarkTracker(strategy) for name, strategy in strategies.items()}
        self.value = BEGINNING

    def is_future(self, event: Event, clock: int) -> bool:
        return self._of(event.source).is_future(event, clock)

    def observe(self, events: Collection[Event], clock: int, backlog: Mapping[str, Collection[int]]) -> None:
        """Take note of a batch, source by source, and move."""
        for name, tracker in self.sources.items():
            tracker.observe([event for event in events if event.source == name], clock, backlog.get(name, ()))
            tracker.advance(clock)
        self._follow()

    def move_to(self, time: int, source: str | None = None) -> None:
        """Move the manual watermark of one source, or of all."""
        for tracker in self.sources.values() if source is None else [self._of(source)]:
            tracker.move_to(time)
        self._follow()

    def end(self) -> None:
        for tracker in self.sources.values():
            tracker.end()
        self._follow()

    def resume(self, downtime: int) -> None:
        for tracker in self.sources.values():
            tracker.resume(downtime)

    def _follow(self) -> None:
        self.value = max(self.value, min(tracker.value for tracker in self.sources.values()))

    def _of(self, source: str) -> WatermarkTracker:
        if source not in self.sources:
            raise PipelineError(f"there is no source {source!r}", hint=f"there are {', '.join(self.sources)}")
        return self.sources[source]
