"""Every sink at once: where a pipeline writes to on real servers, and how each of them is read back.

Each sink is read as its users read it – SQL, hashes, committed messages, the files that Delta's log lists – and turned
into rows of the same shape, so that all can be held against the table in SQLite, bit for bit. A double sum and a KLL
quantile are among the values: computed twice they differ, so equal rows also show that nothing was computed twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psycopg
import psycopg.rows
import pyarrow.parquet as pq
import redis
from confluent_kafka import Message
from tests.chaos.drivers import ALL, Pipeline
from tests.chaos.oracles import Row, differences, last_panes
from tests.servers import RunningServer, unique
from tests.sources.topics import committed

SINKS = ("table", "log", "postgres", "redis", "kafka", "delta", "dead_letters")
"""The sinks in the order in which a record is delivered to them."""

MORE_SINKS = """
app.sink("postgres", counts, tg.Postgres({postgres!r}, table={name!r}))
app.sink("redis", counts, tg.Redis({redis!r}, prefix={name!r}, atomic_rows=1))
app.sink("kafka", counts, tg.KafkaTopic({kafka!r}, {name!r}, partitions=3))
app.sink("delta", counts, tg.Delta("delta"))
app.dead_letters(tg.KafkaDeadLetters({kafka!r}, topic={letters!r}))
"""


@dataclass(frozen=True)
class Servers:
    kafka: RunningServer
    postgres: RunningServer
    redis: RunningServer


@dataclass(frozen=True)
class Everywhere:
    """A pipeline from a topic to all sinks, under names that no other test uses."""

    pipeline: Pipeline
    servers: Servers
    name: str

    @staticmethod
    def make(folder: Path, servers: Servers, java: str = "", **input_options: Any) -> Everywhere:
        name = unique("counts")
        more = MORE_SINKS.format(
            name=name,
            letters=f"{name}.letters",
            postgres=servers.postgres.address,
            redis=servers.redis.address,
            kafka=servers.kafka.address,
        )
        return Everywhere(Pipeline.make(folder, java, servers.kafka, more, **input_options), servers, name)

    def tables(self) -> dict[str, list[Row]]:
        """The current results, as each sink shows them."""
        return {
            "log": last_panes(self.pipeline.log(), ["k"]),
            "postgres": self._postgres(),
            "redis": self._redis(),
            "kafka": self._kafka(),
            "delta": self._delta(),
        }

    def disagreements(self) -> list[str]:
        """Where a sink does not show exactly what the table in SQLite shows, and dead letters that are not there once.

        The letters are also those of the checkpoint, byte for byte.
        """
        table = self.pipeline.table()
        found = [f"{sink}: {text}" for sink, rows in self.tables().items() for text in differences(table, rows, ALL)]
        columns = ("dlq_id", "reason", "operator", "raw")
        found += [f"letters: {text}" for text in differences(self.pipeline.letters(), self.letters(), columns)]
        ids = [letter["dlq_id"] for letter in self.letters()]
        return found + ([f"{len(ids)} letters, but {len(set(ids))} ids"] if len(set(ids)) != len(ids) else [])

    def letters(self) -> list[Row]:
        def row(message: Message) -> Row:
            headers: Any = message.headers()
            told = dict(headers)
            operator = told.get("tidegate.operator")
            return {
                "dlq_id": told["tidegate-id"].decode(),
                "reason": told["tidegate.reason"].decode(),
                "operator": None if operator is None else operator.decode(),
                "raw": message.value(),
            }

        return [row(message) for message in committed(self.servers.kafka.address, f"{self.name}.letters")]

    def _postgres(self) -> list[Row]:
        with closing(psycopg.connect(self.servers.postgres.address, row_factory=psycopg.rows.dict_row)) as connection:
            connection.execute("SET timezone = 'UTC'")
            return list(connection.execute(f"SELECT * FROM {self.name}".encode()).fetchall())

    def _redis(self) -> list[Row]:
        client: Any
        rows: list[Row] = []
        with closing(redis.Redis.from_url(self.servers.redis.address, decode_responses=True)) as client:
            for name in client.scan_iter(f"{self.name}:*", count=1000):
                _, k, start = name.split(":", 2)
                if k != "%marker":
                    texts = {"k": k, "window_start": start} | client.hgetall(name)
                    rows.append({column: _TYPES.get(column, str)(text) for column, text in texts.items()})
        return rows

    def _kafka(self) -> list[Row]:
        """A compacted topic: the last message per key, and nothing for a tombstone."""
        last: dict[Any, Any] = {}
        for message in committed(self.servers.kafka.address, self.name):
            last[message.key()] = message.value()
        return [json.loads(value) for value in last.values() if value is not None]

    def _delta(self) -> list[Row]:
        return read_delta(self.pipeline.folder / "delta")


_TYPES: Mapping[str, Callable[[str], Any]] = {
    "n": int,
    "total": int,
    "pane_index": int,
    "doubles": float,
    "middle": float,
    "pane_final": lambda text: {"true": True, "false": False}[text],
}


def read_delta(folder: Path) -> list[Row]:
    """The rows of the files that a Delta table's log lists: what any reader of the format sees, without Spark."""
    files: set[str] = set()
    for commit in sorted((folder / "_delta_log").glob("*.json")):
        for line in commit.read_text("utf-8").splitlines():
            action = json.loads(line)
            if "remove" in action:
                files.discard(action["remove"]["path"])
            if "add" in action:
                assert not action["add"].get("deletionVector"), "this reader knows no deletion vectors"
                files.add(action["add"]["path"])
    rows = []
    for path in files:
        with pq.ParquetFile(folder / unquote(path), coerce_int96_timestamp_unit="us") as file:
            rows += file.read().to_pylist()
    return [{name: _in_utc(value) for name, value in row.items()} for row in rows]


def _in_utc(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
