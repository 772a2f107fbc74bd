"""Questions to a Kafka cluster: which partitions a topic has, where they begin and end.

Asked through the Java client that Spark's connector uses, in Spark's own JVM: the options of a source – SASL, TLS – are
written in its words, and one set of them serves both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.errors import SourceError, TidegateError, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Answer = TypeVar("Answer")

PATIENCE = {"default.api.timeout.ms": "10000", "request.timeout.ms": "5000"}
"""How long a client tries before it says that nobody answers; Kafka's own defaults are a minute and more."""

_AWAY = re.compile(
    r"\b(TimeoutException|DisconnectException|NetworkException|BrokerNotAvailableException|LeaderNotAvailableException"
    r"|NotLeaderOrFollowerException|CoordinatorNotAvailableException|CoordinatorLoadInProgressException"
    r"|ListenerNotFoundException|KafkaStorageException|RetriableException|ConnectException)\b"
)
_REFUSED = re.compile(r"\b(\w*(?:Authentication|Authorization)Exception|SslException|ConfigException)\b:?([^\n]*)")
_UNKNOWN = re.compile(r"\b(UnknownTopicOrPartitionException|UnknownTopicIdException)\b")


@dataclass(frozen=True)
class Topic:
    """A topic as the cluster describes it. `identity` is its id: a topic that is created anew has another."""

    identity: str
    partitions: tuple[int, ...]


class Cluster:
    """A connection to a cluster, for one topic."""

    def __init__(
        self, spark: SparkSession, servers: str, topic: str, isolation: str, options: Mapping[str, str]
    ) -> None:
        self._spark, self._servers, self._topic = spark, servers, topic
        self._isolation, self._options = isolation, options
        self._client: Any = None

    def topic(self) -> Topic:
        """The topic; SourceError when there is none of that name."""

        def ask(client: Any) -> Topic:
            wanted = self._jvm.java.util.ArrayList()
            wanted.add(self._topic)
            found = client.describeTopics(wanted).allTopicNames().get().get(self._topic)
            return Topic(str(found.topicId().toString()), tuple(sorted(p.partition() for p in found.partitions())))

        return self._ask(ask)

    def offsets(self, partitions: Iterable[int], when: str | int) -> dict[int, int]:
        """Where partitions begin, end, or reach an instant (ms): the first offset from it on, or the end."""
        partitions = list(partitions)

        def ask(client: Any) -> dict[int, int]:
            kafka = self._jvm.org.apache.kafka
            specs = kafka.clients.admin.OffsetSpec
            wanted = self._jvm.java.util.HashMap()
            places = {number: kafka.common.TopicPartition(self._topic, number) for number in partitions}
            for place in places.values():
                wanted.put(place, getattr(specs, when)() if isinstance(when, str) else specs.forTimestamp(when))
            level = getattr(kafka.common.IsolationLevel, self._isolation.upper())
            options = kafka.clients.admin.ListOffsetsOptions(level)
            found = client.listOffsets(wanted, options).all().get()
            return {number: int(found.get(place).offset()) for number, place in places.items()}

        found = self._ask(ask)
        late = [number for number, offset in found.items() if offset < 0]  # nothing is that new
        return found | (self.offsets(late, "latest") if late else {})

    def is_compacted(self) -> bool:
        """Whether the broker may remove single records of the topic; False also when it does not tell."""

        def ask(client: Any) -> bool:
            config = self._jvm.org.apache.kafka.common.config.ConfigResource
            kind = getattr(self._jvm.org.apache.kafka.common.config, "ConfigResource$Type").TOPIC
            wanted = self._jvm.java.util.ArrayList()
            resource = config(kind, self._topic)
            wanted.add(resource)
            found = client.describeConfigs(wanted).all().get().get(resource)
            return "compact" in str(found.get("cleanup.policy").value())

        try:
            return self._ask(ask)
        except SourceError:
            return False  # not allowed to know

    def close(self) -> None:
        from py4j.protocol import Py4JError

        client, self._client = self._client, None
        if client is not None:
            try:
                client.close(self._jvm.java.time.Duration.ofMillis(200))
            except (Py4JError, OSError):
                return  # the JVM has gone before

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm

    def _ask(self, question: Callable[[Any], Answer]) -> Answer:
        from py4j.protocol import Py4JJavaError

        try:
            if self._client is None:
                self._client = self._connect()
            return question(self._client)
        except Py4JJavaError as error:
            trouble = meaning(_causes(error), self._servers, self._topic, self._options)
            raise trouble or self._unclear(_causes(error)) from error

    def _connect(self) -> Any:
        properties = self._jvm.java.util.HashMap()
        for name, value in (PATIENCE | dict(self._options) | {"bootstrap.servers": self._servers}).items():
            properties.put(name, value)
        return self._jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)

    def _unclear(self, said: str) -> SourceError:
        said = hidden(said.splitlines()[-1] if said else "no reason given", self._options)
        return SourceError(f"Kafka at {self._servers} does not answer as it should: {said}")


def meaning(said: str, servers: str, topic: str, options: Mapping[str, str]) -> TidegateError | None:
    """What the words of a Kafka client mean to a user; None when they are not among those that we know."""
    if "Failed to load SSL keystore" in said:  # before the broker is asked anything
        absent = re.search(r"NoSuchFileException|FileNotFoundException", said)
        why = "there is no such file" if absent else "its password is wrong, or the file is no such store"
        return SourceError(
            f"a key store or trust store of the source on {servers} cannot be opened: {why}",
            hint="see ssl.truststore.location and ssl.truststore.password, ssl.keystore.location and …password",
        )
    if match := _REFUSED.search(said):
        return SourceError(
            f"Kafka at {servers} refuses us: {match[1]}{hidden(match[2][:200], options)}",
            hint="see the security options of the source, and what its user may do (read and describe the topic)",
        )
    if _UNKNOWN.search(said):
        return SourceError(
            f"there is no topic {topic!r} at {servers}",
            hint="create it, or correct its name; if it was deleted, its unread records are gone",
        )
    if _AWAY.search(said):
        return Unavailable(f"Kafka at {servers} cannot be reached")
    return None


def hidden(text: str, options: Mapping[str, str]) -> str:
    """The text without the value of any option of the source."""
    for value in sorted(options.values(), key=len, reverse=True):
        if len(value) > 3:
            text = text.replace(value, "…")
    return re.sub(r"(password|secret|token)\s*=\s*\S+", r"\1=…", text, flags=re.IGNORECASE)


def _causes(error: Any) -> str:
    """The exception and its causes, one per line."""
    found: list[str] = []
    cause = error.java_exception
    while cause is not None and len(found) < 8:
        found.append(str(cause.toString()))
        cause = cause.getCause()
    return "\n".join(found)
