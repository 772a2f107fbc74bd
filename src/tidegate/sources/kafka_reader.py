"""A topic of a running pipeline: its ranges, its records, and what is left in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tidegate.errors import CheckpointError, DataLossRisk, TidegateError
from tidegate.sources.base import Records, Standing
from tidegate.sources.kafka import EXTRA, Kafka
from tidegate.sources.kafka_admin import PATIENCE, Cluster, meaning
from tidegate.sources.kafka_proof import OffsetProof, Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.storage.places import Place

ONE_TASK_RECORDS = 5_000
"""Up to so many records are read by one task: a shuffle would cost more than it saves."""
MANY_RECORDS = 100_000
"""From here on a partition of the topic is read by several tasks, when there are cores for them."""


@dataclass(frozen=True)
class OffsetRange:
    """From which offset to which of each partition; a partition that brings nothing stands where it stood."""

    topic: str
    spans: tuple[Span, ...]

    def __bool__(self) -> bool:
        return any(span.end > span.first for span in self.spans)

    def __str__(self) -> str:
        return json.dumps({self.topic: {str(span.partition): [span.first, span.end] for span in self.spans}})

    @property
    def filled(self) -> tuple[Span, ...]:
        return tuple(span for span in self.spans if span.end > span.first)


class KafkaReader:
    """The reader of one topic. It holds one connection to the cluster, for questions."""

    def __init__(self, source: Kafka, spark: SparkSession, name: str, bound: int) -> None:
        self.source, self.spark, self.name, self.bound = source, spark, name, bound
        self._clients = source.client_options()
        self._cluster = Cluster(spark, source.servers, source.topic, source.isolation, self._clients)
        self._reached: dict[int, int] = {}

    # -- offsets ----------------------------------------------------------------------------------------------------

    def stream(self) -> DataFrame:
        reader = self.spark.readStream.name(self.name).format("kafka").options(**self._options())
        reader = reader.option("subscribe", self.source.topic).option("maxOffsetsPerTrigger", self.bound)
        if (instant := self.source.start_millis) is None:
            reader = reader.option("startingOffsets", self.source.start)
        else:
            reader = reader.option("startingTimestamp", str(instant))
            # Where a partition has nothing that new yet, everything that comes is.
            reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
        return reader.load().selectExpr("CAST(partition AS STRING) AS _origin")

    def whole(self) -> OffsetRange:
        topic = self._cluster.topic()
        instant = self.source.start_millis
        first = self._cluster.offsets(topic.partitions, self.source.start if instant is None else instant)
        end = self._cluster.offsets(topic.partitions, "latest")
        return OffsetRange(self.source.topic, tuple(Span(p, first[p], end[p]) for p in topic.partitions))

    def taken(self, log: Place, start: str | None, end: str) -> OffsetRange:
        first = self._parsed(start) if start is not None else self._initial(log)
        last = self._parsed(end)
        if gone := sorted(first.keys() - last.keys()):
            raise self._lost(f"partition {gone[0]} is no longer there")
        # A partition that was added while we ran is read from its beginning.
        spans = tuple(Span(number, first.get(number, 0), last[number]) for number in sorted(last))
        for span in spans:
            if span.end < span.first:
                raise self._lost(f"partition {span.partition} ends at {span.end}, and we had read up to {span.first}")
        return OffsetRange(self.source.topic, spans)

    def without(self, span: OffsetRange, origins: frozenset[str]) -> OffsetRange:
        return span

    def holds(self, origin: str) -> int:
        return 0

    def standing(self, span: OffsetRange | None) -> Standing:
        """How far the topic goes beyond what was read."""
        if span is not None:
            self._reached = {each.partition: each.end for each in span.spans}
        topic = self._cluster.topic()
        if not self._reached:
            return Standing(identity=topic.identity)
        latest = self._cluster.offsets(topic.partitions, "latest")
        unread = {str(p): max(0, latest[p] - self._reached.get(p, 0)) for p in topic.partitions}
        behind = frozenset(name for name, records in unread.items() if records)
        if self.source.partition is not None:  # which of its partitions the unread records are of, nobody knows
            return Standing(unread, behind_somewhere=bool(behind), identity=topic.identity)
        return Standing(unread, behind, identity=topic.identity)

    # -- records ----------------------------------------------------------------------------------------------------

    def records(self, span: OffsetRange) -> Records:
        spans = span.filled
        self._refuse_expired(spans)
        topic, proof = self.source.topic, OffsetProof(self.source.topic, spans, lambda: self._is_compacted)
        reader = self.spark.read.format("kafka").options(**self._options())
        reader = reader.option("assign", json.dumps({topic: [each.partition for each in spans]}))
        reader = reader.option("startingOffsets", json.dumps({topic: {str(s.partition): s.first for s in spans}}))
        reader = reader.option("endingOffsets", json.dumps({topic: {str(s.partition): s.end for s in spans}}))
        # Without a name of our own each batch would make new consumers, and keep those of the batches before.
        reader = reader.option("kafka.group.id", self._clients.get("group.id", f"tidegate.{self.name}"))
        tasks = self.spark.sparkContext.defaultParallelism
        if proof.size >= MANY_RECORDS and tasks > len(spans):
            reader = reader.option("minPartitions", tasks)
        origins = ", ".join(f"'{topic}/{number}'" for number in range(max(s.partition for s in spans) + 1))
        rows = reader.load().selectExpr(
            "CAST(partition AS STRING) AS _partition",
            f"get(array({origins}), partition) AS _origin",
            "offset AS _position",
            "unix_micros(timestamp) AS _arrival",
            "value AS _raw",
            *[f"{name.removeprefix('_')} AS {name}" for name in EXTRA],
        )
        rows = rows.coalesce(1) if proof.size <= ONE_TASK_RECORDS else rows
        return Records(rows, proof=proof, wanted="_raw IS NOT NULL" if self.source.tombstones == "skip" else None)

    # -- trouble ----------------------------------------------------------------------------------------------------

    def check(self, before: str | None) -> None:
        found = self._cluster.topic().identity
        if before is not None and found != before:
            raise self._lost(
                "it is not the topic that was read before: that one was deleted, or the source names another"
            )

    def trouble(self, error: BaseException) -> TidegateError | None:
        said = _story(error)
        if "KAFKA_DATA_LOSS" in said or "OffsetOutOfRangeException" in said or "may have been missed" in said:
            return self._lost("Spark did not find there what it was to read")
        if "kafka" not in said.lower():
            return None
        return meaning(said, self.source.servers, self.source.topic, self._clients)

    def close(self) -> None:
        self._cluster.close()

    def _refuse_expired(self, spans: tuple[Span, ...]) -> None:
        """What retention has deleted is not read as if it had never been there."""
        earliest = self._cluster.offsets([span.partition for span in spans], "earliest")
        for span in spans:
            if span.first < earliest[span.partition]:
                gone = min(earliest[span.partition], span.end) - span.first
                raise self._lost(
                    f"partition {span.partition} now begins at offset {earliest[span.partition]}, and we were to read "
                    f"from {span.first}: {gone:,} records expired before they were read"
                )

    def _lost(self, what: str) -> DataLossRisk:
        return DataLossRisk(
            f"records of topic {self.source.topic!r} at {self.source.servers} cannot be read any more: {what}; "
            "nothing was passed over",
            hint=(
                "if they can be had elsewhere (a backup, the producer), write them to the topic again; to go on "
                "without them, start with a new --checkpoint and a new sink target; "
                "and give the topic a longer retention.ms"
            ),
        )

    # -- small things -----------------------------------------------------------------------------------------------

    @cached_property
    def _is_compacted(self) -> bool:
        return self._cluster.is_compacted()

    def _options(self) -> dict[str, str]:
        clients = PATIENCE | self._clients | {"isolation.level": self.source.isolation}
        return {
            "kafka.bootstrap.servers": self.source.servers,
            **{f"kafka.{name}": value for name, value in clients.items()},
            "failOnDataLoss": "true",
            "includeHeaders": "true",
            "kafkaConsumer.pollTimeoutMs": "30000",
        }

    def _initial(self, log: Place) -> dict[int, int]:
        """Where Spark has found the topic to begin, noted before its first batch."""
        path = log / "0"
        try:
            return self._parsed(path.read_bytes().partition(b"\n")[2].decode())
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(
                f"Spark's note on where source {self.name!r} begins cannot be read: {path}",
                hint="restore the checkpoint from a copy",
            ) from error

    def _parsed(self, offset: str) -> dict[int, int]:
        try:
            found: Mapping[str, int] = json.loads(offset)[self.source.topic]
            return {int(partition): int(place) for partition, place in found.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"Spark's log has the offset {offset[:200]!r}, which is not of topic {self.source.topic!r}",
                hint="a source that now reads another topic needs another name, or a new --checkpoint",
            ) from error


def _story(error: BaseException) -> str:
    """All that an error says, with what caused it on the side of the JVM."""
    parts = [str(error)]
    stack = getattr(error, "_stackTrace", None) or getattr(error, "stackTrace", None)
    parts += [str(stack)] if isinstance(stack, str) else []
    return "\n".join(parts)
