"""Adapters: how the conformance suite talks to each kind of sink. To hold a new sink against it, add one to ADAPTERS.

An adapter says how to declare the sink in a scratch folder, and how to look at what it holds: as a table of current
results, as a change log, or both. Each test tells what both must show (`expect`), and looks at what the sink has.
"""

from __future__ import annotations

import base64
import json
import math
import sqlite3
import zlib
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal

import psycopg
import psycopg.rows
import pytest
import redis
from sink_cases import Row, target  # type: ignore[import-not-found]
from tests.sources.topics import committed

from tidegate.sinks.base import Delivery, Sink, SinkTarget
from tidegate.sinks.delta import Delta
from tidegate.sinks.kafka import KafkaTopic
from tidegate.sinks.memory import Memory
from tidegate.sinks.parquet_log import ParquetLog, read_log
from tidegate.sinks.postgres import Postgres
from tidegate.sinks.redis import Redis
from tidegate.sinks.sqlite import SQLite


class Adapter:
    """How the suite talks to one kind of sink."""

    survives_a_crash = True
    """False for a sink that promises nothing beyond the life of its process."""

    in_order = True
    """Whether a log gives its rows back in the order in which they came."""

    fixture: str | None = None
    """What must run for it: a server of tests/servers.py, or Spark with the jars."""

    slow = False
    """Every delivery is a job of Spark's: the whole suite takes minutes."""

    def __init__(self, folder: Path, address: str = "") -> None:
        self.folder, self.address = folder, address

    def sink(self, name: str) -> Sink:
        """Declare a sink; all sinks of one adapter share a database or folder."""
        raise NotImplementedError

    def table(self, name: str) -> list[Row] | None:
        """The current results in any order, or None when the sink does not show them."""

    def log(self, name: str) -> list[Row] | None:
        """The change log in order with `sequence`, or None when the sink does not keep one."""

    def stored(self, value: Any) -> Any:
        """How the sink gives back a value that was put in."""
        return value

    def stored_row(self, row: Row, key: tuple[str, ...]) -> Row:
        """How the sink shows a row of current results."""
        return {column: self.stored(value) for column, value in row.items()}


class SQLiteAdapter(Adapter):
    def sink(self, name: str) -> Sink:
        return SQLite(self.folder / "results.db", table=name)

    def table(self, name: str) -> list[Row]:
        with closing(sqlite3.connect(self.folder / "results.db")) as connection:
            connection.row_factory = sqlite3.Row
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone():
                return []
            return [dict(row) for row in connection.execute(f'SELECT * FROM "{name}"')]

    def stored(self, value: Any) -> Any:
        return _text(value) if isinstance(value, date | list | dict | Decimal) else value


class ParquetLogAdapter(Adapter):
    def sink(self, name: str) -> Sink:
        return ParquetLog(self.folder / "log")

    def log(self, name: str) -> list[Row]:
        rows: list[Row] = read_log(self.folder / "log", sink=name).to_pylist()
        return rows


class MemoryAdapter(Adapter):
    survives_a_crash = False

    def __init__(self, folder: Path, address: str = "") -> None:
        super().__init__(folder, address)
        self.sinks: dict[str, Memory] = {}

    def sink(self, name: str) -> Sink:
        return self.sinks.setdefault(name, Memory())

    def table(self, name: str) -> list[Row]:
        return self.sinks[name].rows()

    def log(self, name: str) -> list[Row]:
        return self.sinks[name].log()


class PostgresAdapter(Adapter):
    """A schema per test in the server's database; the folder's name says which."""

    fixture = "postgres"

    def __init__(self, folder: Path, address: str = "") -> None:
        super().__init__(folder, address)
        self.schema = f"t{zlib.crc32(str(folder).encode()):08x}"
        with closing(psycopg.connect(self.address, autocommit=True)) as connection:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")

    def sink(self, name: str) -> Sink:
        return Postgres(self.address, table=f"{self.schema}.{name}", nul_as="␀")

    def table(self, name: str) -> list[Row]:
        with closing(psycopg.connect(self.address, row_factory=psycopg.rows.dict_row)) as connection:
            connection.execute("SET timezone = 'UTC'")
            try:
                return connection.execute(f'SELECT * FROM {self.schema}."{name}"'.encode()).fetchall()
            except psycopg.errors.UndefinedTable:
                return []

    def stored(self, value: Any) -> Any:
        return value.replace("\x00", "␀") if isinstance(value, str) else value


class RedisAdapter(Adapter):
    """A prefix per test. A hash is a row of texts, with the rest of its name as `name`; what is NULL is not in it."""

    fixture = "redis_server"

    def __init__(self, folder: Path, address: str = "") -> None:
        super().__init__(folder, address)
        self.prefix = f"{folder}/"

    def sink(self, name: str) -> Sink:
        return Redis(self.address, prefix=self.prefix + name)

    def table(self, name: str) -> list[Row]:
        prefix = f"{self.prefix}{name}:"
        client: Any
        with closing(redis.Redis.from_url(self.address)) as client:
            names: list[bytes] = [
                found for found in client.scan_iter(f"{prefix}*", count=1000) if b":%marker:" not in found
            ]
            return [
                {"name": found.decode(errors="surrogateescape").removeprefix(prefix)}
                | {column.decode(): value for column, value in client.hgetall(found).items()}
                for found in names
            ]

    def stored_row(self, row: Row, key: tuple[str, ...]) -> Row:
        parts = ["%N" if row[k] is None else _text(row[k]).replace("%", "%25").replace(":", "%3A") for k in key]
        start = "global" if row["window_start"] is None else _text(row["window_start"])
        fields = {k: v for k, v in row.items() if k not in (*key, "window_start") and v is not None}
        return {"name": ":".join([*parts, start])} | {
            k: v if isinstance(v, bytes) else _text(v).encode() for k, v in fields.items()
        }


