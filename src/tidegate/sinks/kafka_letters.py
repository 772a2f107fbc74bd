"""Dead letters in Kafka: each refused record in the topic ``dlq.<topic>``, as it came, and why in its headers.

Key, value, headers and timestamp are those of the record, byte for byte; so tools that send a topic's messages back to
where they came from need to know nothing of us. What is added stands in headers, as UTF-8 text:

- ``__dlq.errors.topic|partition|offset|group|message``, the names that Kafka's own dead letters have, and
  ``__connect.errors.*`` for tools that read those of Kafka Connect;
- ``tidegate.<field>`` for every field of the letter that says something (reason, operator, late_by_ms, …), and
  ``tidegate-id``, the letter's `dlq_id`.

Records that did not come from Kafka go to ``dlq.<source>``. The letters of a record are sent like panes, in one
transaction with a marker: exactly once for readers of committed messages. They stay in the checkpoint as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import SinkError
from tidegate.sinks.base import Delivery, SinkTarget
from tidegate.sinks.kafka import TOPIC_NAME, client_problems
from tidegate.sinks.kafka_client import Cluster, ensure_topic
from tidegate.sinks.kafka_messages import ID
from tidegate.sinks.kafka_writer import Header, KafkaWriter, Message
from tidegate.sinks.panes import encode
from tidegate.storage.parquet import reading

_OF_A_TOPIC = re.compile(r"([A-Za-z0-9._-]+)/(\d+)")
_AS_IT_CAME = ("raw", "key", "headers")
_CHUNK_ROWS = 10_000


@dataclass(frozen=True)
class KafkaDeadLetters:
    """Dead letters into Kafka, beside the checkpoint: ``app.dead_letters(tg.KafkaDeadLetters("broker:9092"))``.

    >>> KafkaDeadLetters("broker:9092").describe()
    'Kafka topics dlq.… at broker:9092'
    """

    servers: str
    topic: str | None = None
    """One topic for all; None for ``dlq.<topic>``, or ``dlq.<source>`` for what came from elsewhere."""
    partitions: int = 1
    """How many partitions a topic gets that has to be created."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Settings of librdkafka, such as `security.protocol`; they may hold secrets, and are never shown."""

    takes = "letters"

    def describe(self) -> str:
        return f"Kafka topic{f' {self.topic}' if self.topic else 's dlq.…'} at {self.servers}"

    def problems(self) -> list[str]:
        problems = client_problems("KafkaDeadLetters", self.servers, self.options)
        if self.topic is not None and not TOPIC_NAME.fullmatch(self.topic):
            problems.append(f"topic {self.topic!r} is no name that Kafka takes: letters, digits, '.', '_' and '-'")
        if self.partitions < 1:
            problems.append(f"partitions of tg.KafkaDeadLetters must be at least 1, but is {self.partitions}")
        return problems

    def open(self, target: SinkTarget) -> KafkaWriter:
        if problems := self.problems():
            raise SinkError("; ".join(problems))
        cluster, known = Cluster(self.servers, dict(self.options)), set[str]()

        def topic_of(name: str) -> str:
            topic = self.topic or f"dlq.{name}"
            if topic not in known:
                ensure_topic(cluster, topic, self.partitions)
                known.add(topic)
            return topic

        return KafkaWriter(cluster, target, lambda delivery: _Letters(_read(delivery), topic_of))


def _read(delivery: Delivery) -> list[pa.Table]:
    tables = []
    for path in delivery.files:
        try:
            with reading(path) as local, pq.ParquetFile(local) as file:
                table = file.read()
        except (OSError, pa.ArrowException) as error:
            raise SinkError(
                f"staged dead letters {path} cannot be read: {error}",
                hint="the record names them, so without them letters would be lost; restore the checkpoint folder",
            ) from error
        tables += [table] if table.num_rows else []
    return tables


@dataclass(frozen=True)
class _Letters:
    tables: list[pa.Table]
    topic_of: Callable[[str], str]

    def __len__(self) -> int:
        return sum(table.num_rows for table in self.tables)

    def __iter__(self) -> Iterator[Message]:
        for table in self.tables:
            for start in range(0, table.num_rows, _CHUNK_ROWS):
                yield from self._chunk(table.slice(start, _CHUNK_ROWS))

    def _chunk(self, table: pa.Table) -> Iterator[Message]:
        told = {name: encode(name, table[name]) for name in table.column_names if name not in _AS_IT_CAME}
        came = {
            name: table[name].to_pylist() if name in table.column_names else [None] * table.num_rows
            for name in _AS_IT_CAME
        }
        arrived = table["arrival"].cast(pa.int64()).to_pylist()
        for number in range(table.num_rows):
            letter = {name: values[number] for name, values in told.items()}
            headers: list[Header] = [(one["key"], one["value"]) for one in came["headers"][number] or ()]
            headers += _context(letter)
            topic, _ = _place(letter)
            timestamp = 0 if arrived[number] is None else arrived[number] // 1000
            yield self.topic_of(topic), came["key"][number], came["raw"][number], headers, timestamp


def _place(letter: Mapping[str, Any]) -> tuple[str, str | None]:
    """The topic and partition a letter came from; the source's name and None when it was no topic."""
    match = _OF_A_TOPIC.fullmatch(letter["origin"] or "")
    return (match[1], match[2]) if match else (letter["source"], None)


def _context(letter: Mapping[str, Any]) -> list[Header]:
    topic, partition = _place(letter)
    is_kafka = partition is not None
    offset = letter["position"] if is_kafka else None
    reason, message = letter["reason"], letter["error"] or letter["reason"]
    told = {
        ID: letter["dlq_id"],
        "__dlq.errors.topic": topic if is_kafka else None,
        "__dlq.errors.partition": partition,
        "__dlq.errors.offset": offset,
        "__dlq.errors.group": letter["pipeline"],
        "__dlq.errors.message": message,
        "__connect.errors.topic": topic if is_kafka else None,
        "__connect.errors.partition": partition,
        "__connect.errors.offset": offset,
        "__connect.errors.connector.name": letter["pipeline"],
        "__connect.errors.stage": letter["operator"] or letter["source"],
        "__connect.errors.exception.class.name": reason,
        "__connect.errors.exception.message": message,
    }
    told |= {f"tidegate.{name}": value for name, value in letter.items() if name != "dlq_id"}
    return [(name, str(value)) for name, value in told.items() if value is not None]
