"""The watermark of a source, moved once per record from what the batch brought.

Per partition the newest event time (or what else the strategy follows) minus the delay; the minimum over the
partitions that are not idle; it holds when none is live, and never goes back. Idle means silent for `idle_after` of
processing time while there was nothing to bring: time in which the pipeline was down, or the source knew of unread
data, does not count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidegate.runtime.records import PartitionClock, SourceClock
from tidegate.watermarks import Watermark, WatermarkStrategy


def advance(
    strategy: WatermarkStrategy,
    before: SourceClock,
    brought: Mapping[str, int | None],
    clock: int,
    *,
    backlog: bool = False,
    manual: int | None = None,
) -> SourceClock:
    """The clock of a source after a batch that `brought` the newest event time of each partition it had events from."""
    partitions = dict(before.partitions)
    if backlog:
        partitions = {name: replace(partition, last_seen=clock) for name, partition in partitions.items()}
    for name, newest in brought.items():
        known = partitions.get(name)
        times = [time for time in (newest, known.newest if known else None) if time is not None]
        partitions[name] = PartitionClock(max(times, default=None), clock)
    if not isinstance(strategy, Watermark):
        return SourceClock(_later(before.watermark, manual), partitions)
    counting = list(partitions.values())
    live = [p for p in counting if strategy.idle_after is None or clock - p.last_seen < strategy.idle_after]
    said = [p.newest - strategy.delay for p in live if p.newest is not None]
    # A live partition that has not said yet how far it is holds the watermark back.
    reached = min(said, default=None) if len(said) == len(live) else None
    if not live and strategy.idle_flush:
        reached = max((p.newest - strategy.delay for p in counting if p.newest is not None), default=None)
    return SourceClock(_later(before.watermark, reached), partitions)


def resume(before: SourceClock, downtime: int) -> SourceClock:
    """The same clock after a pause: the time the pipeline was down makes nobody idle."""
    shifted = {
        name: replace(partition, last_seen=partition.last_seen + max(downtime, 0))
        for name, partition in before.partitions.items()
    }
    return replace(before, partitions=shifted)


def _later(left: int | None, right: int | None) -> int | None:
    return max((value for value in (left, right) if value is not None), default=None)
