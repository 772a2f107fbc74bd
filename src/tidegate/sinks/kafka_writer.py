"""The writer of a Kafka sink: one transaction per record, judged by its marker. See `tidegate.sinks.kafka` for why."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from tidegate import crash
from tidegate.errors import Unavailable
from tidegate.sinks.base import Delivery, SinkTarget
from tidegate.sinks.kafka_client import (
    TIMEOUT,
    Cluster,
    Marker,
    Trouble,
    ensure_topic,
    fatal_named,
    hear_out,
    is_fenced,
    read_marker,
)
from tidegate.sinks.marker import refuse_if_fenced, refuse_if_gone_back, vanished

if TYPE_CHECKING:
    from confluent_kafka import Producer

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

Header = tuple[str, str | bytes | None]
Message = tuple[str, bytes | None, bytes | None, list[Header], int]
"""Topic, key, value, headers, and the timestamp in ms (0 for now)."""


class Outgoing(Iterable[Message], Protocol):
    """The messages of a record, the same in the same order each time it is sent."""

    def __len__(self) -> int: ...


class KafkaWriter:
    """A `SinkWriter` that sends a record in a transaction."""

    def __init__(self, cluster: Cluster, target: SinkTarget, outgoing: Callable[[Delivery], Outgoing]) -> None:
        self._cluster, self._target, self._outgoing = cluster, target, outgoing
        self._markers = f"tidegate.{target.pipeline}.{target.sink}"
        self._producer: Producer | None = None
        self._trouble = Trouble()
        self._sequence: int | None = None
        self._took_claim = False
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
        messages = self._outgoing(delivery)
        self._transact(messages, delivery.sequence)
        self._sequence = delivery.sequence
        return len(messages)

    def close(self) -> None:
        self._let_go()

    def _connect(self) -> None:
        """A new producer: what an older one left open is broken off, and then the marker is final."""
        from confluent_kafka import Producer

        trouble, target = Trouble(), self._target
        identity = f"tidegate.{target.pipeline}.{target.sink}.{target.checkpoint_id}"
        settings = _PRODUCER | self._cluster.options | {"transactional.id": identity}
        with self._cluster.explained(trouble):
            producer = Producer(self._cluster.settings(trouble, **settings))
            with hear_out(producer):
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

    def _transact(self, messages: Outgoing | None, sequence: int | None) -> None:
        """Messages and marker, or neither. When it breaks, the producer is let go, and the next asks the marker."""
        producer, claim = self._producer, self._target.claim
        assert producer is not None
        try:
            with self._cluster.explained(self._trouble), fatal_named(producer):
                producer.begin_transaction()
                if messages is not None:
                    self._send(producer, messages)
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

    def _send(self, producer: Producer, messages: Outgoing) -> None:
        produce = producer.produce
        for topic, key, value, headers, timestamp in messages:
            while True:
                try:
                    produce(topic, value, key, headers=headers, timestamp=timestamp)
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
                raise Unavailable(f"Kafka at {self._cluster.servers} takes no messages")

    def _let_go(self) -> None:
        """Break off what is open, so that readers need not wait for it to expire; the broker may be away, though."""
        from confluent_kafka import KafkaException

        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KafkaException):
                producer.abort_transaction(2)
            with suppress(KafkaException):
                producer.purge()
