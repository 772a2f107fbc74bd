"""Topics for tests: made under a name of their own, filled with exactly the records a test means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]
from tests.servers import RunningServer, unique
from tests.workbench import line

Headers = list[tuple[str, str | bytes | None]]


@dataclass
class TestTopic:
    """A topic on the broker of the tests."""

    __test__ = False
    server: RunningServer
    name: str

    @staticmethod
    def make(server: RunningServer, partitions: int = 1, **config: str) -> TestTopic:
        topic = TestTopic(server, unique("events"))
        topic.create(partitions, **config)
        return topic

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.server.address})

    def create(self, partitions: int = 1, **config: str) -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        new = NewTopic(self.name, partitions, 1, config=settings)
        self.admin.create_topics([new])[self.name].result()

    def delete(self) -> None:
        self.admin.delete_topics([self.name], operation_timeout=10)[self.name].result()

    def grow(self, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(self.name, partitions)])[self.name].result()

    def producer(self, **config: Any) -> Producer:
        return Producer({"bootstrap.servers": self.server.address, "linger.ms": 5, **config})

    def send(
        self,
        rows: Iterable[bytes | dict[str, Any] | None],
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: Headers | None = None,
        at: int = 1_733_011_200_000,
        producer: Producer | None = None,
    ) -> None:
        """Records in the order given, dated `at` (ms; in December 2024, as files of the workbench are)."""
        mine = producer or self.producer()
        for row in rows:
            value = line(**row) if isinstance(row, Mapping) else row
            mine.produce(self.name, value, key=key, partition=partition, headers=headers, timestamp=at)
            mine.poll(0)
        if producer is None:
            assert mine.flush(30) == 0


def committed(address: str, topic: str) -> list[Message]:
    """All messages of a topic that are committed, in the order of each partition."""
    settings: dict[str, Any] = {
        "bootstrap.servers": address,
        "group.id": "test",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 10,
    }
    with closing(Consumer(settings)) as consumer:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        found, ended = [], 0
        while ended < len(partitions):
            message = consumer.poll(30)
            assert message is not None, f"{topic} can not be read to its end"
            error = message.error()
            assert error is None or error.name() == "_PARTITION_EOF", error
            ended += error is not None
            found += [] if error else [message]
        return found
