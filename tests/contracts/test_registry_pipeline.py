"""A pipeline whose records name their schemas: several versions, corrupt bytes, a registry that is down."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.avro_cases import encode
from tests.contracts.messages import Messages, write_messages
from tests.contracts.test_avro_decode import prefixed
from tests.servers import RunningServer, unique
from tests.workbench import NOON, Bench

import tidegate as tg
from tidegate.contracts.registry_client import RegistryClient
from tidegate.contracts.schema import Schema
from tidegate.contracts.wire import HEADER
from tidegate.errors import ContractError, TidegateError, Unavailable

pytestmark = pytest.mark.servers

AT = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
MERCHANT = {"name": "merchant", "type": "string"}
CENTS = {"name": "cents", "type": "int"}
V1 = {"type": "record", "name": "Payment", "namespace": "shop", "fields": [AT, MERCHANT, CENTS]}
V2 = V1 | {"fields": [MERCHANT, AT, CENTS | {"type": "long"}, {"name": "note", "type": "string"}]}
V3 = V1 | {
    "fields": [AT, {"name": "shop", "type": "string"}, CENTS | {"type": "long"}, {"name": "currency", "type": "string"}]
}
READER = V1 | {
    "fields": [
        AT,
        MERCHANT | {"aliases": ["shop"]},
        CENTS | {"type": "long"},
        {"name": "currency", "type": "string", "default": "EUR"},
    ]
}
NOON_MS = int(NOON.timestamp() * 1000)


class Topic:
    """A subject and messages that name its schemas."""

    def __init__(self, registry: RunningServer, bench: Bench) -> None:
        self.client, self.bench, self.subject = RegistryClient(registry.address), bench, unique("payments") + "-value"
        self.reader = bench.folder / "payment.avsc"
        self.reader.write_text(json.dumps(READER))
        bench.build = self.app

    def register(self, schema: Any) -> int:
        return self.client.register(self.subject, Schema.of("avro", json.dumps(schema))).id

    def write(self, name: str, values: list[bytes | None], headers: Any = None) -> None:
        self.bench.publish(self.bench.input / name, lambda path: write_messages(path, values, headers))

    def contract(self, **more: Any) -> Any:
        return tg.Registry(self.client.url, self.subject, **({"reader": str(self.reader)} | more))

    def app(self, contract: Any = None, **connector: Any) -> tg.App:
        app = tg.App("shop")
        payments = app.source(
            "payments",
            Messages(str(self.bench.input), **connector),
            contract=contract or self.contract(),
            event_time="at",
            watermark=tg.Watermark(delay="1h"),
        )
        totals = (
            payments.key_by("merchant", "currency")
            .window("totals", tg.Tumbling("1h"))
            .aggregate(orders=tg.count(), cents=tg.sum("cents"))
        )
        app.sink("out", totals, tg.SQLite(str(self.bench.database), table="results"))
        return app

    def totals(self) -> dict[tuple[str, str], tuple[int, int]]:
        return {(r["merchant"], r["currency"]): (r["orders"], r["cents"]) for r in self.bench.table()}


@pytest.fixture
def topic(registry: RunningServer, bench: Bench) -> Topic:
    return Topic(registry, bench)


def row(n: int, **more: Any) -> dict[str, Any]:
    return {"at": NOON_MS + n, "merchant": f"m{n % 3}", "cents": n, **more}


def test_three_versions_and_corrupt_bytes_end_in_the_right_totals(topic: Topic) -> None:
    """A twentieth of the records is corrupt: none of them is lost, and none of them counts."""
    ids = {version: topic.register(schema) for version, schema in ((1, V1), (2, V2), (3, V3))}
    chance = random.Random(7)
    expected: Counter[tuple[str, str]] = Counter()
    orders: Counter[tuple[str, str]] = Counter()
    corrupt: list[bytes] = []
    for part in range(3):
        values: list[bytes | None] = []
        for n in range(part * 2000, part * 2000 + 2000):
            version = chance.choice((1, 2, 3))
            event, schema = row(n), {1: V1, 2: V2, 3: V3}[version]
            currency = chance.choice(("USD", "EUR")) if version == 3 else "EUR"
            event |= {"shop": event["merchant"], "currency": currency, "note": "ä"}
            value = prefixed(ids[version], encode(schema, event))
            if chance.random() < 0.05:
                value = chance.choice(
                    (
                        value[: chance.randrange(len(value))],  # cut short
                        value + b"\x00",  # bytes left over
                        b"\x07" + value[1:],  # no magic byte
                        value[:5] + b"\xff" * 12,  # no Avro
                        prefixed(2_000_000_000, value[5:]),  # an id that nobody registered
                        b"",
                        chance.randbytes(30),
                    )
                )
                corrupt.append(value)
            else:
                key = (event["merchant"], currency)
                expected[key] += n
                orders[key] += 1
            values.append(value)
        topic.write(f"{part}.parquet", values)
    summary = topic.bench.run(max_batch=1)
    assert topic.totals() == {key: (orders[key], expected[key]) for key in expected}
    letters = topic.bench.dead_letters()
    assert sorted(letter["raw"] for letter in letters) == sorted(corrupt)
    assert {letter["reason"] for letter in letters} == {"MALFORMED", "SCHEMA_UNKNOWN"}
    assert {letter["subject"] for letter in letters} == {topic.subject}
    unknown = [letter for letter in letters if letter["reason"] == "SCHEMA_UNKNOWN"]
    assert {letter["schema_id"] for letter in unknown} >= {2_000_000_000}
    assert summary.totals.sources["payments"].read == 6000
    assert len(corrupt) > 200


def test_a_version_that_is_registered_between_batches_is_read(topic: Topic) -> None:
    first = topic.register(V1)
    topic.write("0.parquet", [prefixed(first, encode(V1, row(1)))])
    topic.bench.run(mode="once")
    second = topic.register(V2)
    topic.write("1.parquet", [prefixed(second, encode(V2, row(1, note="x")))])
    topic.bench.run(mode="once")  # with the same checkpoint: a new writer is no change of the pipeline
    topic.bench.run()
    assert topic.totals() == {("m1", "EUR"): (2, 2)}
    assert topic.bench.dead_letters() == []


def test_a_writer_that_lacks_a_field_breaks_the_contract(topic: Topic) -> None:
    good = topic.register(V1)
    without = V1 | {"fields": [AT, MERCHANT]}
    bad = topic.register(without)
    other = topic.client.register(topic.subject, Schema.of("json", '{"type": "object", "properties": {}}')).id
    values = [
        prefixed(good, encode(V1, row(1))),
        prefixed(bad, encode(without, row(1))),
        prefixed(other, b"{}"),
    ]
    topic.write("0.parquet", [*values, None])
    topic.bench.run()
    assert topic.totals() == {("m1", "EUR"): (1, 1)}
    found = {letter["position"]: letter for letter in topic.bench.dead_letters()}
    assert [(found[n]["reason"], found[n]["schema_id"], found[n]["path"], found[n]["raw"]) for n in (1, 2, 3)] == [
        ("CONTRACT_VIOLATION", bad, "cents", values[1]),
        ("CONTRACT_VIOLATION", other, "the whole record", values[2]),
        ("MALFORMED", None, None, None),
    ]
    assert "no default (schema" in found[1]["error"]


def test_the_id_may_stand_in_a_header(topic: Topic) -> None:
    first, second = topic.register(V1), topic.register(V2)

    def named(id_: int) -> list[tuple[str, bytes]]:
        return [("trace", b"x"), (HEADER, b"\x00" + id_.to_bytes(4, "big"))]

    values: list[bytes | None] = [
        encode(V1, row(1)),
        encode(V2, row(1, note="x")),
        prefixed(second, encode(V2, row(1, note="x"))),  # an older producer, which writes the prefix
        encode(V1, row(1)),
        b"\xff",
    ]
    topic.write("0.parquet", values, [named(first), named(second), [], named(77_777), named(first)])
    contract = topic.contract(wire="header")
    topic.bench.run(topic.app(contract))
    assert topic.totals() == {("m1", "EUR"): (3, 3)}
    found = {letter["position"]: letter for letter in topic.bench.dead_letters()}
    assert [(found[n]["reason"], found[n]["schema_id"], found[n]["raw"]) for n in (3, 4)] == [
        ("SCHEMA_UNKNOWN", 77_777, values[3]),
        ("MALFORMED", first, values[4]),
    ]
    with pytest.raises(TidegateError, match="this source has no headers"):
        topic.bench.run(topic.app(contract, has_headers=False))


def test_json_behind_a_schema_id_is_read(topic: Topic) -> None:
    schema = {
        "type": "object",
        "properties": {
            "at": {"type": "string", "format": "date-time"},
            "merchant": {"type": "string"},
            "currency": {"type": "string"},
            "cents": {"type": "integer", "minimum": 0},
        },
        "required": ["merchant"],
    }
    id_ = topic.client.register(topic.subject, Schema.of("json", json.dumps(schema))).id
    event = {"at": NOON.isoformat(), "merchant": "m1", "currency": "EUR", "cents": 5}

    def value(**more: Any) -> bytes:
        return prefixed(id_, json.dumps(event | more).encode())

    values: list[bytes | None] = [
        value(),
        value(merchant=None),
        value(cents=-1),
        prefixed(id_, b"{"),
        prefixed(id_, b'{"merchant": "\xff"}'),
        prefixed(88_888, b"{}"),
        b"{}",
    ]
    topic.write("0.parquet", values)
    topic.bench.run(topic.app(topic.contract(reader="latest")))
    assert topic.totals() == {("m1", "EUR"): (1, 5)}
    found = {letter["position"]: letter for letter in topic.bench.dead_letters()}
    assert [(found[n]["reason"], found[n]["path"]) for n in range(1, 7)] == [
        ("CONTRACT_VIOLATION", "merchant"),
        ("CONTRACT_VIOLATION", None),
        ("MALFORMED", None),
        ("MALFORMED", None),
        ("SCHEMA_UNKNOWN", None),
        ("MALFORMED", None),
    ]
    assert [found[n]["raw"] for n in range(1, 7)] == values[1:]


def test_avro_without_a_registry_is_read_with_the_file(topic: Topic) -> None:
    values: list[bytes | None] = [encode(READER, row(1, currency="USD")), b"\x00nonsense"]
    topic.write("0.parquet", values)
    topic.bench.run(topic.app(str(topic.reader)))
    assert topic.totals() == {("m1", "USD"): (1, 1)}
    (letter,) = topic.bench.dead_letters()
    assert (letter["reason"], letter["raw"], letter["subject"]) == ("MALFORMED", values[1], None)


def test_a_subject_that_does_not_exist_stops_the_pipeline(topic: Topic) -> None:
    """All records would be dead letters, because of a typing error."""
    topic.write("0.parquet", [prefixed(1, b"")])
    with pytest.raises(ContractError, match="has no subject 'paiments', but there are records"):
        topic.bench.run(topic.app(tg.Registry(topic.client.url, "paiments", reader=str(topic.reader))))


def test_a_registry_that_is_away_is_waited_for(topic: Topic, registry: RunningServer) -> None:
    """It is held, not ended: this registry keeps its schemas in memory, and would come back without them."""
    id_ = topic.register(V1)
    topic.write("0.parquet", [prefixed(id_, encode(V1, row(1)))])
    registry.pause()
    back = threading.Timer(6, registry.resume)
    back.start()
    try:
        topic.bench.run(topic.app(topic.contract(timeout=0.5)))
    finally:
        back.join()
    assert any(line.startswith("waiting: the schema registry") for line in topic.bench.watched.said)
    assert any(line.startswith("going on after") for line in topic.bench.watched.said)
    assert topic.totals() == {("m1", "EUR"): (1, 1)}
    assert topic.bench.dead_letters() == []


def test_who_waits_for_a_registry_can_be_stopped(topic: Topic) -> None:
    topic.write("0.parquet", [prefixed(1, b"")])
    away = tg.Registry("http://127.0.0.1:1", topic.subject, reader=str(topic.reader))
    source = topic.app(away).sources["payments"]
    from tidegate.patience import patiently
    from tidegate.runtime.source_work import SourceWork

    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    with pytest.raises(Unavailable, match="cannot be reached"):
        patiently(SourceWork(source).resolve, lambda _: None, stop)


def test_files_refuse_such_a_contract(topic: Topic, tmp_path: Path) -> None:
    app = tg.App("shop")
    events = app.source("events", tg.Files(str(tmp_path)), contract=str(topic.reader), event_time="at")
    result = events.key_by("merchant").window("w", tg.Tumbling("1h")).aggregate(n=tg.count())
    app.sink("out", result, tg.Memory())
    with pytest.raises(TidegateError, match="files have lines or typed rows"):
        topic.bench.run(app)
