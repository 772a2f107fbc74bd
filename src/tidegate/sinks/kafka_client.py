"""Talking to Kafka: what its errors mean, topics that are there or made, the marker read back.

`librdkafka` tells much of its trouble aside, in a callback, and then merely times out: a wrong password looks like a
broker that is away. `Trouble` keeps what was told aside, so that the error can say what really happened.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.errors import SinkError, TidegateError, Unavailable

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

TIMEOUT = 30.0
"""Seconds that one step may take before the broker counts as away."""

OURS = {"bootstrap.servers", "transactional.id", "enable.idempotence", "isolation.level", "group.id", "error_cb"}
"""Settings that a user cannot choose, for the promise rests on them."""


# librdkafka writes to stderr unless told otherwise; what matters of it, errors say.
_NOWHERE = logging.getLogger("tidegate.librdkafka")
_NOWHERE.addHandler(logging.NullHandler())
_NOWHERE.propagate = False


class Trouble:
    """The last error that librdkafka told aside."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        # That all brokers are down is said after each real reason; it must not hide it.
        if self.error is None or error.name() != "_ALL_BROKERS_DOWN":
            self.error = error


@dataclass(frozen=True)
class Cluster:
    """The brokers as a user names them, with options such as those of security."""

    servers: str
    options: dict[str, Any]

    def settings(self, trouble: Trouble, **more: Any) -> dict[str, Any]:
        quiet = {"logger": _NOWHERE, "client.id": "tidegate", "error_cb": trouble}
        options = {name: _resolved(name, value) for name, value in (self.options | more).items()}
        return {**quiet, **options, "bootstrap.servers": self.servers}

    @contextmanager
    def explained(self, trouble: Trouble | None = None) -> Iterator[None]:
        """Errors of Kafka leave as ours: `Unavailable` where waiting may help, else `SinkError` with a hint."""
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as failure:
            raise self._meaning(failure.args[0], trouble) from failure

    def _meaning(self, error: KafkaError, trouble: Trouble | None) -> TidegateError:
        aside = trouble.error if trouble else None
        if aside is not None and aside.name() in _HINTS and error.name() in _AWAY:
            error = aside
        name = error.name()
        if name in _HINTS:
            return SinkError(f"Kafka at {self.servers}: {self._without_secrets(error.str())}", hint=_HINTS[name])
        if name in _AWAY or error.retriable():
            reason = aside.name() if aside is not None and name in _AWAY else name
            return Unavailable(f"Kafka at {self.servers} cannot be reached or cannot serve now ({reason.strip('_')})")
        return SinkError(f"Kafka at {self.servers}: {self._without_secrets(error.str())} ({name})")

    def _without_secrets(self, text: str) -> str:
        values = [str(_resolved(name, value)) for name, value in self.options.items()]
        for value in sorted(values, key=len, reverse=True):
            text = text.replace(value, "…") if value else text
        return text