class KafkaAdapter(Adapter):
    """A topic per test and sink, read as a reader of committed messages sees it."""

    fixture = "kafka"

    def topic(self, name: str) -> str:
        return f"t{zlib.crc32(str(self.folder).encode()):08x}.{name}"

    def sink(self, name: str) -> Sink:
        return KafkaTopic(self.address, self.topic(name), partitions=3)

    def table(self, name: str) -> list[Row]:
        rows: dict[bytes | None, bytes | None] = {}
        for message in committed(self.address, self.topic(name)):
            rows[message.key()] = message.value()
        return [json.loads(value) for value in rows.values() if value is not None]

    def stored(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        return _text(value) if isinstance(value, date | Decimal) else value


class KafkaLogAdapter(KafkaAdapter):
    def sink(self, name: str) -> Sink:
        return KafkaTopic(self.address, self.topic(name), changes="log", partitions=1)

    def table(self, name: str) -> None:  # type: ignore[override]
        return None

    def log(self, name: str) -> list[Row]:
        rows = []
        for message in committed(self.address, self.topic(name)):
            headers: Any = message.headers()
            sequence = dict(headers)["tidegate-id"].decode().split("/")[-2]
            rows.append({"sequence": int(sequence)} | json.loads(message.value() or b""))
        return rows


class DeltaAdapter(Adapter):
    """Read back through Spark. A table has no order: a log is compared as what it holds, record by record."""

    fixture = "spark"
    slow = True
    in_order = False
    changes: Literal["upsert", "log"] = "upsert"

    def __init__(self, folder: Path, address: str = "") -> None:
        from tidegate.runtime.session import make_session

        super().__init__(folder, address)
        # In the process that dies, nobody else has started Spark.
        self.spark = make_session("tests", "2", brief=True, jars=("delta",))

    def sink(self, name: str) -> Sink:
        return Delta(self.folder / "delta" / name, changes=self.changes)

    def table(self, name: str) -> list[Row] | None:
        return self.rows(name)

    def rows(self, name: str) -> list[Row]:
        if not (self.folder / "delta" / name / "_delta_log").exists():
            return []
        table = self.spark.newSession().read.format("delta").load(str(self.folder / "delta" / name)).toArrow()
        rows: list[Row] = table.to_pylist()
        return rows


class DeltaLogAdapter(DeltaAdapter):
    changes = "log"

    def table(self, name: str) -> None:
        return None

    def log(self, name: str) -> list[Row]:
        return self.rows(name)


def _text(value: Any) -> str:
    """A value as text that people read: what SQLite and Redis hold."""
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text + "Z" if value.tzinfo else text
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    return format(value, "f") if isinstance(value, Decimal) else str(value)


ADAPTERS: dict[str, type[Adapter]] = {
    "sqlite": SQLiteAdapter,
    "parquet_log": ParquetLogAdapter,
    "memory": MemoryAdapter,
    "postgres": PostgresAdapter,
    "redis": RedisAdapter,
    "kafka": KafkaAdapter,
    "kafka_log": KafkaLogAdapter,
    "delta": DeltaAdapter,
    "delta_log": DeltaLogAdapter,
}


def kinds(*, surviving: bool = False) -> list[Any]:
    """The adapters as parameters of tests; those that need a server, or minutes, carry the marker for it."""
    return [
        pytest.param(
            kind,
            marks=[*([pytest.mark.servers] if adapter.fixture else []), *([pytest.mark.slow] if adapter.slow else [])],
        )
        for kind, adapter in ADAPTERS.items()
        if adapter.survives_a_crash or not surviving
    ]


def target_in(adapter: Adapter, name: str = "out", **changes: Any) -> SinkTarget:
    """A target of a checkpoint that only this test has: Memory outlives tests."""
    unique: SinkTarget = target(name, checkpoint_id=str(adapter.folder), **changes)
    return unique


def deliver(adapter: Adapter, *deliveries: Delivery, name: str = "out", **changes: Any) -> list[int]:
    with closing(adapter.sink(name).open(target_in(adapter, name, **changes))) as writer:
        return [writer.deliver(delivery) for delivery in deliveries]


def expect(
    adapter: Adapter,
    table: list[Row],
    log: list[tuple[int, Row]],
    name: str = "out",
    key: tuple[str, ...] = ("merchant",),
) -> None:
    """Hold the sink against the panes that a table of current results and a change log should show."""
    current = ({k: v for k, v in row.items() if k != "pane_change"} for row in table)
    stored_table = [adapter.stored_row(row, key) for row in current]
    stored_log = [{"sequence": n} | {k: adapter.stored(v) for k, v in row.items()} for n, row in log]
    found_table, found_log = adapter.table(name), adapter.log(name)
    assert found_table is not None or found_log is not None
    if found_table is not None:
        assert sorted(found_table, key=repr) == sorted(stored_table, key=repr)
    if found_log is not None:
        arrange = list if adapter.in_order else partial(sorted, key=repr)
        assert arrange(found_log) == arrange(stored_log)
