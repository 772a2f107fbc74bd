"""Kafka: results as messages, exactly once for readers with ``isolation.level=read_committed``.

A record's messages and its marker are sent in **one transaction**, by a producer on the driver. The marker is a message
in a topic of its own, ``tidegate.<pipeline>.<sink>``, which is compacted and never expires: under the checkpoint's
identity it says which record was applied and which claim may apply the next. (A committed consumer offset could carry
it too, but brokers forget the offsets of a group that has been silent for a week, and a pipeline of weekly windows is.)

- Killed before the commit: the broker drops the transaction when the next writer comes, and the record comes again.
- Killed after it, or not told how the commit went: the marker, read anew, says so.
- A zombie: writers of one checkpoint and sink share a ``transactional.id``, and whoever began last fences the others.
  The marker is read **after** that, so nothing can change it any more, and one with an older claim gives up.

Two ways to say what changed:

- ``changes="upsert"``: the current result per key and window; what is taken back is a tombstone. Made for compacted
  topics, from which a reader gets the table of current results.
- ``changes="log"``: every pane in order, with ``pane_change`` (upsert or retract).

What is *not* promised: a reader that also takes uncommitted messages sees those of broken transactions; it can drop
them by the header ``tidegate-id``. See `tidegate.sinks.kafka_messages` for what a message looks like.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, get_args

from tidegate import crash
from tidegate.errors import SinkError, Unavailable
from tidegate.sinks.base import Delivery, SinkTarget
from tidegate.sinks.kafka_client import OURS, TIMEOUT, Cluster, Marker, Trouble, ensure_topic, is_fenced, read_marker
from tidegate.sinks.kafka_messages import ID, Messages, log_of, upserts_of
from tidegate.sinks.marker import refuse_if_fenced, refuse_if_gone_back, vanished
from tidegate.sinks.panes import read_panes

if TYPE_CHECKING:
    from confluent_kafka import Producer

Changes = Literal["upsert", "log"]

_TRANSACTION_MS = 300_000
"""A record must be sent within this; and so long a driver that died may hold up readers, unless it is restarted."""

_PRODUCER = {
    "transaction.timeout.ms": _TRANSACTION_MS,
    "partitioner": "murmur2_random",  # as Java's clients do, so that joins by partition find the same keys
    "linger.ms": 20,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 500_000,
}
_MARKERS = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.1"}
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True)
class KafkaTopic:
    """Results into a Kafka topic.

    >>> KafkaTopic("broker:9092", "revenue", options={"sasl.password": "secret"}).describe()
    'Kafka topic revenue at broker:9092, upserts'
    """

    servers: str
    topic: str
    changes: Changes = "upsert"
    """Whether a message says what is true now (`upsert`) or what was said (`log`)."""
    partitions: int | None = None
    """Create the topic with so many partitions when it is missing; None refuses a missing topic."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Settings of librdkafka, such as `security.protocol`; they may hold secrets, and are never shown."""

    def describe(self) -> str:
        return f"Kafka topic {self.topic} at {self.servers}, {'upserts' if self.changes == 'upsert' else 'change log'}"

    def problems(self) -> list[str]:
        if find_spec("confluent_kafka") is None:
            return ["tg.KafkaTopic needs the package confluent-kafka; install it with: pip install 'tidegate[kafka]'"]
        problems = []
        if not self.servers or "://" in self.servers or "@" in self.servers:
            problems.append("servers of tg.KafkaTopic are written host:port, several with commas between them")
        if not _TOPIC_NAME.fullmatch(self.topic):
            problems.append(f"topic {self.topic!r} is no name that Kafka takes: letters, digits, '.', '_' and '-'")
        if self.changes not in get_args(Changes):
            problems.append(f"changes of tg.KafkaTopic is 'upsert' or 'log', but not {self.changes!r}")
        if self.partitions is not None and self.partitions < 1:
            problems.append(f"partitions of tg.KafkaTopic must be at least 1, but is {self.partitions}")
        if taken := sorted(OURS & set(self.options)):
            problems.append(f"options of tg.KafkaTopic must not hold {', '.join(taken)}: exactly-once rests on ours")
        return problems

    def open(self, target: SinkTarget) -> KafkaWriter:
        if problems := self.problems():
            raise SinkError("; ".join(problems))
        return KafkaWriter(self, target)