def _resolved(name: str, value: Any) -> Any:
    """An option in which ``env:NAME`` and ``${env:NAME}`` are the variable: so an app's file need hold no secret."""

    def variable(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise SinkError(f"Kafka option {name!r} names the environment variable {match[1]}, which is not set")
        return os.environ[match[1]]

    if not isinstance(value, str):
        return value
    return re.sub(r"\$\{env:(\w+)\}", variable, re.sub(r"^env:(\w+)$", r"${env:\1}", value))


@contextmanager
def hear_out(client: Any) -> Iterator[None]:
    """When a step fails, take in what was told aside: callbacks are called only while somebody polls."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException:
        with suppress(KafkaException):
            client.poll(0.2)
        raise


@contextmanager
def fatal_named(producer: Producer) -> Iterator[None]:
    """Let a fatal error leave as what it is: `produce` says only that there is one, and the transaction's end which."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as failure:
        if failure.args[0].name() == "_FATAL":
            producer.abort_transaction(TIMEOUT)
        raise


def is_fenced(error: BaseException) -> bool:
    """Whether an error of ours means that another producer took over, or that the broker gave up on our transaction."""
    cause = error.__cause__
    return bool(cause and cause.args and getattr(cause.args[0], "name", str)() in _FENCED)


def ensure_topic(cluster: Cluster, topic: str, partitions: int | None, **config: str) -> None:
    """See that a topic is there; make it with `partitions` and `config`, or refuse when that is None."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    trouble = Trouble()
    with cluster.explained(trouble):
        admin = AdminClient(cluster.settings(trouble))
        # All topics are listed: to ask for one by name would create it, where brokers are so minded.
        with hear_out(admin):
            found = admin.list_topics(timeout=TIMEOUT).topics
        if topic in found:
            return
        if partitions is None:
            raise SinkError(
                f"there is no topic {topic!r} at {cluster.servers}",
                hint="create it, or give KafkaTopic(partitions=…) to have it created",
            )
        future = admin.create_topics([NewTopic(topic, partitions, config=config)])[topic]
        try:
            future.result(TIMEOUT)
        except KafkaException as failure:
            if failure.args[0].name() != "TOPIC_ALREADY_EXISTS":  # else another was first
                raise


@dataclass(frozen=True)
class Marker:
    """What stands in the marker topic for a checkpoint."""

    sequence: int | None
    claim: int

    def to_json(self) -> bytes:
        return json.dumps({"sequence": self.sequence, "claim": self.claim}).encode()


def read_marker(cluster: Cluster, topic: str, key: str) -> Marker | None:
    """The last committed marker under `key`; None when there never was one."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

    trouble, found = Trouble(), None
    with cluster.explained(trouble):
        settings = {
            "group.id": topic,  # asked for, and never used: nothing is committed under it
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,  # that the end is reached is said only after this wait
        }
        consumer = Consumer(cluster.settings(trouble, **settings))
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            while True:
                message = consumer.poll(TIMEOUT)
                if message is None:
                    raise Unavailable(f"Kafka at {cluster.servers} does not hand out the marker topic {topic}")
                error = message.error()
                if error is not None and error.name() == "_PARTITION_EOF":
                    return found
                if error is not None:
                    raise KafkaException(error)
                if message.key() == key.encode():
                    found = Marker(**json.loads(message.value() or b"{}"))
        finally:
            consumer.close()


_FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"}
_AWAY = {
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_TIMED_OUT",
    "_TIMED_OUT_QUEUE",
    "_MSG_TIMED_OUT",
    "_RESOLVE",
    "_WAIT_COORD",
    "_PURGE_QUEUE",
    "_PURGE_INFLIGHT",
    *_FENCED,
    "UNKNOWN_PRODUCER_ID",
    "INVALID_TXN_STATE",
    "TRANSACTION_ABORTABLE",
    "CONCURRENT_TRANSACTIONS",
    "BROKER_NOT_AVAILABLE",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "_STATE",
}
"""What a new producer, after a while, may not meet again. Fenced ones are here too: the marker tells by whom."""

_CREDENTIALS = "check the options of security (security.protocol, sasl.mechanisms, sasl.username, sasl.password, ssl.*)"
_RIGHTS = "the user needs the rights to write to the topic, to read and write the marker topic, and to use transactions"
_DELETED = "the topic, or the marker topic, was deleted while the pipeline ran; restore it, or replay into a new one"
_HINTS = {
    "_AUTHENTICATION": _CREDENTIALS,
    "SASL_AUTHENTICATION_FAILED": _CREDENTIALS,
    "UNSUPPORTED_SASL_MECHANISM": _CREDENTIALS,
    "_SSL": _CREDENTIALS,
    "TOPIC_AUTHORIZATION_FAILED": _RIGHTS,
    "CLUSTER_AUTHORIZATION_FAILED": _RIGHTS,
    "GROUP_AUTHORIZATION_FAILED": _RIGHTS,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _RIGHTS,
    "UNKNOWN_TOPIC_OR_PART": _DELETED,
    "_UNKNOWN_TOPIC": _DELETED,
    "_UNKNOWN_PARTITION": "the topic was changed while the pipeline ran; restart it",
    "MSG_SIZE_TOO_LARGE": "a result is larger than the broker takes; raise max.message.bytes of the topic and give the "
    "option message.max.bytes, or collect less in the pipeline",
    "_INVALID_ARG": "options are those of librdkafka; see its CONFIGURATION.md",
    "INVALID_TRANSACTION_TIMEOUT": "the broker allows at most transaction.max.timeout.ms; give the option "
    "transaction.timeout.ms",
    "INVALID_REPLICATION_FACTOR": "the cluster has fewer brokers than copies are wanted",
    "POLICY_VIOLATION": "the cluster has rules for new topics; create the topic by hand",
    "INVALID_TOPIC_EXCEPTION": "a topic's name has letters, digits, dots, underscores and hyphens",
    "UNSUPPORTED_VERSION": "the broker is too old for transactions; Kafka 2.5 or newer is needed",
}
