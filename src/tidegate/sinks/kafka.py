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
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal, get_args

from tidegate.errors import SinkError
from tidegate.sinks.base import Delivery, SinkTarget
from tidegate.sinks.kafka_client import OURS, Cluster, ensure_topic
from tidegate.sinks.kafka_messages import Messages, log_of, upserts_of
from tidegate.sinks.kafka_writer import KafkaWriter
from tidegate.sinks.panes import read_panes

Changes = Literal["upsert", "log"]

TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


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
        problems = client_problems("KafkaTopic", self.servers, self.options)
        if not TOPIC_NAME.fullmatch(self.topic):
            problems.append(f"topic {self.topic!r} is no name that Kafka takes: letters, digits, '.', '_' and '-'")
        if self.changes not in get_args(Changes):
            problems.append(f"changes of tg.KafkaTopic is 'upsert' or 'log', but not {self.changes!r}")
        if self.partitions is not None and self.partitions < 1:
            problems.append(f"partitions of tg.KafkaTopic must be at least 1, but is {self.partitions}")
        return problems

    def open(self, target: SinkTarget) -> KafkaWriter:
        if problems := self.problems():
            raise SinkError("; ".join(problems))
        cluster = Cluster(self.servers, dict(self.options))
        compacted = {"cleanup.policy": "compact"} if self.changes == "upsert" else {}
        ensure_topic(cluster, self.topic, self.partitions, **compacted)
        say = upserts_of if self.changes == "upsert" else log_of

        def outgoing(delivery: Delivery) -> Messages:
            return say(read_panes(delivery.files, target), target, self.topic, delivery.sequence)

        return KafkaWriter(cluster, target, outgoing)


def client_problems(what: str, servers: str, options: Mapping[str, Any]) -> list[str]:
    """What is wrong with a declaration as far as reaching the broker goes."""
    if find_spec("confluent_kafka") is None:
        return [f"tg.{what} needs the package confluent-kafka; install it with: pip install 'tidegate[kafka]'"]
    problems = []
    if not servers or "://" in servers or "@" in servers:
        problems.append(f"servers of tg.{what} are written host:port, several with commas between them")
    if taken := sorted(OURS & set(options)):
        problems.append(f"options of tg.{what} must not hold {', '.join(taken)}: exactly-once rests on ours")
    return problems
