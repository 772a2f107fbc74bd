"""Kafka: a topic, read with Spark's own connector.

A partition of the topic is a partition of the watermark, the offset is the position, and the broker's timestamp the
arrival. Key, value, headers and timestamp of a record are kept byte for byte until it is accepted, and in its dead
letter for ever. A micro-batch is bounded. Transactions are respected: what was aborted is not an event.

What cannot be read any more – retention was faster than the pipeline, the topic was created anew – stops the pipeline;
it is never passed over.

Options of Kafka's clients (SASL, TLS, …) go through as they are. Their values appear nowhere: not in `repr`, `explain`,
messages or the checkpoint. A value may name an environment variable, ``env:NAME``, or contain ``${env:NAME}``; it is
looked up when the pipeline runs, so that the app's file holds no secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from tidegate.contracts import Contract
from tidegate.errors import PipelineError, SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.sources.kafka_reader import KafkaReader

EXTRA = {"_key": "BINARY", "_headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>"}

_OURS = {
    "bootstrap.servers": 'it is the first argument: tg.Kafka("host:9092", …)',
    "isolation.level": 'say tg.Kafka(…, isolation="read_uncommitted")',
    "auto.offset.reset": 'say tg.Kafka(…, start="earliest"), "latest" or an instant',
    "enable.auto.commit": "offsets are kept in the checkpoint",
    "key.deserializer": "records are taken as bytes",
    "value.deserializer": "records are taken as bytes",
    "interceptor.classes": "Spark's connector does not support it",
}
_ENV = re.compile(r"\$\{env:(\w+)\}")


@dataclass(frozen=True)
class Kafka:
    """A topic of a Kafka cluster.

    `start` says where a pipeline without a checkpoint begins: ``"earliest"``, ``"latest"``, or an instant in ISO 8601
    (the records that the broker dates at or after it). `max_offsets` bounds a micro-batch. `isolation` is what is seen
    of transactions. `tombstones`: a record without a value is a dead letter, or is skipped and counted.
    `partition` keeps the watermark by a field of the contract (``"column:region"``) instead of Kafka's partitions.
    `options` are those of Kafka's clients, without a prefix.
    """

    servers: str
    topic: str
    start: str = "earliest"
    max_offsets: int = 1_000_000
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    tombstones: Literal["refuse", "skip"] = "refuse"
    partition: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", self.topic):
            raise PipelineError(
                f"topic {self.topic!r} is not the name of a topic",
                hint="one topic per source: letters, digits, '.', '_' and '-'",
            )
        if not self.servers.strip():
            raise PipelineError("Kafka needs the address of a broker", hint='tg.Kafka("localhost:9092", topic="…")')
        if self.max_offsets < 1:
            raise PipelineError(f"max_offsets is {self.max_offsets}; a batch needs at least one record")
        _refuse_unknown("isolation", self.isolation, "read_committed", "read_uncommitted")
        _refuse_unknown("tombstones", self.tombstones, "refuse", "skip")
        if self.partition is not None and not re.fullmatch(r"column:\w+", self.partition):
            raise PipelineError(
                f"partition {self.partition!r} is not usable",
                hint='"column:NAME", a field of the contract; without it, the partitions of the topic',
            )
        object.__setattr__(self, "options", {name.removeprefix("kafka."): v for name, v in self.options.items()})
        for name, value in self.options.items():
            if name in _OURS:
                raise PipelineError(f"Kafka option {name!r} cannot be set", hint=_OURS[name])
            if not isinstance(value, str):
                raise PipelineError(f"the value of Kafka option {name!r} is not text", hint=f'write "{name}": "…"')
        self.start_millis  # noqa: B018  # refuse what is no instant now, not when it runs

    @property
    def start_millis(self) -> int | None:
        """The instant to start at, in ms since the epoch; None when `start` is a word."""
        if self.start in ("earliest", "latest"):
            return None
        try:
            instant = datetime.fromisoformat(self.start)
        except ValueError as error:
            raise PipelineError(
                f"start {self.start!r} is not usable",
                hint='"earliest", "latest", or an instant such as "2026-01-31T12:00:00Z"',
            ) from error
        instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
        return round(instant.timestamp() * 1000)

    @property
    def encoding(self) -> str:
        return "json"

    @property
    def extra(self) -> Mapping[str, str]:
        return EXTRA

    @property
    def jars(self) -> tuple[str, ...]:
        """The group of `tidegate.jars` that holds Spark's connector."""
        return ("kafka",)

    @property
    def one_partition(self) -> bool:
        return False

    def describe(self) -> str:
        how = [f"from {self.start}", self.isolation, *([f"by {self.partition}"] if self.partition else [])]
        return f"kafka {self.servers} topic {self.topic} ({', '.join(how)})"

    def problems(self, contract: Contract) -> list[str]:
        name = (self.partition or "").partition(":")[2]
        if name and name not in contract.names:
            return [f"partition column {name!r} is not in the contract ({', '.join(contract.names)})"]
        return []

    def ready(self) -> None:
        """Whether the broker is there is found out, and waited for, once Spark runs."""
        self.client_options()

    def client_options(self) -> dict[str, str]:
        """The options of Kafka's clients, with what they name of the environment looked up."""
        return {name: _look_up(name, value) for name, value in self.options.items()}

    def open(self, spark: SparkSession, contract: Contract, name: str, max_batch: int | None) -> KafkaReader:
        from tidegate.sources.kafka_reader import KafkaReader

        return KafkaReader(self, spark, name, max_batch or self.max_offsets)


def _refuse_unknown(what: str, value: str, *known: str) -> None:
    if value not in known:
        raise PipelineError(f"{what} {value!r} is unknown", hint=f"one of {', '.join(known)}")


def _look_up(option: str, value: str) -> str:
    def variable(name: str) -> str:
        if name not in os.environ:
            raise SourceError(
                f"Kafka option {option!r} names the environment variable {name}, which is not set",
                hint=f"export {name}=… where the pipeline runs",
            )
        return os.environ[name]

    if value.startswith("env:"):
        return variable(value.removeprefix("env:"))
    return _ENV.sub(lambda match: variable(match[1]), value)
