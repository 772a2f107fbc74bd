"""Clocks for people: the watermark of each source and partition, and how far it lags behind the wall clock.

A partition's own watermark is its newest event time less the source's delay. Records keep the newest event
time; the delay is part of the declaration, so a partition's watermark is shown only where the app is at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidegate.app import App
from tidegate.runtime.records import SourceClock
from tidegate.time import FOREVER
from tidegate.watermarks import Watermark


@dataclass(frozen=True)
class Clock:
    """A source or one of its partitions. `lag` is how far its watermark, else its newest event, is behind `now`."""

    name: str
    newest: int | None
    watermark: int | None
    lag: int | None
    last_seen: int | None = None
    partitions: tuple[Clock, ...] = ()
    unread: dict[str, int] = field(default_factory=dict)
    """Of a source whose system says so: how many records each of its partitions still held when it was last asked."""


def delays(app: App | None) -> dict[str, int]:
    """The watermark delay of each source that has one."""
    sources = app.sources.values() if app else ()
    return {source.name: source.watermark.delay for source in sources if isinstance(source.watermark, Watermark)}


def feeders(app: App | None) -> dict[str, tuple[str, ...]]:
    """The sources of each operator that has several."""
    operators = app.operators.values() if app else ()
    return {node.name: tuple(branch.source.name for branch in node.branches) for node in operators if node.is_union}


def held_by(feeders: Iterable[str], sources: Mapping[str, SourceClock]) -> str:
    """Which of the sources of an operator hold its watermark: those that have none yet, or the lowest."""
    at = {name: clock.watermark if (clock := sources.get(name)) else None for name in feeders}
    silent = [name for name, watermark in at.items() if watermark is None]
    known = [watermark for watermark in at.values() if watermark is not None]
    holding = silent or [name for name, watermark in at.items() if watermark == min(known)]
    return "" if len(holding) == len(at) and not silent else f"held by {', '.join(holding)}"


def clocks(sources: Mapping[str, SourceClock], now: int, delays: Mapping[str, int]) -> list[Clock]:
    """The clocks of all sources as of `now` (µs)."""
    return [_source(name, clock, now, delays.get(name)) for name, clock in sources.items()]


def lag(watermark: int | None, now: int) -> int | None:
    """How far a watermark is behind; None before the first event, and when the input has ended."""
    return None if watermark is None or watermark >= FOREVER else now - watermark


def _source(name: str, clock: SourceClock, now: int, delay: int | None) -> Clock:
    partitions = []
    for partition, at in clock.partitions.items():
        own = None if at.newest is None or delay is None else at.newest - delay
        behind = own if own is not None else at.newest
        partitions.append(Clock(partition, at.newest, own, lag(behind, now), at.last_seen))
    newest = max((p.newest for p in partitions if p.newest is not None), default=None)
    last_seen = max((p.last_seen for p in partitions if p.last_seen is not None), default=None)
    return Clock(name, newest, clock.watermark, lag(clock.watermark, now), last_seen, tuple(partitions), clock.unread)
