"""The watermark of a source, moved once per record from what the batch brought.

Per partition the newest event time minus the delay; the minimum over the partitions that are not idle; it holds when
none is live, and never goes back. Idle means silent for `idle_after` of processing time while there was nothing to
bring: time in which the pipeline was down, or the source knew of unread data, does not count. A partition with unread
data holds the watermark even before its first event, for what is unread may be older than all that was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidegate.runtime.records import PartitionClock, SourceClock
from tidegate.sources.base import NOTHING_LEFT, Standing
from tidegate.watermarks import Watermark, WatermarkStrategy


def advance(
    strategy: WatermarkStrategy,
    before: SourceClock,
    brought: Mapping[str, int | None],
    clock: int,
    *,
    standing: Standing = NOTHING_LEFT,
    manual: int | None = None,
) -> SourceClock:
    """The clock of a source after a batch that `brought` the newest event time of each partition it had events from.

    `standing` is what the source holds that was not read yet.
    """
    partitions = dict(before.partitions)
    for name, newest in brought.items():
        known = partitions.get(name)
        times = [time for time in (newest, known.newest if known else None) if time is not None]
        partitions[name] = PartitionClock(max(times, default=None), clock)
    for name in partitions:
        if standing.behind_somewhere or name in standing.behind:
            partitions[name] = replace(partitions[name], last_seen=clock)
    after = SourceClock(
        before.watermark, partitions, dict(standing.unread or before.unread), standing.identity or before.identity
    )
    if not isinstance(strategy, Watermark):
        return replace(after, watermark=_later(before.watermark, manual))
    counting = {name: at for name, partition in partitions.items() if (at := partition.newest) is not None}
    if standing.behind - counting.keys():
        return after  # what a partition that has shown no event yet will bring may be older than all of this
    live = [
        newest
        for name, newest in counting.items()
        if strategy.idle_after is None or clock - partitions[name].last_seen < strategy.idle_after
    ]
    reached = min((newest - strategy.delay for newest in live), default=None)
    if not live and strategy.idle_flush:
        reached = max((newest - strategy.delay for newest in counting.values()), default=None)
    return replace(after, watermark=_later(before.watermark, reached))


def resume(before: SourceClock, downtime: int) -> SourceClock:
    """The same clock after a pause: the time the pipeline was down makes nobody idle."""
    shifted = {
        name: replace(partition, last_seen=partition.last_seen + max(downtime, 0))
        for name, partition in before.partitions.items()
    }
    return replace(before, partitions=shifted)


def _later(left: int | None, right: int | None) -> int | None:
    return max((value for value in (left, right) if value is not None), default=None)