class KafkaWriter:
    """A `SinkWriter` that sends a record in a transaction."""

    def __init__(self, sink: KafkaTopic, target: SinkTarget) -> None:
        self._sink, self._target = sink, target
        self._cluster = Cluster(sink.servers, sink.options)
        self._markers = f"tidegate.{target.pipeline}.{target.sink}"
        self._producer: Producer | None = None
        self._trouble = Trouble()
        self._sequence: int | None = None
        self._took_claim = False
        compacted = {"cleanup.policy": "compact"} if sink.changes == "upsert" else {}
        ensure_topic(self._cluster, sink.topic, sink.partitions, **compacted)
        ensure_topic(self._cluster, self._markers, 1, **_MARKERS)
        if (found := self._read_marker()) is not None:
            refuse_if_fenced(target, found.claim)  # here already, so that a zombie does not disturb its successor
        try:
            self._connect()
        except BaseException:
            self._let_go()
            raise

    def confirmed(self) -> int | None:
        return self._sequence

    def deliver(self, delivery: Delivery) -> int:
        if self._producer is None:
            self._connect()
        if self._sequence is not None and self._sequence >= delivery.sequence:
            return 0
        panes = read_panes(delivery.files, self._target)
        say = upserts_of if self._sink.changes == "upsert" else log_of
        messages = say(panes, self._target) if panes.num_rows else None
        self._transact(messages, delivery.sequence)
        self._sequence = delivery.sequence
        return len(messages) if messages else 0

    def close(self) -> None:
        self._let_go()

    def _connect(self) -> None:
        """A new producer: what an older one left open is broken off, and then the marker is final."""
        from confluent_kafka import Producer

        trouble, target = Trouble(), self._target
        identity = f"tidegate.{target.pipeline}.{target.sink}.{target.checkpoint_id}"
        with self._cluster.explained(trouble):
            producer = Producer(
                self._cluster.settings(
                    trouble, **_PRODUCER | dict(self._sink.options), **{"transactional.id": identity}
                )
            )
            producer.init_transactions(TIMEOUT)
        self._producer, self._trouble = producer, trouble
        try:
            self._judge(self._read_marker())
        except BaseException:
            self._let_go()
            raise

    def _read_marker(self) -> Marker | None:
        return read_marker(self._cluster, self._markers, self._target.checkpoint_id)

    def _judge(self, found: Marker | None) -> None:
        if found is None:
            if self._took_claim:
                raise vanished(self._target, f"topic {self._markers}")
        else:
            refuse_if_fenced(self._target, found.claim)
            refuse_if_gone_back(self._target, self._sequence, found.sequence)
            self._sequence = found.sequence
        if found is None or found.claim < self._target.claim:
            self._transact(None, self._sequence)
        self._took_claim = True

    def _transact(self, messages: Messages | None, sequence: int | None) -> None:
        """Messages and marker, or neither. When it breaks, the producer is let go, and the next asks the marker."""
        producer, claim = self._producer, self._target.claim
        assert producer is not None
        try:
            with self._cluster.explained(self._trouble):
                producer.begin_transaction()
                if messages is not None:
                    self._send(producer, messages, f"{self._target.checkpoint_id}/{self._target.sink}/{sequence}/")
                key, value = self._target.checkpoint_id.encode(), Marker(sequence, claim).to_json()
                self._flush(producer)
                producer.produce(self._markers, value, key, partition=0)
                self._flush(producer)
                if messages is not None:
                    crash.point("mid_sink")
                producer.commit_transaction(TIMEOUT)
        except BaseException as error:
            self._let_go()
            if is_fenced(error) and (found := self._read_marker()) is not None:
                refuse_if_fenced(self._target, found.claim)  # else the broker only gave up on a slow transaction
            raise

    def _send(self, producer: Producer, messages: Messages, prefix: str) -> None:
        topic, produce = self._sink.topic, producer.produce
        for number, (key, value) in enumerate(messages):
            headers: list[tuple[str, str | bytes | None]] = [(ID, f"{prefix}{number}")]
            while True:
                try:
                    produce(topic, value, key, headers=headers)
                    break
                except BufferError:  # its queue is full; wait until some of it is with the broker
                    self._progress(producer)

    def _flush(self, producer: Producer) -> None:
        while len(producer):
            self._progress(producer)

    def _progress(self, producer: Producer) -> None:
        """Wait until fewer messages are under way; when none moves for long, the broker is away."""
        before, until = len(producer), time.monotonic() + TIMEOUT
        while len(producer) >= before:
            producer.poll(0.1)
            if len(producer) >= before and time.monotonic() > until:
                raise Unavailable(f"Kafka at {self._sink.servers} takes no messages")

    def _let_go(self) -> None:
        """Break off what is open, so that readers need not wait for it to expire; the broker may be away, though."""
        from confluent_kafka import KafkaException

        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KafkaException):
                producer.abort_transaction(2)
            with suppress(KafkaException):
                producer.purge()
